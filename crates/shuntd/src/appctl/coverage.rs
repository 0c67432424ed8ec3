//! Event counters, with the names of Open vSwitch for events that both switches count.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use shunt_datapath::DropReason;
use shunt_switch::{LearnedTableTotals, Switch};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "coverage/read-counter" "COUNTER", 1..=1, Read, read_counter, "Show the total of one counter";
    "coverage/show" "", 0..=0, Read, show,
        "Show all counters that are not zero: packets, cache entries, and drops by reason";
}

/// Time between two samples of the counters.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// Number of samples in a minute.
const SAMPLES: usize = 12;

/// Number of minutes in an hour.
const MINUTES: usize = 60;

/// Counter values by counter name.
type CounterTotals = BTreeMap<String, u64>;

/// Samples of the counters in the last hour, for rates.
#[derive(Default)]
pub(super) struct CoverageHistory(Mutex<CoverageSamples>);

/// The recent samples of the counters, to compute rates.
#[derive(Default)]
struct CoverageSamples {
    /// Samples of the last minute, oldest first.
    recent: VecDeque<CounterTotals>,
    /// Every twelfth sample of the last hour, oldest first.
    minutes: VecDeque<CounterTotals>,
    /// Number of samples taken so far.
    taken: usize,
}

impl CoverageSamples {
    /// Adds a sample of the counters; the oldest one leaves.
    fn add(&mut self, totals: CounterTotals) {
        if self.taken.is_multiple_of(SAMPLES) {
            push(&mut self.minutes, totals.clone(), MINUTES + 1);
        }
        push(&mut self.recent, totals, SAMPLES + 1);
        self.taken += 1;
    }

    /// Returns the increase of a counter in the last 5 seconds, minute and hour.
    ///
    /// As in Open vSwitch, a counter is zero before the start of the daemon.
    fn increases(&self, name: &str) -> [u64; 3] {
        let of = |sample: Option<&CounterTotals>| {
            sample.and_then(|totals| totals.get(name)).copied().unwrap_or_default()
        };
        let newest = of(self.recent.back());
        let before = self.recent.len().checked_sub(2).and_then(|index| self.recent.get(index));
        let minute = self.recent.front().filter(|_| self.recent.len() > SAMPLES);
        let hour = self.minutes.front().filter(|_| self.minutes.len() > MINUTES);
        [before, minute, hour].map(|sample| newest.saturating_sub(of(sample)))
    }
}

/// Appends a sample, and removes the oldest beyond `max`.
fn push(samples: &mut VecDeque<CounterTotals>, totals: CounterTotals, max: usize) {
    samples.push_back(totals);
    if samples.len() > max {
        samples.pop_front();
    }
}

impl CoverageHistory {
    /// Starts a task that takes samples, until the history or the switch is dropped.
    pub(super) fn start(switch: &Arc<Switch>) -> Arc<Self> {
        let history = Arc::<Self>::default();
        let (own, switch) = (Arc::downgrade(&history), Arc::downgrade(switch));
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SAMPLE_EVERY);
            loop {
                ticks.tick().await;
                let (Some(own), Some(switch)) = (own.upgrade(), switch.upgrade()) else { return };
                let totals = totals(&switch).await;
                own.0.lock().unwrap_or_else(PoisonError::into_inner).add(totals);
            }
        });
        history
    }

    /// Returns the increase of a counter in the last 5 seconds, minute and hour.
    fn increases(&self, name: &str) -> [u64; 3] {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).increases(name)
    }
}

/// Returns the name of the counter for a drop reason.
///
/// The name is the name of Open vSwitch if Open vSwitch counts the same drops. Several reasons may
/// share one counter.
fn drop_counter(reason: DropReason) -> String {
    let name = match reason {
        DropReason::NoMatchingRule | DropReason::RuleWithoutOutput => "drop_action_of_pipeline",
        DropReason::BridgeNotFound => "drop_action_bridge_not_found",
        DropReason::RecursionTooDeep => "drop_action_recursion_too_deep",
        DropReason::TooManyResubmits => "drop_action_too_many_resubmit",
        DropReason::StackTooDeep => "drop_action_stack_too_deep",
        DropReason::TooManyMplsLabels => "drop_action_too_many_mpls_labels",
        DropReason::IngressPortDisabled | DropReason::OutputPortDisabled => {
            "drop_action_forwarding_disabled"
        }
        DropReason::UpcallQueueFull => "datapath_drop_upcall_error",
        DropReason::Metered => "datapath_drop_meter",
        DropReason::OutputPortMissing | DropReason::NoTxQueue => "datapath_drop_invalid_port",
        DropReason::RecirculationTooDeep | DropReason::RecirculationLimit => {
            "datapath_drop_recirc_error"
        }
        own => return format!("drop_{}", own.name()),
    };
    name.to_owned()
}

