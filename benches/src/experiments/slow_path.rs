//! Complete switches with the rules and flows of five pipelines: cost of loading, misses and
//! changes.
//!
//! Each switch in turn has a packet socket for each port of the pipeline. `ovs-ofctl` loads the
//! same rules, and the first packets of the same flows are sent and awaited in windows. Then one
//! rule is added that affects none of these flows. Open vSwitch and the iterative engine of Shunt
//! revalidate every cached flow; the default engine queries its index instead. The default engine
//! runs in the eviction thread or, for a small change, in the control thread. In the control
//! thread, the cost includes the cost of the connection. Values are CPU times, which depend little
//! on other load.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use shunt_pipebench::{output::LivePort, traffic::ScheduledPacket, workload::Workload};

use super::{
    cables::Cables,
    loaded::{Loaded, PIPELINES, UNUSED_PORT_RULE, workload},
    windows::Sink,
};
use crate::{
    cpu::{self, Account},
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, PortSpec, Setup, Switch},
};

/// Number of packets in flight between sender and receiver.
const IN_FLIGHT: u32 = 64;
/// Maximum time to wait for a window.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Numbers of cached flows when a change is made.
const SIZES: &[usize] = &[8_000, 32_000, 100_000];
const QUICK_SIZES: &[usize] = &[4_000];
/// A short pipeline and a long pipeline.
const QUICK_PIPELINES: [&str; 2] = ["ofd", "ols"];
/// Number of changes, each followed by a revalidation of all entries.
const CHANGES: usize = 3;

const LOAD_RATE: &str = "rules loaded per second, as one bundle";
const LOAD_CPU: &str = "CPU to load a rule";
const LOAD_BYTES: &str = "memory of a rule";
const SET_UP: &str = "CPU to set up a flow";
const BYTES: &str = "memory of a cached flow";
const ENTRIES: &str = "entries of these flows";
const ARRIVED_SHARE: &str = "share of first packets that arrived";
const REVALIDATION_CPU: &str =
    "CPU to revalidate all entries after one change, with the iterative engine";
const CHANGED: &str = "CPU of the default eviction engine after one change";

/// Runs all pipelines.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let contenders = Contender::both_on_devices();
    if contenders.is_empty() {
        return Vec::new();
    }
    let sizes = if run.is_quick { QUICK_SIZES } else { SIZES };
    let pipelines = if run.is_quick { &QUICK_PIPELINES[..] } else { &PIPELINES[..] };
    let rounds = run.either(3, 2);
    run.begin(pipelines.len() * (contenders.len() + 1) * rounds);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let name = format!("{pipeline}:high:{}", sizes.last().copied().unwrap_or_default());
        let traffic = Traffic::new(&workload(&name), run.folder.path());
        let mut measured: Vec<Vec<Measured>> = contenders.iter().map(|_| Vec::new()).collect();
        let mut iterative = Vec::new();
        for _ in 0..rounds {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                let what = format!("{name}, {}", contender.name());
                measured.push(run.step(&what, |folder| {
                    Testbed::new(contender, None, folder, &traffic).measure(&traffic, sizes)
                }));
            }
            iterative.push(run.step(&format!("{name}, iterative engine"), |folder| {
                let engine = Some("iterative");
                Testbed::new(&contenders[0], engine, folder, &traffic).measure(&traffic, sizes)
            }));
        }
        measured.push(iterative);
        let rival = contenders.get(1).map(Contender::name);
        rows.extend(pipeline_rows(pipeline, sizes, &measured, rival.as_deref()));
    }
    let order = [
        LOAD_RATE,
        LOAD_CPU,
        LOAD_BYTES,
        SET_UP,
        BYTES,
        ENTRIES,
        ARRIVED_SHARE,
        REVALIDATION_CPU,
        CHANGED,
    ];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// The rules and first packets of a workload.
struct Traffic {
    flows: Vec<shunt_pipebench::traffic::Flow>,
    /// Ingress port numbers of the packets.
    ports: BTreeSet<u32>,
    rules: String,
    rules_count: usize,
}

