//! Evaluation of numbered packets: pure functions of the sent packets and their output ports.

use std::time::Duration;

use super::probe::{Arrival, Exit};

/// Quiet time of the old exit after which the new rule counts as in force.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// Evaluation of a switch with a continuously changing rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Packets sent after a reply.
    pub(crate) judged: u64,
    /// Judged packets that followed a replaced rule, or left by a wrong exit.
    pub(crate) violations: u64,
    /// Longest time from a reply to the sending of a packet of the replaced rule.
    pub(crate) latest: Duration,
}

/// Returns the packets that followed a replaced rule.
///
/// Rule `n` writes the label `n`, and has exit A if `n` is even, else B. `confirmed[n]` is the time
/// of the reply that confirmed rule `n`, relative to the start of the traffic. A packet sent after
/// this reply must follow rule `n` or a later rule, which may be added while the packet is in
/// flight. A packet contains its creation time, which is before its sending time.
pub(crate) fn judge(confirmed: &[Duration], arrivals: &[Arrival]) -> Judgement {
    let mut judgement = Judgement::default();
    for arrival in arrivals {
        let due = confirmed.partition_point(|at| *at <= arrival.sent);
        let Some(due) = due.checked_sub(1) else { continue };
        judgement.judged += 1;
        let label = arrival.label as usize;
        let exit = if label.is_multiple_of(2) { Exit::A } else { Exit::B };
        if label >= due && exit == arrival.exit {
            continue;
        }
        judgement.violations += 1;
        // The next rule replaced the rule of the packet when the reply arrived.
        let since = confirmed.get(label + 1).copied().unwrap_or(arrival.sent);
        judgement.latest = judgement.latest.max(arrival.sent.saturating_sub(since));
    }
    judgement
}

/// Returns the time from a change until no later packet left through the old exit.
///
/// The result is `None` until enough time has passed since the last such packet. The result is the
/// sending time of the first packet after the change and after the last packet at the old exit. So
/// the result is never too small.
pub(crate) fn until_new(changed: Duration, new: Exit, arrivals: &[Arrival]) -> Option<Duration> {
    let old = arrivals.iter().filter(|arrival| arrival.exit != new);
    let last_old = old.max_by_key(|arrival| arrival.number);
    let is_later = |arrival: &&Arrival| last_old.is_none_or(|old| arrival.number > old.number);
    let later = || arrivals.iter().filter(|arrival| arrival.exit == new).filter(is_later);
    let first = later().map(|arrival| arrival.sent).filter(|sent| *sent >= changed).min()?;
    let last = later().map(|arrival| arrival.sent).max()?;
    let since = last_old.map_or(changed, |old| old.sent.max(changed));
    (last >= since + QUIET).then(|| first.saturating_sub(changed))
}

/// A dip in the forwarding rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Dip {
    /// Average of a bucket before the change.
    pub(crate) before: f64,
    /// Depth of the worst bucket below that average, in percent.
    pub(crate) depth: f64,
    /// Number of buckets from the change to the end of the dip.
    pub(crate) length: usize,
    /// Missing packets, in average buckets before the change.
    pub(crate) missing: f64,
}

/// A bucket that is less far below the average is outside the dip, in percent.
const WITHIN: f64 = 10.0;
/// Number of consecutive buckets outside the dip that end the dip.
const OVER: usize = 5;

