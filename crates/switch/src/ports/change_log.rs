//! Log lines of changes, limited per owner: further changes are summarised in one line.
//!
//! A partner at the other end of a link decides how often a bond member or a BFD session changes. A
//! faulty partner must not fill the log.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use shunt_pipeline::Time;

/// The number of lines of each owner in its present period.
///
/// An owner is the text with which its lines begin, such as `port p1: BFD`.
#[derive(Debug)]
pub(crate) struct ChangeLog<E> {
    /// The logged lines of each owner, such as a bond.
    owners: BTreeMap<String, LoggedOwner<E>>,
}

/// The lines of one owner since the start of its period.
#[derive(Debug)]
struct LoggedOwner<E> {
    /// End of the period.
    end: Time,
    /// Number of lines in the period.
    lines: u32,
    /// The changes without a line, after the last allowed line.
    left_out: Option<UnloggedChanges<E>>,
}

/// The changes of one owner that have no log line yet.
#[derive(Debug)]
struct UnloggedChanges<E> {
    /// Number of changes without a log line.
    count: u64,
    /// The last of the changes.
    last: E,
    /// Times of the first and of the last of these changes.
    times: (Time, Time),
}

/// Maximum number of lines of an owner in a period; a negotiation has six lines.
const LINES_MAX: u32 = 40;

/// Length of a period, which starts with the first line of an owner.
const PERIOD: Duration = Duration::from_secs(60);

/// Time without a further change after which the last change is logged.
///
/// So the log soon ends with the present state of the owner.
const QUIET: Duration = Duration::from_secs(3);

impl<E> Default for ChangeLog<E> {
    fn default() -> Self {
        Self { owners: BTreeMap::new() }
    }
}

impl<E: Display> ChangeLog<E> {
    /// Returns the log line of a change.
    ///
    /// `None` if the owner already has the maximum number of lines.
    pub(crate) fn line(&mut self, owner: &str, event: E, now: Time) -> Option<String> {
        let own = self.owners.entry(owner.to_owned());
        let end = now.after(PERIOD);
        let own = own.or_insert(LoggedOwner { end, lines: 0, left_out: None });
        if own.lines >= LINES_MAX {
            let before = own.left_out.take();
            let (count, start) = before.map_or((0, now), |own| (own.count, own.times.0));
            let count = count.saturating_add(1);
            own.left_out = Some(UnloggedChanges { count, last: event, times: (start, now) });
            return None;
        }
        own.lines += 1;
        Some(format!("{owner} {event}"))
    }

    /// Returns a summary line for each owner with changes that were not logged.
    ///
    /// A summary is due at the end of the period, or when no further change came for some seconds.
    /// The function also ends the periods that have passed.
    pub(crate) fn summaries(&mut self, now: Time) -> Vec<String> {
        let mut lines = Vec::new();
        for (owner, own) in &mut self.owners {
            let is_due = own.summary_due().is_some_and(|due| due <= now);
            if let Some(left_out) = own.left_out.take_if(|_| is_due) {
                lines.push(left_out.summary(owner));
            }
        }
        self.owners.retain(|_, own| own.end > now);
        lines
    }

    /// Returns the time at which the next summary is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.owners.values().filter_map(LoggedOwner::summary_due).min()
    }
}

impl<E> LoggedOwner<E> {
    /// Returns the time at which the summary of the changes without a line is due.
    fn summary_due(&self) -> Option<Time> {
        let (_, last) = self.left_out.as_ref()?.times;
        Some(self.end.min(last.after(QUIET)))
    }
}

impl<E: Display> UnloggedChanges<E> {
    /// Returns a log line about the changes that were not logged.
    fn summary(&self, owner: &str) -> String {
        let Self { count, last, times: (start, end) } = self;
        let changes = if *count == 1 { "change" } else { "changes" };
        let seconds = end.since(*start).as_secs().max(1);
        format!("{owner} {last} after {count} more {changes} in {seconds} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_changes_share_one_log_line() {
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        let mut log = ChangeLog::default();
        let member = |name: &str| format!("bond b: member {name}: LACP");
        for second in 0..30 {
            for _change in 0..10 {
                log.line(&member("p1"), "current waiting", at(second));
            }
        }
        let line = log.line(&member("p2"), "current waiting", at(30));
        assert_eq!(line.as_deref(), Some("bond b: member p2: LACP current waiting"));
        assert_eq!(log.line(&member("p1"), "current attached", at(30)), None);
        assert_eq!((log.deadline(), log.summaries(at(32))), (Some(at(33)), Vec::new()));
        // The 40 permitted lines were used up in second 3.
        let summary = "bond b: member p1: LACP current attached after 261 more changes in 26 s";
        assert_eq!(log.summaries(at(33)), [summary]);
        assert_eq!(log.deadline(), None, "p2 has had its only line");
        // The period continues: there are no further lines, and a summary at its end.
        for second in [40, 42, 58] {
            assert_eq!(log.line(&member("p1"), "current waiting", at(second)), None);
            assert_eq!(log.summaries(at(second)), [""; 0]);
        }
        assert_eq!(log.deadline(), Some(at(60)));
        let summary = "bond b: member p1: LACP current waiting after 3 more changes in 18 s";
        assert_eq!(log.summaries(at(60)), [summary]);
        assert!(log.line(&member("p1"), "current waiting", at(61)).is_some(), "a new period");
        assert_eq!(log.summaries(at(1000)), [""; 0]);
        assert!(log.owners.is_empty());
    }
}
