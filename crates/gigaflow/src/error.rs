//! What can be wrong with what an operator asks for.

/// The configuration names a policy that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no policy {name:?}: it is one of disjoint, joint, profiled, first-fit, random, \
     one-to-one or megaflow"
)]
pub struct UnknownPolicy {
    /// The name that was given.
    pub name: String,
}
