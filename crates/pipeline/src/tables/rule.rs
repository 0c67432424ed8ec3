//! Rules: a match, a priority and instructions in one table, with their counters.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_classifier::{Priority, Rank};
use shunt_flow::Match;

use crate::{
    action::Action,
    id::{BridgeId, Cookie, MeterId, RuleId, TableId},
    time::Time,
};

/// One revision of a rule.
///
/// MODIFY makes a new revision: a new `Rule` with the same [`RuleId`] and the same counters.
#[derive(Debug)]
pub struct Rule {
    /// The identity of the rule, which also orders rules by age.
    pub id: RuleId,
    /// Number of times that the rule was modified.
    pub revision: u32,
    /// The bridge of the rule.
    pub bridge: BridgeId,
    /// The table of the rule.
    pub table: TableId,
    /// The match of the rule.
    pub matching: Match,
    /// Priority of the rule.
    pub priority: Priority,
    /// The label that a controller has given the rule.
    pub cookie: Cookie,
    /// Time without a hit until the rule expires, as it was added; zero: never. Whole
    /// seconds.
    pub idle_timeout: Duration,
    /// Time until the rule expires, as it was added; zero: never. Whole seconds.
    pub hard_timeout: Duration,
    /// The importance: a full table evicts the least important rules first (OpenFlow
    /// 1.4).
    pub importance: u16,
    /// The flags of the flow-mod that added the rule.
    pub flags: FlowFlags,
    /// The instructions for packets that match.
    pub instructions: Arc<Instructions>,
    /// Time of the addition, or of the last modification.
    pub modified: Time,
    /// Time of the addition.
    pub created: Time,
    /// Counters, shared by all revisions since the last reset.
    pub stats: Arc<RuleStats>,
    /// The refreshes and lower timeouts that packets have caused.
    pub timers: SharedTimers,
}

impl Rule {
    /// Returns the position of the rule in the total order of its table.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        Rank { priority: self.priority, age: self.id.number() }
    }

    /// Returns the idle timeout of the flow-mod, or a lower one that a packet has set.
    #[must_use]
    pub fn idle_timeout_now(&self) -> Duration {
        self.timers.find().map_or(self.idle_timeout, |own| lower(self.idle_timeout, &own.idle_max))
    }

    /// Returns the hard timeout of the flow-mod, or a lower one that a packet has set.
    #[must_use]
    pub fn hard_timeout_now(&self) -> Duration {
        self.timers.find().map_or(self.hard_timeout, |own| lower(self.hard_timeout, &own.hard_max))
    }

    /// Returns the time at which the hard timeout started.
    #[must_use]
    pub fn refreshed(&self) -> Time {
        self.timers.find().map_or(self.modified, |timers| self.modified.max(timers.refreshed()))
    }

    /// Returns the refreshes and lower timeouts by packets, which all revisions share.
    #[must_use]
    pub fn timers(&self) -> &RuleTimers {
        self.timers.all()
    }
}

/// Returns the lower of a timeout and a bound in seconds.
/// Zero means that there is no timeout, or no bound.
fn lower(timeout: Duration, bound: &AtomicU32) -> Duration {
    let bound = Duration::from_secs(u64::from(bound.load(Ordering::Relaxed)));
    if timeout.is_zero() || !bound.is_zero() && bound < timeout { bound } else { timeout }
}

/// The flags of the flow-mod that added a rule (`ofp_flow_mod_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFlags {
    /// Notify controllers when the rule is removed (`OFPFF_SEND_FLOW_REM`).
    pub send_flow_removed: bool,
    /// Refuse the rule if it overlaps another of its priority (`OFPFF_CHECK_OVERLAP`).
    pub check_overlap: bool,
    /// Reset the counters when the rule is modified (`OFPFF_RESET_COUNTS`).
    pub reset_counts: bool,
    /// Packets need not be counted (`OFPFF_NO_PKT_COUNTS`); Shunt counts them anyway.
    pub no_packet_counts: bool,
    /// Bytes need not be counted (`OFPFF_NO_BYT_COUNTS`); Shunt counts them anyway.
    pub no_byte_counts: bool,
    /// A modify command sets the cookie, and adds a missing rule, as in OpenFlow 1.0.
    ///
    /// Installed rules never have this flag.
    pub modify_or_add: bool,
}

/// The instructions of a rule, in the order of execution (OpenFlow 1.3.5, 5.9).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// `meter`: pass this meter first.
    pub meter: Option<MeterId>,
    /// `apply_actions`: run now, in order.
    pub apply: Box<[Action]>,
    /// `clear_actions`: empty the action set.
    pub clear: bool,
    /// `write_actions`: merge into the action set.
    pub write: Box<[Action]>,
    /// The instruction `write_metadata`: value and mask.
    pub metadata: Option<(u64, u64)>,
    /// `goto_table`: continue in this table.
    pub goto: Option<TableId>,
}

