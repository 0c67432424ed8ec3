//! What numbered packets say of a switch: pure functions of what was sent and where it came out.

use std::time::Duration;

use super::probe::{Arrival, Way};

/// How long after the last packet of the old way the new one must have been seen alone.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

/// What came out of a switch whose rule changed again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Packets that were sent after some reply.
    pub(crate) judged: u64,
    /// Of these, those that left by a rule that was replaced before the last reply, or by a way that
    /// their rule does not have.
    pub(crate) violations: u64,
    /// The longest time from a reply to the sending of a packet that left by what it had replaced.
    pub(crate) latest: Duration,
}

/// Which packets went by a rule that they should not have met.
///
/// Rule `n` labels packets with `n` and has way A if `n` is even, else B; `confirmed[n]` is when the reply
/// was there that confirmed rule `n`, since the traffic began. A packet that was sent after it leaves by
/// rule `n` or a later one, which may come while the packet is on its way. A packet says when it was made,
/// which is before it is sent.
pub(crate) fn judge(confirmed: &[Duration], arrivals: &[Arrival]) -> Judgement {
    let mut judgement = Judgement::default();
    for arrival in arrivals {
        let due = confirmed.partition_point(|at| *at <= arrival.sent);
        let Some(due) = due.checked_sub(1) else { continue };
        judgement.judged += 1;
        let label = arrival.label as usize;
        let way = if label.is_multiple_of(2) { Way::A } else { Way::B };
        if label >= due && way == arrival.way {
            continue;
        }
        judgement.violations += 1;
        // Since that reply the rule that it left by was gone.
        let since = confirmed.get(label + 1).copied().unwrap_or(arrival.sent);
        judgement.latest = judgement.latest.max(arrival.sent.saturating_sub(since));
    }
    judgement
}

/// From a change until no packet that was sent later left by the old way; `None` while it is not
/// known, as the last that did is not long enough ago.
///
/// It is the time at which the first packet was sent after the last of the old way, and after the
/// change: never less than it was.
pub(crate) fn until_new(changed: Duration, new: Way, arrivals: &[Arrival]) -> Option<Duration> {
    let old = arrivals.iter().filter(|arrival| arrival.way != new);
    let last_old = old.max_by_key(|arrival| arrival.number);
    let is_later = |arrival: &&Arrival| last_old.is_none_or(|old| arrival.number > old.number);
    let later = || arrivals.iter().filter(|arrival| arrival.way == new).filter(is_later);
    let first = later().map(|arrival| arrival.sent).filter(|sent| *sent >= changed).min()?;
    let last = later().map(|arrival| arrival.sent).max()?;
    let since = last_old.map_or(changed, |old| old.sent.max(changed));
    (last >= since + QUIET).then(|| first.saturating_sub(changed))
}

/// A dip in what is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Dip {
    /// A bucket before the change, on average.
    pub(crate) before: f64,
    /// How far the worst bucket after it is below, in percent.
    pub(crate) depth: f64,
    /// Buckets from the change until it is over.
    pub(crate) length: usize,
    /// Packets that are missing, in buckets of those before.
    pub(crate) missing: f64,
}

/// A bucket that is less far below those before is not in the dip, in percent.
const WITHIN: f64 = 10.0;
/// So many buckets in a row that are not in the dip end it.
const OVER: usize = 5;

/// The dip after a change, from what was forwarded in buckets of equal time, of which the first
/// `before` are those before it.
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

    /// Packet `number`, sent at as many microseconds, out by rule `label`.
    fn by_rule(number: u64, label: u32) -> Arrival {
        let way = if label.is_multiple_of(2) { Way::A } else { Way::B };
        Arrival { number, sent: Duration::from_micros(number), way, label }
    }

    /// Rules 0 to 2, confirmed before packets 0, 100 and 200.
    fn rules() -> [Duration; 3] {
        [0, 100, 200].map(Duration::from_micros)
    }

    #[test]
    fn a_switch_that_keeps_its_word_has_no_violations() {
        // Rule 1 is in force from packet 90 on, before it is confirmed, and rule 2 from 185 on.
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
    fn a_stale_switch_is_caught_by_as_many_packets_as_it_was_stale_for() {
        // It goes on by rule 0 for 30 packets after rule 1 was confirmed.
        let arrivals: Vec<_> =
            (0..200).map(|number| by_rule(number, (number >= 130).into())).collect();
        let judgement = judge(&rules(), &arrivals);
        assert_eq!((judgement.judged, judgement.violations), (200, 30));
        assert_eq!(judgement.latest, Duration::from_micros(29));
    }

    #[test]
    fn an_entry_that_was_made_two_rules_ago_is_stale_though_its_way_is_that_of_now() {
        let stale = by_rule(250, 0);
        assert_eq!(stale.way, by_rule(250, 2).way);
        let judgement = judge(&rules(), &[stale, by_rule(251, 2)]);
        assert_eq!((judgement.judged, judgement.violations), (2, 1));
        assert_eq!(judgement.latest, Duration::from_micros(150), "since rule 1 was confirmed");
    }

    #[test]
    fn a_packet_that_leaves_where_its_rule_does_not_lead_is_a_violation() {
        let astray = Arrival { way: Way::B, ..by_rule(10, 0) };
        assert_eq!(judge(&rules(), &[astray]).violations, 1);
    }

    #[test]
    fn what_was_sent_before_any_reply_is_not_judged() {
        let late = [Duration::from_micros(50)];
        assert_eq!(judge(&late, &[by_rule(49, 0)]), Judgement::default());
        assert_eq!(judge(&late, &[by_rule(50, 0)]).judged, 1);
    }

    #[test]
    fn the_new_rule_is_in_force_with_the_first_packet_after_the_last_by_the_old() {
        let changed = Duration::from_millis(10);
        let arrival = |number: u64, way| Arrival {
            number,
            sent: Duration::from_millis(number),
            way,
            label: 0,
        };
        let mut arrivals: Vec<_> = (0..30).map(|number| arrival(number, Way::A)).collect();
        assert_eq!(until_new(changed, Way::B, &arrivals), None);
        // Packets swap on the way: 25 went by the new one before 29 by the old.
        arrivals[25].way = Way::B;
        arrivals.extend((30..100).map(|number| arrival(number, Way::B)));
        assert_eq!(until_new(changed, Way::B, &arrivals), None, "it is too early to know");
        arrivals.extend((100..140).map(|number| arrival(number, Way::B)));
        assert_eq!(until_new(changed, Way::B, &arrivals), Some(Duration::from_millis(20)));
        let at_once: Vec<_> = (5..200).map(|number| arrival(number, Way::B)).collect();
        assert_eq!(until_new(changed, Way::B, &at_once), Some(Duration::ZERO), "sent at that time");
        let half = changed + Duration::from_micros(500);
        let next = Some(Duration::from_micros(500));
        assert_eq!(until_new(half, Way::B, &at_once), next, "those before it do not count");
    }

    #[test]
    fn a_dip_is_as_deep_as_its_worst_bucket_and_as_long_as_until_five_are_well() {
        let mut buckets = vec![100.0; 40];
        assert_eq!(dip(&buckets, 10).length, 0);
        buckets[10] = 50.0;
        buckets[11] = 0.0;
        buckets[14] = 75.0;
        // Noise, long after it.
        buckets[30] = 60.0;
        let found = dip(&buckets, 10);
        assert_eq!((found.before, found.depth, found.length), (100.0, 100.0, 5));
        assert!((found.missing - 1.75).abs() < 1e-9, "{found:?}");
        assert_eq!(dip(&[], 10), Dip::default());
    }
}
