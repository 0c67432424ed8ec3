//! The state of an interface, as operators see it.

use std::fmt;

/// The state of the link to the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemifLink {
    /// No peer is connected.
    Waiting {
        /// The reason why the link is not connected.
        reason: String,
    },
    /// A peer is connected, so frames can pass.
    Up,
}

impl MemifLink {
    /// Returns whether both sides are connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        *self == Self::Up
    }
}

impl fmt::Display for MemifLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason } => write!(f, "no peer is connected: {reason}"),
            Self::Up => f.write_str("up"),
        }
    }
}