/// Returns the dip after a change from buckets of equal time.
///
/// The first `before` buckets precede the change.
pub(crate) fn dip(buckets: &[f64], before: usize) -> Dip {
    let (earlier, later) = buckets.split_at(before.min(buckets.len()));
    let mean = earlier.iter().sum::<f64>() / earlier.len().max(1) as f64;
    if mean <= 0.0 {
        return Dip::default();
    }
    let below = |count: &f64| 100.0 * (1.0 - count / mean);
    let is_within = |count: &f64| below(count) <= WITHIN;
    let ends = later.windows(OVER).position(|row| row.iter().all(is_within));
    let length = ends.unwrap_or(later.len());
    let inside = &later[..length];
    Dip {
        before: mean,
        depth: inside.iter().map(below).fold(0.0, f64::max),
        length,
        missing: inside.iter().map(|count| 1.0 - count / mean).sum::<f64>().max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns packet `number`, sent at microsecond `number`,
    /// which followed rule `label`.
    fn by_rule(number: u64, label: u32) -> Arrival {
        let exit = if label.is_multiple_of(2) { Exit::A } else { Exit::B };
        Arrival { number, sent: Duration::from_micros(number), exit, label }
    }

    /// Returns rules 0 to 2, confirmed before packets 0, 100 and 200.
    fn rules() -> [Duration; 3] {
        [0, 100, 200].map(Duration::from_micros)
    }

    #[test]
    fn a_correct_switch_has_no_violations() {
        // Rule 1 is in force from packet 90, before it is confirmed, and rule 2 from packet 185.
        let arrivals: Vec<_> =
            (0..300).map(|number| by_rule(number, (number >= 90).into())).collect();
        let arrivals: Vec<_> = arrivals
            .into_iter()
            .map(|one| if one.number >= 185 { by_rule(one.number, 2) } else { one })
            .collect();
        let judgement = judge(&rules(), &arrivals);
        assert_eq!((judgement.judged, judgement.violations), (300, 0));
    }

    #[test]
    fn each_stale_packet_is_a_violation() {
        // The switch follows rule 0 for 30 packets after rule 1 was confirmed.
        let arrivals: Vec<_> =
            (0..200).map(|number| by_rule(number, (number >= 130).into())).collect();
        let judgement = judge(&rules(), &arrivals);
        assert_eq!((judgement.judged, judgement.violations), (200, 30));
        assert_eq!(judgement.latest, Duration::from_micros(29));
    }

    /// The rule before last has the same output as the current one, but another label.
    #[test]
    fn packet_of_rule_before_last_is_violation() {
        let stale = by_rule(250, 0);
        assert_eq!(stale.exit, by_rule(250, 2).exit);
        let judgement = judge(&rules(), &[stale, by_rule(251, 2)]);
        assert_eq!((judgement.judged, judgement.violations), (2, 1));
        assert_eq!(judgement.latest, Duration::from_micros(150), "since rule 1 was confirmed");
    }

    #[test]
    fn packet_at_wrong_output_is_violation() {
        let astray = Arrival { exit: Exit::B, ..by_rule(10, 0) };
        assert_eq!(judge(&rules(), &[astray]).violations, 1);
    }

    #[test]
    fn packets_before_the_first_reply_are_not_checked() {
        let late = [Duration::from_micros(50)];
        assert_eq!(judge(&late, &[by_rule(49, 0)]), Judgement::default());
        assert_eq!(judge(&late, &[by_rule(50, 0)]).judged, 1);
    }

    /// A reordered packet that followed the new rule early does not count as the start.
    #[test]
    fn new_rule_starts_after_last_old_packet() {
        let changed = Duration::from_millis(10);
        let arrival = |number: u64, exit| Arrival {
            number,
            sent: Duration::from_millis(number),
            exit,
            label: 0,
        };
        let mut arrivals: Vec<_> = (0..30).map(|number| arrival(number, Exit::A)).collect();
        assert_eq!(until_new(changed, Exit::B, &arrivals), None);
        // Packets are reordered: packet 25 followed the new rule before packet 29 followed the old
        // rule.
        arrivals[25].exit = Exit::B;
        arrivals.extend((30..100).map(|number| arrival(number, Exit::B)));
        assert_eq!(
            until_new(changed, Exit::B, &arrivals),
            None,
            "packets by the old rule may still arrive"
        );
        arrivals.extend((100..140).map(|number| arrival(number, Exit::B)));
        assert_eq!(until_new(changed, Exit::B, &arrivals), Some(Duration::from_millis(20)));
        let at_once: Vec<_> = (5..200).map(|number| arrival(number, Exit::B)).collect();
        assert_eq!(
            until_new(changed, Exit::B, &at_once),
            Some(Duration::ZERO),
            "sent at that time"
        );
        let half = changed + Duration::from_micros(500);
        let next = Some(Duration::from_micros(500));
        assert_eq!(
            until_new(half, Exit::B, &at_once),
            next,
            "packets before the change do not \
                                         count"
        );
    }

    #[test]
    fn a_throughput_dip_ends_after_five_normal_buckets() {
        let mut buckets = vec![100.0; 40];
        assert_eq!(dip(&buckets, 10).length, 0);
        buckets[10] = 50.0;
        buckets[11] = 0.0;
        buckets[14] = 75.0;
        // Noise, long after the dip.
        buckets[30] = 60.0;
        let found = dip(&buckets, 10);
        assert_eq!((found.before, found.depth, found.length), (100.0, 100.0, 5));
        assert!((found.missing - 1.75).abs() < 1e-9, "{found:?}");
        assert_eq!(dip(&[], 10), Dip::default());
    }
}
