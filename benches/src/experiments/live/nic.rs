//! A NIC in front of the switch while a rule changes continuously, with and without disturbances.
//!
//! Disturbances cut the connection to the NIC or replace the NIC. The switch does not wait for a
//! lost NIC, so a reply is guaranteed only if the NIC was connected since the previous reply. A
//! guaranteed reply means that the NIC has removed the stale entries permanently, even if the
//! connection is cut later. A packet that follows such an entry is a violation, at any sending
//! time.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use serde_json::Value;
use shunt_p4runtime::{
    client::ClientSettings,
    wire::p4::v1::{Entity, ReadRequest, entity, p4_runtime_client::P4RuntimeClient},
};
use tokio::runtime::Runtime;

use super::{
    flap::{Flapping, Window, begin, flap},
    testbed::Testbed,
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup, ShuntCtl, output},
};

/// Number of packet threads.
const THREADS: u16 = 3;
/// Number of cached flows: the NIC has space for the LTM entries of all.
const FLOWS: u32 = 4096;
/// Time between two disturbances.
const EVERY: Duration = Duration::from_secs(2);
/// One disturbance in N replaces the NIC;
/// the other disturbances cut the connection of the NIC.
const EXCHANGE_ONE_IN: u64 = 5;
/// Maximum time for the NIC to be synchronised at the end.
const TIMEOUT: Duration = Duration::from_secs(20);

const VIOLATIONS: &str = "probe packets sent after a barrier reply that followed the old rule";
const AFTER_REPLY: &str = "probe packets sent after a barrier reply and received";
const FLAPS: &str = "changes of the rule";
const CONNECTED: &str = "changes with the NIC connected all the time";
const DISTURBANCES: &str = "connections cut, and NICs replaced";
const HITS: &str = "packets that the NIC forwarded alone";
const REPLY: &str = "median time from the flow-mod to the barrier reply";
const LOST: &str = "probe packets lost";
const WRONG_ENTRIES: &str = "final NIC entries that are wrong or missing";

/// The kind of disturbance of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Undisturbed,
    Disturbed,
}

/// The measurements of one window of traffic, with or without disturbances.
struct WindowResult {
    window: Window,
    disturbances: f64,
    /// Percentage of the packets that hit in the last NIC.
    hits: f64,
    wrong_entries: f64,
}

/// Runs windows with and without disturbances.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    let Some(ours) = contenders.first() else { return Vec::new() };
    let time = Duration::from_secs(run.either(60, 10) as u64);
    // Ten minutes with disturbances.
    let cases = [(Case::Undisturbed, run.either(2, 1)), (Case::Disturbed, run.either(10, 2))];
    run.begin(cases.iter().map(|(_, windows)| windows).sum());
    let mut rows = Vec::new();
    for (case, windows) in cases {
        let words = match case {
            Case::Undisturbed => "undisturbed",
            Case::Disturbed => "disturbed every 2 s",
        };
        let shown: Vec<WindowResult> = (1..=windows)
            .map(|window| {
                run.step(&format!("{words}, window {window}"), |folder| {
                    let setup = Setup { threads: Some(THREADS), nic: true, ..Setup::default() };
                    let testbed = Testbed::new(ours, folder, &setup);
                    let flapping = Flapping { flows: FLOWS, time, seed: window as u64 };
                    watch(&testbed, flapping, case)
                })
            })
            .collect();
        rows.extend(rows_of(words, &shown));
    }
    let order =
        [VIOLATIONS, AFTER_REPLY, FLAPS, CONNECTED, DISTURBANCES, WRONG_ENTRIES, HITS, REPLY, LOST];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Runs one window of a freshly started switch.
fn watch(testbed: &Testbed, flapping: Flapping, case: Case) -> WindowResult {
    let Some(control) = testbed.switch.shuntctl() else { panic!("the device is not embedded") };
    let mut controller = begin(testbed, flapping.flows, || testbed.controller());
    let mut before = Nic::of(control);
    let is_guaranteed = || {
        let nic = Nic::of(control);
        let is_held = before.is_connected && nic.is_connected;
        let is_held = is_held && before.stale_count == nic.stale_count;
        before = nic;
        is_held
    };
    let (stop, disturbances) = (AtomicBool::new(false), AtomicU64::new(0));
    let window = scope(|scope| {
        if case == Case::Disturbed {
            scope.spawn(|| disturb(control, &stop, &disturbances));
        }
        let window = flap(testbed, &mut controller, flapping, is_guaranteed);
        stop.store(true, Ordering::Relaxed);
        window
    });
    let Nic { hits, missed, .. } = Nic::of(control);
    WindowResult {
        window,
        disturbances: disturbances.into_inner() as f64,
        hits: 100.0 * hits as f64 / ((hits + missed) as f64).max(1.0),
        wrong_entries: wrong_entries(control),
    }
}

/// Cuts the connection to the NIC repeatedly, and sometimes replaces the NIC.
fn disturb(control: &ShuntCtl, stop: &AtomicBool, disturbances: &AtomicU64) {
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20));
        if last.elapsed() < EVERY {
            continue;
        }
        last = Instant::now();
        let number = disturbances.fetch_add(1, Ordering::Relaxed) + 1;
        // The NIC is not replaced at the end, because a new NIC then has no time to fill.
        if number % EXCHANGE_ONE_IN == 2 {
            // The new NIC is slower or faster.
            let update_us = 50 * (number / EXCHANGE_ONE_IN % 2);
            let setting = format!("caches.gigaflow.offload.update_us={update_us}");
            assert!(control.ask(&["set", &setting]).is_some(), "{setting} is refused");
        } else {
            cut_connection(&Nic::of(control));
        }
    }
}