impl Traffic {
    fn new(workload: &Workload, folder: &Path) -> Self {
        let loaded = Loaded::new(workload);
        let version = loaded.pipeline.version();
        let forwarded = loaded
            .keys
            .iter()
            .map(|key| !loaded.pipeline.translate(key, version).actions.is_empty());
        let flows = workload.flows().iter().zip(forwarded).filter(|(_, is)| *is);
        let flows: Vec<_> = flows.map(|(flow, _)| flow.clone()).collect();
        let lines: Vec<String> = workload.base_rules().map(ToString::to_string).collect();
        let path = folder.join("rules");
        let written = fs::write(&path, lines.join("\n"));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            ports: flows.iter().map(|flow| flow.in_port().number()).collect(),
            flows,
            rules: path.display().to_string(),
            rules_count: lines.len(),
        }
    }
}

/// A switch with a virtual device at each port.
struct Testbed {
    switch: Box<dyn Switch>,
    /// The far ends by port number, from 1; `None` for ports without packets.
    senders: Vec<Option<LivePort>>,
    /// The far end of port 2, through which all packets leave.
    sink: Sink,
    // This field is dropped after the switch.
    _cables: Cables,
}

/// Results of one switch.
#[derive(Default)]
struct Measured {
    load_rate: f64,
    load_us: f64,
    load_bytes: f64,
    /// Results for each number of flows.
    sizes: Vec<SizeMeasurement>,
}

/// The measured values of one cache size.
#[derive(Default)]
struct SizeMeasurement {
    set_up_us: f64,
    bytes: f64,
    entries: f64,
    arrived: f64,
    judged_ms: f64,
}

impl Testbed {
    fn new(
        contender: &Contender,
        engine: Option<&'static str>,
        folder: &Path,
        traffic: &Traffic,
    ) -> Self {
        let most = traffic.ports.last().copied().unwrap_or(1).max(2);
        let cables = Cables::plug("sp", most);
        let ports = cables.near().map(PortSpec::Device).collect();
        let setup = Setup { ports, engine, keeps_entries: true, ..Setup::default() };
        let switch = contender.start(folder, &setup);
        let open = |port: u32| {
            let device = cables.far(port);
            traffic.ports.contains(&port).then(|| {
                LivePort::open(&device).unwrap_or_else(|error| panic!("{device}: {error}"))
            })
        };
        let senders = (1..=most).map(open).collect();
        let sink = Sink { devices: vec![cables.far(2)], timeout: TIMEOUT };
        Self { switch, senders, sink, _cables: cables }
    }

    fn measure(&self, traffic: &Traffic, sizes: &[usize]) -> Measured {
        let count = traffic.rules_count as f64;
        let before = cpu::resident_bytes(self.switch.id());
        let account = Account::open(self.switch.id());
        self.switch.ofctl(&["--bundle"], "add-flows", &[&traffic.rules]);
        let spent = account.spent();
        let loaded = cpu::resident_bytes(self.switch.id());
        let mut measured = Measured {
            load_rate: count / spent.seconds,
            load_us: spent.run_ns / 1e3 / count,
            load_bytes: (loaded - before) / count,
            sizes: Vec::new(),
        };
        let mut sent = 0;
        let mut arrived_in_all = 0.0;
        for size in sizes {
            let end = (*size).min(traffic.flows.len());
            let account = Account::open(self.switch.id());
            let arrived = f64::from(self.send(traffic, sent..end));
            let run_ns = account.spent().run_ns;
            arrived_in_all += arrived;
            let bytes = cpu::resident_bytes(self.switch.id()) - loaded;
            measured.sizes.push(SizeMeasurement {
                set_up_us: run_ns / 1e3 / arrived.max(1.0),
                bytes: bytes / arrived_in_all.max(1.0),
                entries: self.switch.cached() as f64,
                arrived: 100.0 * arrived / (end - sent).max(1) as f64,
                judged_ms: Samples((0..CHANGES).map(|_| self.revalidate() / 1e6).collect())
                    .median(),
            });
            sent = end;
        }
        measured
    }