impl Instructions {
    /// Returns the table that the instructions lead to, if they do nothing else.
    pub(crate) fn goto_only(&self) -> Option<TableId> {
        let Self { meter, apply, clear, write, metadata, goto } = self;
        let is_all =
            meter.is_none() && apply.is_empty() && !clear && write.is_empty() && metadata.is_none();
        goto.filter(|_| is_all)
    }
}

/// Counters of a rule, which its revisions share until a reset.
///
/// Packet threads count in their own memory and add the sums later. So a reset replaces the
/// counters: late hits of an earlier revision go to the counters of that revision.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// Number of packets; threads add their counts later.
    packets: AtomicU64,
    /// Number of bytes; threads add their counts later.
    bytes: AtomicU64,
    /// The time of the last hit.
    used: Used,
}

/// Time of the last packet, of all revisions.
///
/// A reset of the counters keeps this time, because the expiry of the rule depends on it.
#[derive(Debug)]
enum Used {
    /// The time is stored in these counters.
    Here(AtomicU64),
    /// The time is stored in the earlier counters, which these counters replaced.
    There(Arc<RuleStats>),
}

/// The timers of all revisions of a rule.
///
/// The timers are allocated at first use; most rules never need them.
#[derive(Debug, Default)]
pub struct SharedTimers(OnceLock<Arc<RuleTimers>>);

/// The refreshes and lower timeouts of a rule that packets have caused.
///
/// A `learn` that would add the rule again restarts its hard timeout. A TCP FIN or RST lowers both
/// timeouts (`fin_timeout`).
#[derive(Debug, Default)]
pub struct RuleTimers {
    /// Time at which the rule was last learned again, in nanoseconds.
    refreshed: AtomicU64,
    /// Upper bound of the idle timeout, in seconds; zero: none.
    idle_max: AtomicU32,
    /// Upper bound of the hard timeout, in seconds; zero: none.
    hard_max: AtomicU32,
}

impl SharedTimers {
    /// Returns the same timers, for a new revision of the rule.
    pub(crate) fn share(&self) -> Self {
        self.all();
        Self(self.0.clone())
    }

    /// Returns the timers of the rule; creates them if there are none.
    fn all(&self) -> &Arc<RuleTimers> {
        self.0.get_or_init(Arc::default)
    }

    /// Returns the timers of the rule, if they were created.
    fn find(&self) -> Option<&Arc<RuleTimers>> {
        self.0.get()
    }
}

impl Default for Used {
    fn default() -> Self {
        Self::Here(AtomicU64::default())
    }
}

impl RuleTimers {
    /// Restarts the hard timeout at `now`, unless it started later.
    pub fn refresh(&self, now: Time) {
        self.refreshed.fetch_max(now.nanoseconds(), Ordering::Relaxed);
    }

    /// Returns the time at which the rule was last learned again; zero if never.
    #[must_use]
    pub fn refreshed(&self) -> Time {
        Time::from_nanoseconds(self.refreshed.load(Ordering::Relaxed))
    }

    /// Lowers the timeouts to these numbers of seconds; zero keeps a timeout.
    ///
    /// Returns whether a bound changed.
    pub fn lower(&self, idle: u16, hard: u16) -> bool {
        let lower = |bound: &AtomicU32, to: u16| {
            let to = u32::from(to);
            let lowered = |now: u32| (to > 0 && (now == 0 || now > to)).then_some(to);
            bound.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lowered).is_ok()
        };
        lower(&self.idle_max, idle) | lower(&self.hard_max, hard)
    }
}

/// The counters of a rule at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTotals {
    /// Number of packets that matched.
    pub packets: u64,
    /// Number of bytes that matched, without the frame check sequence.
    pub bytes: u64,
    /// Time of the last packet; zero if there was none.
    pub used: Time,
}

impl RuleStats {
    /// Counts hits, the last of them at `used`.
    pub fn credit(&self, packets: u64, bytes: u64, used: Time) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used().fetch_max(used.nanoseconds(), Ordering::Relaxed);
    }

    /// Returns the packets and bytes that matched the rule until now.
    #[must_use]
    pub fn totals(&self) -> RuleTotals {
        RuleTotals {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: Time::from_nanoseconds(self.used().load(Ordering::Relaxed)),
        }
    }

    /// Returns the time of the last use, which parts of a rule share.
    fn used(&self) -> &AtomicU64 {
        match &self.used {
            Used::Here(used) => used,
            Used::There(first) => first.used(),
        }
    }

    /// Returns new counters at zero, which share the time of the last hit with `self`.
    #[must_use]
    pub(crate) fn renewed(self: &Arc<Self>) -> Self {
        let first = match &self.used {
            Used::Here(_) => self,
            Used::There(first) => first,
        };
        Self { used: Used::There(Arc::clone(first)), ..Self::default() }
    }
}