/// Cuts the connection to a NIC: the kernel closes both ends together.
pub(super) fn cut_connection(nic: &Nic) {
    let port = nic.address.rsplit(':').next().unwrap_or_default();
    output("ss", &["-K", "-t", "dst", "127.0.0.1", "dport", "=", port]);
}

/// Counts NIC entries that are wrong or missing.
///
/// When the switch reports the NIC as synchronised, its entries are read and its connection is cut.
/// The switch then reads the NIC, compares the entries with the desired state, and repairs the NIC.
/// An entry read only before the repair was wrong; an entry read only after the repair was missing.
/// before and not after the repair was wrong; the opposite was missing.
fn wrong_entries(control: &ShuntCtl) -> f64 {
    let start = Instant::now();
    let is_over = || start.elapsed() > TIMEOUT;
    loop {
        let nic = await_nic(control, is_over, Nic::is_synchronised);
        let before = read_entries(&nic);
        cut_connection(&nic);
        let seen = nic.stale_count;
        let restored =
            await_nic(control, is_over, |nic| nic.stale_count > seen && nic.is_synchronised());
        let after = read_entries(&restored);
        // Operations that were requested in between are not repairs.
        if restored.operations == nic.operations || is_over() {
            return (before.symmetric_difference(&after).count() as u64 + restored.to_come) as f64;
        }
    }
}

/// Waits for a state of the NIC for which `is_true` returns true.
///
/// Returns the last state if `is_over` returns true first.
fn await_nic(
    control: &ShuntCtl,
    is_over: impl Fn() -> bool,
    is_true: impl Fn(&Nic) -> bool,
) -> Nic {
    loop {
        let nic = Nic::of(control);
        if is_true(&nic) || is_over() {
            return nic;
        }
        sleep(Duration::from_millis(50));
    }
}

/// Returns the entries of all NIC tables, as read over P4Runtime.
fn read_entries(nic: &Nic) -> BTreeSet<String> {
    let runtime = Runtime::new().unwrap_or_else(|error| panic!("no runtime: {error}"));
    runtime.block_on(async {
        let client = P4RuntimeClient::connect(format!("http://{}", nic.address)).await;
        let mut client =
            client.unwrap_or_else(|error| panic!("no NIC at {}: {error}", nic.address));
        // Default entries are returned only to explicit reads.
        let all = entity::Entity::TableEntry(Box::default());
        let entities = vec![Entity { entity: Some(all) }];
        let device_id = ClientSettings::new(String::new()).device_id;
        let request = ReadRequest { device_id, entities, ..ReadRequest::default() };
        let replies = client.read(request).await;
        let mut replies = replies.unwrap_or_else(|error| panic!("not read: {error}")).into_inner();
        let mut held = BTreeSet::new();
        while let Ok(Some(answer)) = replies.message().await {
            held.extend(answer.entities.iter().map(|entity| format!("{entity:?}")));
        }
        held
    })
}

/// The NIC state that the daemon reports.
#[derive(Debug)]
pub(super) struct Nic {
    is_connected: bool,
    pub(super) stale_count: u64,
    pub(super) entries: u64,
    /// Number of entries that the NIC must still insert or remove.
    to_come: u64,
    /// Insertions and removals requested.
    operations: u64,
    pub(super) hits: u64,
    missed: u64,
    address: String,
}

impl Nic {
    /// Returns whether the NIC is reported to hold exactly the desired entries.
    pub(super) const fn is_synchronised(&self) -> bool {
        self.is_connected && self.to_come == 0
    }

    /// Returns the number of packets that the NIC received.
    pub(super) const fn received(&self) -> u64 {
        self.hits + self.missed
    }

    pub(super) fn of(control: &ShuntCtl) -> Self {
        let nic = control.json("caches")["nic"].take();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let stages = nic["stages"].as_array().map_or(&[][..], Vec::as_slice);
        let (traffic, operations) = (&nic["traffic"], &nic["operations"]);
        Self {
            is_connected: nic["state"] == "connected",
            stale_count: number(&nic["stale_count"]),
            entries: stages.iter().map(|stage| number(&stage["entries"])).sum(),
            to_come: number(&nic["waiting"]) + number(&nic["stale_entries"]),
            operations: number(&operations["inserts"]) + number(&operations["removes"]),
            hits: number(&traffic["hits"]),
            missed: number(&traffic["missed"]),
            address: nic["address"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

fn rows_of(case: &str, shown: &[WindowResult]) -> Vec<Row> {
    type MetricOf = fn(&WindowResult) -> f64;
    let row = |(metric, unit), better, of: MetricOf| {
        let samples = Samples(shown.iter().map(of).collect());
        Row { better, ours: samples, ..Row::new(format!("{case}, each window"), metric, unit) }
    };
    let sum = |metric, better, of: MetricOf| {
        let samples = Samples(vec![shown.iter().map(of).sum()]);
        Row { better, ours: samples, ..Row::new(format!("{case}, all windows"), metric, "") }
    };
    vec![
        sum(VIOLATIONS, Better::Less, |one| one.window.judgement.violations as f64),
        sum(AFTER_REPLY, Better::Neither, |one| one.window.judgement.judged as f64),
        sum(FLAPS, Better::Neither, |one| one.window.flaps),
        sum(CONNECTED, Better::Neither, |one| one.window.held),
        sum(DISTURBANCES, Better::Neither, |one| one.disturbances),
        sum(WRONG_ENTRIES, Better::Less, |one| one.wrong_entries),
        row((HITS, "%"), Better::More, |one| one.hits),
        row((REPLY, "us"), Better::Less, |one| one.window.reply_us),
        row((LOST, "%"), Better::Neither, |one| one.window.lost),
    ]
}
