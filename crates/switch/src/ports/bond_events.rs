//! The changes of a bond, for the log.

use std::{fmt, num::NonZeroU16, time::Duration};

use crate::config::{BondLacp, BondOptions};

/// A change of a bond, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BondEvent {
    /// A member was enabled.
    Enabled(String),
    /// A member was disabled.
    Disabled(String),
    /// The conditions of a member changed; it is enabled or disabled after a delay.
    Delayed {
        /// Name of the member.
        member: String,
        /// True if all conditions to enable the member hold now.
        is_up: bool,
        /// The delay before the member is enabled or disabled.
        delay: Duration,
        /// The conditions that can have changed.
        cause: MemberCause,
    },
    /// The conditions of a member changed back before the delay was over.
    Kept {
        /// Name of the member.
        member: String,
        /// True if all conditions to enable the member hold again.
        is_up: bool,
        /// The conditions that can have changed.
        cause: MemberCause,
    },
    /// Another member became the active one.
    Active(String),
    /// No member is active any more.
    WithoutMember,
    /// Number of buckets that got another member because their member was disabled.
    Moved(usize),
    /// Number of buckets that got another member because of their loads.
    Rebalanced(usize),
    /// LACP has another key, because `lacp_aggregation_key` of a bond has the old one.
    Rekeyed {
        /// The key that the bond had.
        before: NonZeroU16,
        /// The key that the bond has now.
        after: NonZeroU16,
    },
}

/// The conditions on which a member is enabled: its link, and LACP or BFD if used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberCause {
    /// True if the partner of LACP must use the link.
    lacp: bool,
    /// True if the BFD session of the port must be forwarding.
    bfd: bool,
}

impl MemberCause {
    /// Returns the conditions on which a member of a bond is enabled.
    pub(crate) const fn of(options: &BondOptions, has_bfd: bool) -> Self {
        let lacp = match options.lacp {
            BondLacp::Off => false,
            BondLacp::Active | BondLacp::Passive => true,
        };
        Self { lacp, bfd: has_bfd }
    }
}

impl fmt::Display for MemberCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { lacp: false, bfd: false } => "its link",
            Self { lacp: true, bfd: false } => "its link or LACP",
            Self { lacp: false, bfd: true } => "its link or BFD",
            Self { lacp: true, bfd: true } => "its link, LACP or BFD",
        })
    }
}

impl fmt::Display for BondEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enabled(member) => write!(f, "member {member} enabled"),
            Self::Disabled(member) => write!(f, "member {member} disabled"),
            Self::Delayed { member, is_up, delay, cause } => {
                let (done, state) = if *is_up { ("enabled", "up") } else { ("disabled", "down") };
                let delay = delay.as_millis();
                write!(f, "member {member} will be {done} if {cause} stays {state} for {delay} ms")
            }
            Self::Kept { member, is_up: true, cause } => {
                write!(f, "member {member} stays enabled: {cause} came back up within the delay")
            }
            Self::Kept { member, is_up: false, cause } => {
                write!(
                    f,
                    "member {member} stays disabled: {cause} went down again within the delay"
                )
            }
            Self::Active(member) => write!(f, "active member is now {member}"),
            Self::WithoutMember => f.write_str("no active member, all members are disabled"),
            Self::Moved(count) => write!(f, "{count} of 256 buckets moved to other members"),
            Self::Rebalanced(count) => {
                write!(f, "{count} of 256 buckets moved to balance the load")
            }
            Self::Rekeyed { before, after } => write!(
                f,
                "LACP key is now {after}, because lacp_aggregation_key of another bond has the \
                 key {before}"
            ),
        }
    }
}
