//! The log lines of changes: a limited number for each owner, and one line for the others.
//!
//! A partner decides how often a member of a bond, or a BFD session, changes. A broken one must not fill
//! the log.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use shunt_pipeline::Time;

/// The lines of all owners of changes in their present periods.
///
/// An owner is the beginning of its lines, such as `port p1: BFD`.
#[derive(Debug)]
pub(crate) struct ChangeLog<E> {
    owners: BTreeMap<String, LoggedOwner<E>>,
}

/// The lines of one owner since the first of its period.
#[derive(Debug)]
struct LoggedOwner<E> {
    end: Time,
    lines: u32,
    /// The number of changes without a line, and the last of them.
    left_out: Option<(u64, E)>,
}

/// Lines of an owner in a period. A negotiation has six.
const LINES_MAX: u32 = 40;

/// Length of a period.
const PERIOD: Duration = Duration::from_secs(60);

impl<E> Default for ChangeLog<E> {
    fn default() -> Self {
        Self { owners: BTreeMap::new() }
    }
}

impl<E: Display> ChangeLog<E> {
    /// Returns the line of a change.
    ///
    /// `None` if the owner has had all lines of its period.
    pub(crate) fn line(&mut self, owner: &str, event: E, now: Time) -> Option<String> {
        let own = self.owners.entry(owner.to_owned());
        let end = now.after(PERIOD);
        let own = own.or_insert(LoggedOwner { end, lines: 0, left_out: None });
        if own.lines >= LINES_MAX {
            let count = own.left_out.as_ref().map_or(0, |(count, _)| *count);
            own.left_out = Some((count.saturating_add(1), event));
            return None;
        }
        own.lines += 1;
        Some(format!("{owner} {event}"))
    }

    /// Ends the periods that are over.
    ///
    /// Returns a line for each owner with changes that had none.
    pub(crate) fn summaries(&mut self, now: Time) -> Vec<String> {
        let ended = self.owners.extract_if(.., |_, own| own.end <= now);
        let line = |(owner, own): (String, LoggedOwner<E>)| {
            let (count, last) = own.left_out?;
            let changes = if count == 1 { "change" } else { "changes" };
            let seconds = PERIOD.as_secs();
            Some(format!("{owner} {last} after {count} more {changes} in {seconds} s"))
        };
        ended.filter_map(line).collect()
    }

    /// Returns the time of the next summary.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let waiting = self.owners.values().filter(|own| own.left_out.is_some());
        waiting.map(|own| own.end).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_changes_of_an_owner_have_one_line() {
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
        assert_eq!((log.deadline(), log.summaries(at(59))), (Some(at(60)), Vec::new()));
        let summary = "bond b: member p1: LACP current attached after 261 more changes in 60 s";
        assert_eq!(log.summaries(at(60)), [summary]);
        assert_eq!(log.deadline(), None, "p2 has had its only line");
        assert!(log.line(&member("p1"), "current waiting", at(61)).is_some(), "a new period");
        assert_eq!(log.summaries(at(1000)), [""; 0]);
        assert!(log.owners.is_empty());
    }
}
