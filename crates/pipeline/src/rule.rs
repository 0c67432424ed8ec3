//! Rules: a match, a priority and instructions in one table, with their counters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_classifier::{Priority, Rank};
use shunt_flow::Match;

use crate::{Action, BridgeId, Cookie, RuleId, TableId, Time};

/// One revision of a rule.
///
/// MODIFY makes a new revision: a new value with the same [`RuleId`] and the same counters.
#[derive(Debug)]
pub struct Rule {
    /// Identity and age.
    pub id: RuleId,
    /// How often the rule was modified.
    pub revision: u32,
    /// The bridge whose table holds it.
    pub bridge: BridgeId,
    /// The table that holds it.
    pub table: TableId,
    /// What it matches.
    pub matching: Match,
    /// Its priority.
    pub priority: Priority,
    /// The controller's label.
    pub cookie: Cookie,
    /// Time without a hit after which it goes; zero: never. Whole seconds.
    pub idle_timeout: Duration,
    /// Time after which it goes; zero: never. Whole seconds.
    pub hard_timeout: Duration,
    /// How much it is worth keeping when a table is full (OpenFlow 1.4).
    pub importance: u16,
    /// What the controller asked for when it added the rule.
    pub flags: FlowFlags,
    /// What happens to a packet that matches.
    pub instructions: Arc<Instructions>,
    /// When it was added, or last modified.
    pub modified: Time,
    /// When it was added.
    pub created: Time,
    /// Counters, shared by all revisions.
    pub stats: Arc<RuleStats>,
}

impl Rule {
    /// Its place in the total order of its table.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        Rank { priority: self.priority, age: self.id.number() }
    }
}

/// What a controller asked for when it added a rule (`ofp_flow_mod_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFlags {
    /// Tell controllers when the rule goes (`OFPFF_SEND_FLOW_REM`).
    pub send_flow_removed: bool,
    /// Refuse the rule if it overlaps another of its priority (`OFPFF_CHECK_OVERLAP`).
    pub check_overlap: bool,
    /// Reset counters when modified (`OFPFF_RESET_COUNTS`).
    pub reset_counts: bool,
    /// No need to count packets (`OFPFF_NO_PKT_COUNTS`); Shunt counts all the same.
    pub no_packet_counts: bool,
    /// No need to count bytes (`OFPFF_NO_BYT_COUNTS`); Shunt counts all the same.
    pub no_byte_counts: bool,
}

/// The instructions of a rule, in the order in which they are executed (OpenFlow 1.3.5, 5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// `apply_actions`: run now, in order.
    pub apply: Box<[Action]>,
    /// `clear_actions`: empty the action set.
    pub clear: bool,
    /// `write_actions`: merge into the action set.
    pub write: Box<[Action]>,
    /// `write_metadata`: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// `goto_table`: go on there.
    pub goto: Option<TableId>,
}

/// Counters of a rule, of all its revisions.
///
/// Packet threads add to them when they hand in their counts, never per packet.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
}

/// What the counters of a rule say at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTotals {
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, from the first of the Ethernet header on, without the frame check sequence.
    pub bytes: u64,
    /// When the last of them came; the beginning of time if none did.
    pub used: Time,
}

impl RuleStats {
    /// Counts hits, the last of them at `used`.
    pub fn credit(&self, packets: u64, bytes: u64, used: Time) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_max(used.nanoseconds(), Ordering::Relaxed);
    }

    /// What has been counted so far.
    #[must_use]
    pub fn totals(&self) -> RuleTotals {
        RuleTotals {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: Time::from_nanoseconds(self.used.load(Ordering::Relaxed)),
        }
    }

    /// Starts packets and bytes anew; the time of the last hit stays.
    pub fn reset(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}
