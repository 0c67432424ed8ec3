//! Newtypes for numbers that must not be mistaken for one another.

use std::fmt;

/// A table of a bridge: 0 to 253 for controllers, 254 for the switch itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(u8);

impl TableId {
    /// Table 0, in which every packet begins.
    pub const FIRST: Self = Self(0);
    /// The highest table that controllers may use (`n_tables` - 1).
    pub const MAX: Self = Self(253);
    /// Number of tables that controllers may use.
    pub const COUNT: u8 = Self::MAX.0 + 1;

    /// Returns the table with this number; `None` above [`Self::MAX`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// Returns the id as a number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the id as an index of an array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Creates the id with this number; every number is legal.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// Returns the id as a number.
            #[must_use]
            pub const fn number(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number! {
    /// A label that a controller gives a rule; the switch never interprets it.
    Cookie(u64), "{:#x}"
}
number! {
    /// The identity of a rule, and its age: numbers grow in the order of addition.
    ///
    /// Numbers are unique over all tables. A rule that is modified keeps its number; a rule that an
    /// ADD replaces does not.
    RuleId(u64), "{}"
}
number! {
    /// The number of a bridge of the daemon. In a flow key, 0 means no bridge.
    BridgeId(u16), "{}"
}
number! {
    /// The number of a group of a bridge: 0 to [`GroupId::MAX`].
    GroupId(u32), "{}"
}
number! {
    /// The number of a meter of a bridge: 1 to [`MeterId::MAX`].
    MeterId(u32), "{}"
}
number! {
    /// The number of a datapath port, unique in the daemon.
    DatapathPort(u32), "{}"
}
number! {
    /// The number of an egress queue of a port.
    QueueId(u32), "{}"
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl GroupId {
    /// The highest group number (`OFPG_MAX`).
    pub const MAX: Self = Self(0xffff_ff00);
    /// All groups (`OFPG_ALL`): no group has this number.
    pub const ALL: Self = Self(0xffff_fffc);
}

impl QueueId {
    /// The queue of packets for which no queue is set.
    pub const DEFAULT: Self = Self(0);
}

impl MeterId {
    /// The highest meter number (`OFPM_MAX`).
    pub const MAX: Self = Self(0xffff_0000);
    /// All meters (`OFPM_ALL`): no meter has this number.
    pub const ALL: Self = Self(0xffff_ffff);
}
