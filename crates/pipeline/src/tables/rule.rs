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
    /// Time without a hit after which it goes, as it was added; zero: never. Whole seconds.
    pub idle_timeout: Duration,
    /// Time after which it goes, as it was added; zero: never. Whole seconds.
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
    /// Counters, shared by all revisions since they were last reset.
    pub stats: Arc<RuleStats>,
    /// What packets have done to its timeouts.
    pub timers: SharedTimers,
}

impl Rule {
    /// Its place in the total order of its table.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        Rank { priority: self.priority, age: self.id.number() }
    }

    /// Its idle timeout now: that of the flow-mod, or less if a packet has lowered it.
    #[must_use]
    pub fn idle_timeout_now(&self) -> Duration {
        self.timers.find().map_or(self.idle_timeout, |own| lower(self.idle_timeout, &own.idle_max))
    }

    /// Its hard timeout now, as [`Self::idle_timeout_now`].
    #[must_use]
    pub fn hard_timeout_now(&self) -> Duration {
        self.timers.find().map_or(self.hard_timeout, |own| lower(self.hard_timeout, &own.hard_max))
    }

    /// The moment at which its hard timeout began.
    #[must_use]
    pub fn refreshed(&self) -> Time {
        self.timers.find().map_or(self.modified, |timers| self.modified.max(timers.refreshed()))
    }

    /// What packets have done to its timeouts, shared by all revisions.
    #[must_use]
    pub fn timers(&self) -> &RuleTimers {
        self.timers.all()
    }
}

/// The lesser of a timeout and a bound in seconds; zero is neither.
fn lower(timeout: Duration, bound: &AtomicU32) -> Duration {
    let bound = Duration::from_secs(u64::from(bound.load(Ordering::Relaxed)));
    if timeout.is_zero() || !bound.is_zero() && bound < timeout { bound } else { timeout }
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
    /// `meter`: pass this meter first.
    pub meter: Option<MeterId>,
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

impl Instructions {
    /// The table that they lead to, if they do nothing else.
    pub(crate) fn leads_only(&self) -> Option<TableId> {
        let Self { meter, apply, clear, write, metadata, goto } = self;
        let is_all =
            meter.is_none() && apply.is_empty() && !clear && write.is_empty() && metadata.is_none();
        goto.filter(|_| is_all)
    }
}

/// Counters of a rule, of all its revisions.
///
/// Packet threads add to them when they hand in their counts, never per packet. So counters are not
/// set back but replaced: what was counted by a revision before the reset is handed in to the
/// counters of that revision, however late.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: Used,
}

/// When the last packet came, of all revisions, whatever was reset: it decides when the rule
/// expires.
#[derive(Debug)]
enum Used {
    /// It is noted here.
    Here(AtomicU64),
    /// It is noted in the counters that these took the place of.
    There(Arc<RuleStats>),
}

/// The timers of all revisions of a rule: made when they are first needed, which for most rules is
/// never.
#[derive(Debug, Default)]
pub struct SharedTimers(OnceLock<Arc<RuleTimers>>);

/// What packets have done to the timeouts of a rule: a `learn` that would add it again begins its
/// hard timeout anew, a TCP FIN or RST lowers both (`fin_timeout`).
#[derive(Debug, Default)]
pub struct RuleTimers {
    /// When it was learned again last, in nanoseconds.
    refreshed: AtomicU64,
    /// Bound of the idle timeout, in seconds; zero: none.
    idle_max: AtomicU32,
    /// Bound of the hard timeout, in seconds; zero: none.
    hard_max: AtomicU32,
}

impl SharedTimers {
    /// The same, for another revision.
    pub(crate) fn share(&self) -> Self {
        self.all();
        Self(self.0.clone())
    }

    fn all(&self) -> &Arc<RuleTimers> {
        self.0.get_or_init(Arc::default)
    }

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
    /// The hard timeout begins anew at `now`, if it did not begin later.
    pub fn refresh(&self, now: Time) {
        self.refreshed.fetch_max(now.nanoseconds(), Ordering::Relaxed);
    }

    /// When it was learned again last; the beginning of time if never.
    #[must_use]
    pub fn refreshed(&self) -> Time {
        Time::from_nanoseconds(self.refreshed.load(Ordering::Relaxed))
    }

    /// Lowers the timeouts to these numbers of seconds, where they are not lower; zero: leaves one
    /// as it is. Answers whether a bound changed.
    pub fn lower(&self, idle: u16, hard: u16) -> bool {
        let lower = |bound: &AtomicU32, to: u16| {
            let to = u32::from(to);
            let lowered = |now: u32| (to > 0 && (now == 0 || now > to)).then_some(to);
            bound.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lowered).is_ok()
        };
        lower(&self.idle_max, idle) | lower(&self.hard_max, hard)
    }
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
        self.used().fetch_max(used.nanoseconds(), Ordering::Relaxed);
    }

    /// What has been counted so far.
    #[must_use]
    pub fn totals(&self) -> RuleTotals {
        RuleTotals {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: Time::from_nanoseconds(self.used().load(Ordering::Relaxed)),
        }
    }

    fn used(&self) -> &AtomicU64 {
        match &self.used {
            Used::Here(used) => used,
            Used::There(first) => first.used(),
        }
    }

    /// Counters that begin anew; the time of the last hit stays common to both.
    #[must_use]
    pub(crate) fn renewed(self: &Arc<Self>) -> Self {
        let first = match &self.used {
            Used::Here(_) => self,
            Used::There(first) => first,
        };
        Self { used: Used::There(Arc::clone(first)), ..Self::default() }
    }
}
