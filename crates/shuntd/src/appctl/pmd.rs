//! Packet threads, printed like the PMD threads of Open vSwitch.

use shunt_switch::{DatapathReader, PacketThreadCounters, QueueMoves, RxQueueStatus};

use super::{command::commands, dpctl::check_datapath, methods::DaemonMethods};

commands! {
    "dpif-netdev/pmd-perf-show" "[-nh] [-it n] [-ms n] [-pmd thread] [dp]", 0..=8, Read, perf,
        "Show the counters of each packet thread, without histories and times";
    "dpif-netdev/pmd-rxq-rebalance" "[dp]", 0..=1, Change, rebalance,
        "Move receive queues between packet threads, so that their loads become more equal";
    "dpif-netdev/pmd-rxq-show" "[-pmd thread] [-secs n] [dp]", 0..=5, Read, rxqs,
        "Show the receive queues of each packet thread, with their loads in the last minute";
    "dpif-netdev/pmd-stats-clear" "[-pmd thread] [dp]", 0..=3, Change, clear,
        "Clear the counters of `pmd-stats-show`, `pmd-perf-show`, `dpif/show` and `dpctl/show`";
    "dpif-netdev/pmd-stats-show" "[-pmd thread] [dp]", 0..=3, Read, stats,
        "Show the hits and misses of each packet thread";
}

/// Returns the number of the thread to show; `None`: all threads.
fn selected_thread(words: &[String]) -> Result<Option<usize>, String> {
    let mut words = words.iter().map(String::as_str);
    let mut thread = None;
    while let Some(word) = words.next() {
        match word {
            "-nh" => {}
            "-it" | "-ms" | "-secs" => drop(words.next()),
            "-pmd" => {
                let number = words.next().unwrap_or_default();
                let wrong = |_| format!("-pmd {number}: not the number of a packet thread");
                thread = Some(number.parse().map_err(wrong)?);
            }
            word => check_datapath(word)?,
        }
    }
    Ok(thread)
}

/// Writes a block for each packet thread.
fn by_thread(
    methods: &DaemonMethods,
    words: &[String],
    block: impl Fn(usize, &PacketThreadCounters) -> String,
) -> Result<String, String> {
    let only = selected_thread(words)?;
    let threads = methods.packet_threads();
    let shown =
        threads.iter().enumerate().filter(|(number, _)| only.is_none_or(|own| own == *number));
    Ok(shown
        .map(|(number, own)| format!("packet thread {number}:\n{}", block(number, own)))
        .collect())
}

/// Handles `dpif-netdev/pmd-stats-show`: shows hits and misses by thread.
async fn stats(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    by_thread(methods, arguments, |_, own| {
        format!(
            "  packets received: {}\n  packet recirculations: ?\n  \
             avg. datapath passes per packet: ?\n  phwol hits: 0\n  mfex opt hits: 0\n  \
             simple match hits: 0\n  emc hits: {}\n  smc hits: {}\n  megaflow hits: {}\n  \
             avg. subtable lookups per megaflow hit: {}\n  miss with success upcall: {}\n  \
             miss with failed upcall: {}\n  avg. packets per output batch: ?\n{}",
            own.received,
            own.exact_hits,
            own.signature_hits,
            own.megaflow_hits,
            ratio(own.probes, own.lookups),
            own.upcalls,
            own.upcalls_lost,
            other_hits(own),
        )
    })
}

/// Handles `dpif-netdev/pmd-stats-clear`: clears the counters of the threads.
async fn clear(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let only = selected_thread(arguments)?;
    let threads = DatapathReader::new(&methods.switch).packet_threads();
    for (number, now) in threads.into_iter().enumerate() {
        if only.is_none_or(|own| own == number) {
            methods.cleared.clear_thread(number, now);
        }
    }
    Ok(String::new())
}

/// Returns a line with the hits of caches that Open vSwitch lacks,
/// if there are any.
fn other_hits(own: &PacketThreadCounters) -> String {
    match own.other_hits {
        0 => String::new(),
        hits => format!("  gigaflow hits and decisions without a cache: {hits}\n"),
    }
}

/// Handles `dpif-netdev/pmd-perf-show`: shows the counters of each packet thread.
async fn perf(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    by_thread(methods, arguments, |_, own| {
        let passes = own.hits() + own.upcalls;
        let line = |name: &str, count: u64, more: &str| {
            let percent = percent(count, passes);
            format!("  - {name:<16} {count:>14}  ({percent:>5} %{more})\n")
        };
        let lookups = format!(", {} subtbl lookups/hit", ratio(own.probes, own.lookups));
        format!(
            "\n  Iterations:        {:>14}\n  Rx packets:        {:>14}\n  Datapath passes:   {passes:>14}\n\
             {}{}{}{}{}  Tx packets:        {:>14}\n\n",
            own.iterations,
            own.received,
            line("EMC hits:", own.exact_hits, ""),
            line("SMC hits:", own.signature_hits, ""),
            line("Megaflow hits:", own.megaflow_hits, &lookups),
            line("Upcalls:", own.upcalls, ""),
            line("Lost upcalls:", own.upcalls_lost, ""),
            own.sent,
        )
    })
}

/// Handles `dpif-netdev/pmd-rxq-show`: shows receive queues by packet thread.
async fn rxqs(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let queues = DatapathReader::new(&methods.switch).rx_queues();
    let text = by_thread(methods, arguments, |number, _| {
        let own = queues.iter().filter(|queue| queue.thread == number).map(queue_line);
        format!("  isolated : false\n{}", own.collect::<String>())
    })?;
    Ok(format!("Displaying last 60 seconds pmd usage %\n{text}"))
}

/// Returns the line of a receive queue.
fn queue_line(own: &RxQueueStatus) -> String {
    let RxQueueStatus { port, queue, busy_percent, .. } = own;
    let usage = match busy_percent {
        Some(percent) => format!("{percent:>2} %"),
        None => "NOT AVAIL".to_owned(),
    };
    format!("  port: {port:<16}  queue-id: {queue:>2} (enabled)   pmd usage: {usage}\n")
}

/// Handles `dpif-netdev/pmd-rxq-rebalance`: moves queues to balance the loads.
async fn rebalance(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    arguments.iter().try_for_each(|datapath| check_datapath(datapath))?;
    let moves = DatapathReader::new(&methods.switch).rebalance().await;
    Ok(format!("pmd rxq rebalance: {}\n", moves_text(moves)))
}

/// Returns the number of moved queues, and of planned moves if it differs.
fn moves_text(moves: QueueMoves) -> String {
    let QueueMoves { planned, moved } = moves;
    if planned == moved {
        return format!("{moved} receive queues moved");
    }
    format!(
        "{moved} of {planned} receive queues moved: the others stay until their threads have \
         sent the packets of these queues"
    )
}

/// Returns a ratio with two decimal places.
fn ratio(part: u64, whole: u64) -> String {
    let hundredths = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Returns a percentage with one decimal place.
fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_stay_are_counted() {
        let text = |planned, moved| moves_text(QueueMoves { planned, moved });
        assert_eq!(text(2, 2), "2 receive queues moved");
        assert!(text(2, 0).starts_with("0 of 2 receive queues moved: "));
    }
}
