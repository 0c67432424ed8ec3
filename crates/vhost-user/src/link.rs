//! The state of a device, as operators see it.

use std::fmt;

use crate::error::RingError;

/// The state of the link to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestLink {
    /// No hypervisor is connected.
    Waiting {
        /// The reason why no hypervisor is connected.
        reason: String,
    },
    /// A hypervisor is connected, but the driver of its guest does not run.
    Connected,
    /// The guest sends and receives.
    Up,
    /// The guest broke a rule, and a queue was stopped.
    Stopped {
        /// The number of the queue: the guest receives by queues with even numbers.
        queue: u16,
        /// The rule that the guest broke.
        error: RingError,
    },
}

impl GuestLink {
    /// Returns whether the guest sends and receives.
    #[must_use]
    pub fn is_up(&self) -> bool {
        *self == Self::Up
    }
}

impl fmt::Display for GuestLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason } => write!(f, "no hypervisor is connected: {reason}"),
            Self::Connected => {
                f.write_str("the hypervisor is connected, and the guest has no network driver yet")
            }
            Self::Up => f.write_str("up"),
            Self::Stopped { queue, error } => write!(
                f,
                "queue {queue} was stopped: {error}; load the network driver of the guest again"
            ),
        }
    }
}
