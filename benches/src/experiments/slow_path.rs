//! Whole switches with the rules and flows of the five pipelines: what loading, misses and changes
//! cost.
//!
//! Each switch in its turn has a packet socket for each port of the pipeline. The same rules are loaded
//! by `ovs-ofctl`, the same first packets of flows are sent and awaited in windows, and then one rule is
//! added that concerns none of them: Open vSwitch judges every cached flow anew in its revalidators,
//! and so does Shunt if its engine is the iterative one; the engine that it is installed with asks its
//! index, and judges none. It runs in the eviction thread or, as the change is small, in the control
//! thread that takes it, and then what the connection costs is counted too. Figures are CPU time, so
//! that they suffer little from what else the machine does.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use shunt_pipebench::{output::LivePort, traffic::Packet, workload::Workload};

use super::{
    cables::Cables,
    loaded::{ELSEWHERE, Loaded, PIPELINES, workload},
    windows::Sink,
};
use crate::{
    cpu::{self, Account},
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, PortSpec, Setup, Switch},
};

/// Packets under way at once.
const WINDOW: u32 = 64;
/// How long a window is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// Flows that are cached when a change comes.
const SIZES: &[usize] = &[8_000, 32_000, 100_000];
const QUICK_SIZES: &[usize] = &[4_000];
/// A short pipeline and a long one.
const QUICK_PIPELINES: [&str; 2] = ["ofd", "ols"];
/// Changes after each of which all entries are judged anew.
const CHANGES: usize = 3;

const LOAD_RATE: &str = "rules loaded in a second, as one bundle";
const LOAD_CPU: &str = "CPU to load a rule";
const LOAD_BYTES: &str = "memory of a rule";
const SET_UP: &str = "CPU to set up a flow";
const BYTES: &str = "memory of a cached flow";
const ENTRIES: &str = "entries that these flows are";
const ARRIVED: &str = "first packets that arrived";
const JUDGED: &str = "CPU to judge all entries anew after one change, iterative engine";
const CHANGED: &str = "CPU of the eviction engine as installed after one change";

/// All pipelines.
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
                    Bed::new((contender, None), folder, &traffic).measure(&traffic, sizes)
                }));
            }
            iterative.push(run.step(&format!("{name}, iterative engine"), |folder| {
                let engine = Some("iterative");
                Bed::new((&contenders[0], engine), folder, &traffic).measure(&traffic, sizes)
            }));
        }
        measured.push(iterative);
        let rival = contenders.get(1).map(Contender::name);
        rows.extend(pipeline_rows(pipeline, sizes, &measured, rival.as_deref()));
    }
    let order = [LOAD_RATE, LOAD_CPU, LOAD_BYTES, SET_UP, BYTES, ENTRIES, ARRIVED, JUDGED, CHANGED];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// The rules and first packets of a workload.
struct Traffic {
    flows: Vec<shunt_pipebench::traffic::Flow>,
    /// Numbers of ports that packets come in by.
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

/// A switch with a cable at each port.
struct Bed {
    switch: Box<dyn Switch>,
    /// The far ends, by port number from 1; `None` where nothing comes in.
    senders: Vec<Option<LivePort>>,
    /// The far end of port 2, by which all is forwarded.
    sink: Sink,
    // They go after the switch.
    _cables: Cables,
}

/// What one switch showed.
#[derive(Default)]
struct Measured {
    load_rate: f64,
    load_us: f64,
    load_bytes: f64,
    /// For each size.
    sizes: Vec<AtSize>,
}

#[derive(Default)]
struct AtSize {
    set_up_us: f64,
    bytes: f64,
    entries: f64,
    arrived: f64,
    judged_ms: f64,
}

impl Bed {
    fn new(
        (contender, engine): (&Contender, Option<&'static str>),
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
        let sink = Sink { devices: vec![cables.far(2)], stall_budget: PATIENCE };
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
            measured.sizes.push(AtSize {
                set_up_us: run_ns / 1e3 / arrived.max(1.0),
                bytes: bytes / arrived_in_all.max(1.0),
                entries: self.switch.cached() as f64,
                arrived: 100.0 * arrived / (end - sent).max(1) as f64,
                judged_ms: Samples((0..CHANGES).map(|_| self.judge() / 1e6).collect()).median(),
            });
            sent = end;
        }
        measured
    }

    /// Nanoseconds of CPU until all entries are judged after a change, less those that as much time
    /// without a change takes.
    fn judge(&self) -> f64 {
        let idle = self.spent(|| ());
        let judged = self.spent(|| drop(self.switch.ofctl(&[], "add-flow", &[ELSEWHERE])));
        self.spent(|| drop(self.switch.ofctl(&["--strict"], "del-flows", &[ELSEWHERE_MATCH])));
        (judged - idle).max(0.0)
    }

    /// Nanoseconds that the threads which evict entries run until a change is done with.
    fn spent(&self, change: impl FnOnce()) -> f64 {
        let before = self.switch.evicting_ns();
        change();
        self.switch.await_judgement();
        self.switch.evicting_ns().saturating_sub(before) as f64
    }

    /// Sends the first packets of flows; answers how many arrived behind the switch.
    fn send(&self, traffic: &Traffic, flows: std::ops::Range<usize>) -> u32 {
        let flows = &traffic.flows[flows];
        self.sink.send(0..u32::try_from(flows.len()).unwrap_or(u32::MAX), WINDOW, |flow| {
            let port = flows[flow as usize].in_port().number() as usize;
            let Some(sender) = self.senders.get(port - 1).and_then(Option::as_ref) else {
                return false;
            };
            let played = sender.play(flows, [Packet { time_ns: 0, flow, bytes: 64 }], || ());
            played.unwrap_or_else(|error| panic!("{error}"));
            true
        })
    }
}

/// What `del-flows --strict` asks for.
const ELSEWHERE_MATCH: &str = "table=0,priority=1,in_port=60000";

/// Why ours is worse, where it is.
fn why_worse(metric: &str) -> &'static str {
    match metric {
        BYTES => {
            "an entry keeps the mask of each table that its packets went through, here up to thirty: \
             by these the eviction engine finds it without a look at any other"
        }
        JUDGED => {
            "each table's mask is noted anew, which this engine has no use for; and ours holds what \
             the connection costs"
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
            Row { why: if is_worse { why_worse(metric) } else { "" }, ..row }
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
        let at = |of: fn(&AtSize) -> f64| move |one: &Measured| of(&one.sizes[index]);
        rows.extend([
            row(name(), (SET_UP, "us", Better::Less), &at(|one| one.set_up_us)),
            row(name(), (BYTES, "bytes", Better::Less), &at(|one| one.bytes)),
            row(name(), (ENTRIES, "count", Better::Neither), &at(|one| one.entries)),
            row(name(), (ARRIVED, "%", Better::Neither), &at(|one| one.arrived)),
            row_of(iterative, name(), (JUDGED, "ms", Better::Less), &at(|one| one.judged_ms)),
            row(name(), (CHANGED, "ms", Better::Less), &at(|one| one.judged_ms)),
        ]);
    }
    rows
}
