//! The numbers of the standard actions, which OpenFlow 1.1 changed.

/// The version of the standard actions in an action list.
///
/// Nicira's actions are the same in every version, but some of them contain a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionFormat {
    /// The actions of OpenFlow 1.0.
    V10,
    /// The actions of OpenFlow 1.3.
    V13,
}
