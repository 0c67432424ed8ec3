//! Time until the NIC forwards the packets of a new flow, and until the NIC is synchronised.
//!
//! The packets of a flow are sent one after the other, and the NIC counts the packets that the NIC
//! forwards alone. These packets are the last packets of the flow, so their number identifies the
//! first of them and its sending time.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    nic::{Nic, cut_connection},
    probe,
    testbed::Testbed,
};
use crate::{
    experiment::{Better, Row, Run, Samples, quantile},
    switch::{Contender, Setup, ShuntCtl},
};

/// Packets of one flow.
const PACKETS: usize = 200;
/// Target time between two packets of a flow.
const PAUSE: Duration = Duration::from_micros(20);
/// Flows that already have LTM entries.
///
/// A new flow needs only the entries that the flow does not share.
const FLOWS: u32 = 4096;
/// Entries in the NIC when its connection is cut.
const SIZES: &[(&str, u32)] = &[("4K", 4096), ("32K", 32_768)];
/// Maximum time to wait for counters and the NIC.
const TIMEOUT: Duration = Duration::from_secs(20);

const MISSED: &str =
    "time from a flow's first packet to its first packet that the NIC forwarded alone";
const GAP: &str = "time between two packets of a flow (the resolution)";
const NEVER_LEARNED: &str = "flows that the NIC had not learned by their last packet";
const RESTORED: &str = "time from the connection cut until the NIC is synchronised";

/// Results of one round.
struct Round {
    /// Microseconds for each flow.
    missed: Vec<f64>,
    gaps: Vec<f64>,
    never: u32,
}

/// Measures new flows one after the other, and connection cuts.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let Some(ours) = contenders.first() else { return Vec::new() };
    let rounds = run.either(5, 1);
    let flows = if run.is_quick { 50 } else { 300 };
    let sizes = if run.is_quick { &SIZES[..1] } else { SIZES };
    run.begin(rounds + sizes.len());
    let setup = || Setup { nic: true, ..Setup::default() };
    let shown: Vec<Round> = (1..=rounds)
        .map(|round| {
            run.step(&format!("new flows, round {round}"), |folder| {
                let testbed = Testbed::new(ours, folder, &setup());
                testbed.fill(FLOWS);
                new_flows(&testbed, FLOWS..FLOWS + flows)
            })
        })
        .collect();
    let mut rows = rows_of(&shown);
    for (size, entries) in sizes {
        let (held, times) = run.step(&format!("{size} flows, connections cut"), |folder| {
            let setup = Setup { ltm_entries_max: Some(*entries), ..setup() };
            let testbed = Testbed::new(ours, folder, &setup);
            testbed.fill(*entries);
            measure_restore(control(&testbed), rounds)
        });
        rows.push(Row {
            ours: times,
            ..Row::new(format!("connection cut, {size} flows, {held} entries"), RESTORED, "ms")
        });
    }
    rows
}

fn control(testbed: &Testbed) -> &ShuntCtl {
    let Some(control) = testbed.switch.shuntctl() else { panic!("the device is not embedded") };
    control
}

fn new_flows(testbed: &Testbed, flows: std::ops::Range<u32>) -> Round {
    let mut round = Round { missed: Vec::new(), gaps: Vec::new(), never: 0 };
    let control = control(testbed);
    wait_until_settled(control, 0);
    for flow in flows {
        let before = Nic::of(control);
        let frame = probe::plain_packet(flow);
        let mut sent = Vec::with_capacity(PACKETS);
        for _ in 0..PACKETS {
            sent.push(Instant::now());
            testbed.sender.send(&[frame]);
            sleep(PAUSE);
        }
        let after = wait_until_settled(control, before.received() + PACKETS as u64);
        let hits = usize::try_from(after.hits.saturating_sub(before.hits)).unwrap_or_default();
        assert!(hits <= PACKETS, "{hits} hits of {PACKETS} packets: another sender is active");
        let us = |later: Instant, earlier: Instant| (later - earlier).as_secs_f64() * 1e6;
        round.gaps.extend(sent.windows(2).map(|pair| us(pair[1], pair[0])));
        match PACKETS.checked_sub(hits).and_then(|first| sent.get(first)) {
            Some(first) => round.missed.push(us(*first, sent[0])),
            None => round.never += 1,
        }
    }
    round
}

/// Waits until the NIC has received `received` packets and has no pending entries.
fn wait_until_settled(control: &ShuntCtl, received: u64) -> Nic {
    let start = Instant::now();
    loop {
        let nic = Nic::of(control);
        if nic.is_synchronised() && nic.received() >= received {
            return nic;
        }
        assert!(start.elapsed() < TIMEOUT, "the NIC does not settle: {nic:?}");
        sleep(Duration::from_millis(1));
    }
}

/// Returns the number of NIC entries, and the milliseconds to synchronise.
///
/// The time starts at each connection cut. The NIC keeps its entries during the cut; the switch
/// reads the entries back and compares them with its own.
fn measure_restore(control: &ShuntCtl, rounds: usize) -> (u64, Samples) {
    let mut nic = wait_until_settled(control, 0);
    let held = nic.entries;
    let times = (0..rounds).map(|_| {
        let start = Instant::now();
        cut_connection(&nic);
        let is_back = |now: &Nic| now.stale_count > nic.stale_count && now.is_synchronised();
        let mut now = Nic::of(control);
        while !is_back(&now) {
            assert!(start.elapsed() < TIMEOUT, "the NIC does not reconnect: {now:?}");
            now = Nic::of(control);
        }
        let took = start.elapsed().as_secs_f64() * 1e3;
        nic = now;
        took
    });
    (held, Samples(times.collect()))
}

fn rows_of(shown: &[Round]) -> Vec<Row> {
    let percents = [(50, "p50"), (90, "p90"), (99, "p99"), (100, "max")];
    let each = |of: fn(&Round) -> &Vec<f64>, percent| {
        Samples(shown.iter().filter_map(|round| quantile(of(round), percent)).collect())
    };
    let mut rows: Vec<Row> = percents
        .into_iter()
        .map(|(percent, word)| Row {
            ours: each(|round| &round.missed, percent),
            ..Row::new(format!("new flows one by one {word}"), MISSED, "us")
        })
        .collect();
    rows.push(Row {
        better: Better::Neither,
        ours: each(|round| &round.gaps, 50),
        ..Row::new("new flows one by one p50", GAP, "us")
    });
    rows.push(Row {
        ours: f64::from(shown.iter().map(|round| round.never).sum::<u32>()).into(),
        ..Row::new("new flows one by one, all rounds", NEVER_LEARNED, "")
    });
    rows
}