    /// Returns the CPU nanoseconds to revalidate all entries after a change.
    ///
    /// The idle CPU of an equal time is subtracted.
    fn revalidate(&self) -> f64 {
        let idle = self.spent(|| ());
        let judged = self.spent(|| drop(self.switch.ofctl(&[], "add-flow", &[UNUSED_PORT_RULE])));
        self.spent(|| drop(self.switch.ofctl(&["--strict"], "del-flows", &[UNUSED_PORT_MATCH])));
        (judged - idle).max(0.0)
    }

    /// Returns the CPU nanoseconds that the evicting threads spend on a change.
    fn spent(&self, change: impl FnOnce()) -> f64 {
        let before = self.switch.evicting_ns();
        change();
        self.switch.await_revalidation();
        self.switch.evicting_ns().saturating_sub(before) as f64
    }

    /// Sends the first packets of flows;
    /// returns the number of packets that left the switch.
    fn send(&self, traffic: &Traffic, flows: std::ops::Range<usize>) -> u32 {
        let flows = &traffic.flows[flows];
        self.sink.send(0..u32::try_from(flows.len()).unwrap_or(u32::MAX), IN_FLIGHT, |flow| {
            let port = flows[flow as usize].in_port().number() as usize;
            let Some(sender) = self.senders.get(port - 1).and_then(Option::as_ref) else {
                return false;
            };
            let played =
                sender.play(flows, [ScheduledPacket { time_ns: 0, flow, bytes: 64 }], || ());
            played.unwrap_or_else(|error| panic!("{error}"));
            true
        })
    }
}

/// The match for `del-flows --strict`.
const UNUSED_PORT_MATCH: &str = "table=0,priority=1,in_port=60000";

/// Returns the reason why our switch is worse in a metric.
fn why_worse(metric: &str) -> &'static str {
    match metric {
        BYTES => {
            "an entry stores the mask of each of its table lookups, here up to thirty; with these \
             the eviction engine finds stale entries without checking the others"
        }
        REVALIDATION_CPU => {
            "each entry stores masks that the iterative engine does not use, and the value of \
             Shunt includes the cost of the OpenFlow connection"
        }
        _ => "",
    }
}

fn pipeline_rows(
    pipeline: &str,
    sizes: &[usize],
    measured: &[Vec<Measured>],
    rival: Option<&str>,
) -> Vec<Row> {
    let row_of =
        |ours: usize, name: String, (metric, unit, better), of: &dyn Fn(&Measured) -> f64| {
            let samples = |rounds: &Vec<Measured>| Samples(rounds.iter().map(of).collect());
            let ours = measured.get(ours).map(samples).unwrap_or_default();
            let rival = rival.map(str::to_owned).zip(measured.get(1).map(samples));
            let row = Row { better, ours, rival, ..Row::new(name, metric, unit) };
            let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
            Row { reason: if is_worse { why_worse(metric) } else { "" }, ..row }
        };
    let row = |name, what, of: &dyn Fn(&Measured) -> f64| row_of(0, name, what, of);
    let iterative = measured.len().saturating_sub(1);
    let whole = || pipeline.to_owned();
    let mut rows = vec![
        row(whole(), (LOAD_RATE, "1/s", Better::Neither), &|one| one.load_rate),
        row(whole(), (LOAD_CPU, "us", Better::Less), &|one| one.load_us),
        row(whole(), (LOAD_BYTES, "bytes", Better::Less), &|one| one.load_bytes),
    ];
    for (index, size) in sizes.iter().enumerate() {
        let name = || format!("{pipeline}: {}K flows", size / 1000);
        let at = |of: fn(&SizeMeasurement) -> f64| move |one: &Measured| of(&one.sizes[index]);
        rows.extend([
            row(name(), (SET_UP, "us", Better::Less), &at(|one| one.set_up_us)),
            row(name(), (BYTES, "bytes", Better::Less), &at(|one| one.bytes)),
            row(name(), (ENTRIES, "count", Better::Neither), &at(|one| one.entries)),
            row(name(), (ARRIVED_SHARE, "%", Better::Neither), &at(|one| one.arrived)),
            row_of(
                iterative,
                name(),
                (REVALIDATION_CPU, "ms", Better::Less),
                &at(|one| one.judged_ms),
            ),
            row(name(), (CHANGED, "ms", Better::Less), &at(|one| one.judged_ms)),
        ]);
    }
    rows
}
