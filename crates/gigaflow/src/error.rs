//! Errors in the configuration.

/// The configuration names a partition policy that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy {name:?}: use disjoint, joint, profiled, first-fit, random, one-to-one or \
     megaflow"
)]
pub struct UnknownPolicy {
    /// The name that no policy has.
    pub name: String,
}
