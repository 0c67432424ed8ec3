//! The log lines of LACP: a limited number for each member, and one line for the others.
//!
//! A partner decides how often a member changes. A broken one must not fill the log.

use std::{collections::BTreeMap, time::Duration};

use shunt_lacp::LacpEvent;
use shunt_pipeline::Time;

/// The lines of all members in their present periods.
#[derive(Debug, Default)]
pub(crate) struct LacpLog {
    /// By bond and member.
    members: BTreeMap<(String, String), LoggedMember>,
}

/// The lines of one member since the first of its period.
#[derive(Debug)]
struct LoggedMember {
    end: Time,
    lines: u32,
    /// The number of changes without a line, and the last of them.
    left_out: Option<(u64, LacpEvent)>,
}

/// Lines of a member in a period. A negotiation has six.
const LINES_MAX: u32 = 40;

/// Length of a period.
const PERIOD: Duration = Duration::from_secs(60);

impl LacpLog {
    /// Returns the line of a change.
    ///
    /// `None` if the member has had all lines of its period.
    pub(crate) fn line(
        &mut self,
        bond: &str,
        member: &str,
        event: LacpEvent,
        now: Time,
    ) -> Option<String> {
        let own = self.members.entry((bond.to_owned(), member.to_owned()));
        let end = now.after(PERIOD);
        let own = own.or_insert(LoggedMember { end, lines: 0, left_out: None });
        if own.lines >= LINES_MAX {
            let count = own.left_out.map_or(0, |(count, _)| count);
            own.left_out = Some((count.saturating_add(1), event));
            return None;
        }
        own.lines += 1;
        Some(format!("bond {bond}: member {member}: LACP {event}"))
    }

    /// Ends the periods that are over.
    ///
    /// Returns a line for each member with changes that had none.
    pub(crate) fn summaries(&mut self, now: Time) -> Vec<String> {
        let ended = self.members.extract_if(.., |_, own| own.end <= now);
        let line = |((bond, member), own): ((String, String), LoggedMember)| {
            let (count, last) = own.left_out?;
            let changes = if count == 1 { "change" } else { "changes" };
            let seconds = PERIOD.as_secs();
            Some(format!(
                "bond {bond}: member {member}: LACP {last} after {count} more {changes} in {seconds} s"
            ))
        };
        ended.filter_map(line).collect()
    }

    /// Returns the time of the next summary.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let waiting = self.members.values().filter(|own| own.left_out.is_some());
        waiting.map(|own| own.end).min()
    }
}

#[cfg(test)]
mod tests {
    use shunt_lacp::{MemberId, MuxState, ReceiveState};

    use super::*;

    fn event(mux: MuxState) -> LacpEvent {
        LacpEvent { member: MemberId(1), receive: ReceiveState::Current, mux, partner: None }
    }

    #[test]
    fn further_changes_of_a_member_have_one_line() {
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        let mut log = LacpLog::default();
        let waiting = event(MuxState::Waiting);
        for second in 0..30 {
            for _change in 0..10 {
                log.line("b", "p1", waiting, at(second));
            }
        }
        let line = log.line("b", "p2", waiting, at(30));
        assert_eq!(line.as_deref(), Some("bond b: member p2: LACP current waiting"));
        assert_eq!(log.line("b", "p1", event(MuxState::Attached), at(30)), None);
        assert_eq!((log.deadline(), log.summaries(at(59))), (Some(at(60)), Vec::new()));
        let summary = "bond b: member p1: LACP current attached after 261 more changes in 60 s";
        assert_eq!(log.summaries(at(60)), [summary]);
        assert_eq!(log.deadline(), None, "p2 has had its only line");
        assert!(log.line("b", "p1", waiting, at(61)).is_some(), "a new period");
        assert_eq!(log.summaries(at(1000)), [""; 0]);
        assert!(log.members.is_empty());
    }
}