/// Returns the values of all counters.
async fn totals(switch: &Switch) -> CounterTotals {
    let (caches, drops) = (switch.caches(), switch.drops());
    let hits = [caches.exact_hits, caches.signature_hits, caches.megaflow_hits];
    let mut totals: CounterTotals = [
        ("netdev_received", drops.received),
        ("netdev_sent", drops.sent),
        ("flow_extract", drops.received),
        ("dpif_execute", drops.injected),
        ("cache_hit", hits.iter().sum::<u64>() + caches.gigaflow_hits + caches.decided),
        ("xlate_actions", caches.upcalls),
        ("packet_in", drops.punted),
        ("FDR_FLOW_IDLE", caches.expired),
        ("flow_install_conflict", caches.install_conflicts),
        ("upcall_flow_limit_hit", caches.refused_full),
        ("upcall_report_queue_full", caches.refused_ring),
        ("datapath_drop_rx_invalid_packet", 0),
        ("netdev_device_lost", drops.device_lost),
        ("drop_snooping_inbox_full", drops.snooping_inbox_full),
    ]
    .map(|(name, total)| (name.to_owned(), total))
    .into();
    let LearnedTableTotals { macs, multicast } = switch.learned_totals();
    totals.extend(
        [
            ("mac_learning_learned", macs.learned),
            ("mac_learning_expired", macs.expired),
            ("mac_learning_evicted", macs.evicted),
            ("mac_learning_moved", macs.moved),
            ("mcast_snooping_learned", multicast.learned),
            ("mcast_snooping_expired", multicast.expired),
            ("mcast_snooping_evicted", multicast.evicted),
        ]
        .map(|(name, total)| (name.to_owned(), total)),
    );
    if let Ok(evictions) = switch.evictions().await {
        totals.insert("dpif_flow_put".to_owned(), evictions.installed);
        totals.insert("dpif_flow_del".to_owned(), evictions.removed + evictions.evicted);
        totals.insert("rev_change".to_owned(), evictions.changes);
        // Open vSwitch has no counters for these causes, because it revalidates all flows.
        for (cause, count) in &evictions.by_cause {
            totals.insert(format!("flow_evicted_{cause}"), *count);
        }
    }
    for reason in DropReason::ALL {
        let count = drops.dropped.iter().find(|(name, _)| *name == reason.name());
        *totals.entry(drop_counter(*reason)).or_default() += count.map_or(0, |(_, count)| *count);
    }
    for (reason, count) in &drops.not_received {
        let name = match *reason {
            "rx_refused" => "datapath_drop_rx_invalid_packet".to_owned(),
            reason => format!("netdev_{reason}"),
        };
        *totals.entry(name).or_default() += count;
    }
    totals
}

/// Handles `coverage/read-counter`: shows the total of one counter.
async fn read_counter(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let name = arguments.first().map_or("", String::as_str);
    let totals = totals(&methods.switch).await;
    let total = totals.get(name).ok_or("No such counter: `coverage/show` lists the counters")?;
    Ok(total.to_string())
}

/// Handles `coverage/show`: shows all counters that are not zero.
async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let totals = totals(&methods.switch).await;
    Ok(format_counters(&totals, |name| methods.coverage.increases(name)))
}

/// Returns the counters in the format of Open vSwitch.
fn format_counters(totals: &CounterTotals, increases: impl Fn(&str) -> [u64; 3]) -> String {
    let hit: Vec<_> = totals.iter().filter(|(_, total)| **total > 0).collect();
    // Open vSwitch logs each set of events once, identified by a hash of the names (here FNV-1a).
    let bytes = hit.iter().flat_map(|(name, _)| name.bytes());
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut text = format!(
        "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n"
    );
    for (name, total) in &hit {
        let [seconds, minute, hour] = increases(name);
        text += &format!(
            "{name:<24} {:>5}/sec {:>9}/sec {:>13}/sec   total: {total}\n",
            rate(seconds, 5, 1),
            rate(minute, 60, 3),
            rate(hour, 3600, 4)
        );
    }
    text + &format!("{} events never hit\n", totals.len() - hit.len())
}

/// Returns a rate per second, with a number of decimal places.
fn rate(count: u64, seconds: u32, digits: usize) -> String {
    let scale = 10_u128.pow(u32::try_from(digits).unwrap_or_default());
    let seconds = u128::from(seconds);
    let scaled = (u128::from(count) * scale + seconds / 2) / seconds;
    format!("{}.{:0digits$}", scaled / scale, scaled % scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns totals with a number for `xlate_actions`.
    fn of(total: u64) -> CounterTotals {
        [("xlate_actions".to_owned(), total), ("packet_in".to_owned(), 0)].into()
    }

    #[test]
    fn rates_cover_5_seconds_a_minute_an_hour() {
        let mut samples = CoverageSamples::default();
        // Two events in each second, for the first 10 minutes of the daemon.
        (1..=120).for_each(|sample| samples.add(of(sample * 10)));
        assert_eq!(samples.increases("xlate_actions"), [10, 120, 1200]);
        // The samples continue for more than an hour.
        (121..=1000).for_each(|sample| samples.add(of(sample * 10)));
        let [seconds, minute, hour] = samples.increases("xlate_actions");
        assert_eq!((seconds, minute), (10, 120));
        assert!((7200..7320).contains(&hour), "{hour} events in an hour and a started minute");
        assert_eq!(samples.recent.len() + samples.minutes.len(), SAMPLES + MINUTES + 2);
    }

    #[test]
    fn lines_have_the_columns_of_open_vswitch() {
        let text = format_counters(&of(35), |_| [5, 30, 35]);
        let line =
            "xlate_actions              1.0/sec     0.500/sec        0.0097/sec   total: 35\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("1 events never hit\n"), "{text}");
    }

    #[test]
    fn every_drop_reason_has_a_counter() {
        let names: Vec<_> = DropReason::ALL.iter().map(|reason| drop_counter(*reason)).collect();
        assert!(names.contains(&"datapath_drop_meter".to_owned()));
        assert!(names.contains(&"drop_tx_queue_full".to_owned()), "{names:?}");
    }
}
