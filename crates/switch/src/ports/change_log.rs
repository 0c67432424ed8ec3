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
    owners: BTreeMap<String, LoggedOwner<E>>,
}

/// The lines of one owner since the start of its period.
#[derive(Debug)]
struct LoggedOwner<E> {
    end: Time,
    lines: u32,
    /// The number of changes without a line, and the last of these changes.
    left_out: Option<(u64, E)>,
}

/// Maximum number of lines of an owner in a period; a negotiation has six lines.
const LINES_MAX: u32 = 40;

/// Length of a period, which starts with the first line of an owner.
const PERIOD: Duration = Duration::from_secs(60);

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
            let count = own.left_out.as_ref().map_or(0, |(count, _)| *count);
            own.left_out = Some((count.saturating_add(1), event));
            return None;
        }
        own.lines += 1;
        Some(format!("{owner} {event}"))
    }

    /// Ends the periods that have passed.
    ///
    /// Returns a summary line for each owner that has changes without a line.
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

    /// Returns the time at which the next summary is due.
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
