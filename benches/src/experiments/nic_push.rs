//! Rate of P4Runtime insertions and removals in the embedded NIC, over loopback.
//!
//! Client and server are the client and server of the switch, in one process, with gRPC over a
//! socket. The rate includes the whole path: encode, send, check, insert into the stages of the
//! NIC, reply, and notify the owner. CPU time is the sum of both ends.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, mpsc},
    time::{Duration, Instant, SystemTime},
};

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    offload::{LtmIndex, OffloadDevice, OffloadEvent, Operation, Ticket},
    partition::StageId,
};
use shunt_nic::{Nic, NicLimits};
use shunt_p4runtime::{
    client::{ClientSettings, P4RuntimeDevice},
    codec::Ports,
    program::Program,
    server::ClockReading,
};
use shunt_pipeline::DatapathAction;
use tokio::runtime::Runtime;

use crate::{
    cpu::Account,
    experiment::{Better, Row, Run, Samples},
    switch::{is_root, output},
};

const STAGES: u8 = 4;
/// Updates per write request.
const BATCHES: [usize; 4] = [1, 16, 256, 1024];

const INSERTED: &str = "rules inserted per second";
const REMOVED: &str = "rules removed per second, with their counters read";
const CPU: &str = "CPU of both ends to insert a rule";

/// Runs all batch sizes.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    if is_root() {
        // The network namespace of the run is new.
        output("ip", &["link", "set", "lo", "up"]);
    }
    let rounds = run.either(5, 2);
    let all = run.either(200_000, 20_000);
    run.begin(BATCHES.len() * rounds);
    let mut rows = Vec::new();
    for batch in BATCHES {
        // Batches of one rule take minutes for all rules.
        let rules = rules(if batch == 1 { all / 20 } else { all });
        let measured: Vec<Measured> = (0..rounds)
            .map(|_| {
                run.step(&format!("batches of {batch}"), |_| Testbed::new(batch).measure(&rules))
            })
            .collect();
        let row = |metric, unit, better, of: fn(&Measured) -> f64| Row {
            better,
            ours: Samples(measured.iter().map(of).collect()),
            ..Row::new(format!("batches of {batch}"), metric, unit)
        };
        rows.push(row(INSERTED, "1/s", Better::More, |one| one.inserted));
        rows.push(row(REMOVED, "1/s", Better::More, |one| one.removed));
        rows.push(row(CPU, "us", Better::Less, |one| one.cpu_us));
    }
    let order = [INSERTED, REMOVED, CPU];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Returns the system time. The run is too short for clock steps to matter.
fn now() -> ClockReading {
    let day = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
    ClockReading { steady: day, day }
}

/// Results of one round.
struct Measured {
    inserted: f64,
    removed: f64,
    cpu_us: f64,
}

/// A NIC with a client.
struct Testbed {
    target: P4RuntimeDevice,
    news: mpsc::Receiver<()>,
    _runtime: Runtime,
}

impl Testbed {
    fn new(batch: usize) -> Self {
        let runtime = Runtime::new().unwrap_or_else(|error| panic!("no runtime: {error}"));
        let program = Program::new(STAGES, 65_536).unwrap_or_else(|error| panic!("{error}"));
        let nic = Nic::start(
            program,
            NicLimits::default(),
            Vec::new(),
            (Ipv4Addr::LOCALHOST, 0).into(),
            now,
            1,
        );
        let nic = runtime.block_on(nic).unwrap_or_else(|error| panic!("no NIC: {error}"));
        let settings = ClientSettings {
            program,
            batch,
            ports: Ports(BTreeMap::new()).into(),
            ..ClientSettings::new(format!("http://{}", nic.address()))
        };
        runtime.spawn(nic.run(std::future::pending()));
        // At most one token waits: a receiver handles all notifications together.
        let (wake, news) = mpsc::sync_channel(1);
        let target = P4RuntimeDevice::new(settings, runtime.handle(), move || {
            let _ = wake.try_send(());
        });
        let mut testbed = Self { target, news, _runtime: runtime };
        while !testbed.take_events().contains(&OffloadEvent::Restored) {}
        testbed
    }

    fn take_events(&mut self) -> Vec<OffloadEvent> {
        let mut events = Vec::new();
        let news = self.news.recv_timeout(Duration::from_secs(10));
        news.unwrap_or_else(|_| panic!("the NIC does not reply"));
        self.target.poll(&mut events);
        events
    }

    fn measure(mut self, rules: &[Arc<LtmRule>]) -> Measured {
        let account = Account::open(std::process::id());
        let insert = |(rule, number): (&Arc<LtmRule>, u64)| {
            let stage = u8::try_from(number % u64::from(STAGES)).ok().and_then(StageId::new);
            let stage = stage.unwrap_or_else(|| panic!("stage {number}"));
            Operation::Insert { entry: LtmIndex(number), stage, rule: Arc::clone(rule) }
        };
        let inserted = self.operations_rate(rules.iter().zip(0..).map(insert));
        let cpu_us = account.spent().run_ns / 1e3 / rules.len() as f64;
        let remove = |number| Operation::Remove { entry: LtmIndex(number) };
        let removed = self.operations_rate((0..rules.len() as u64).map(remove));
        Measured { inserted, removed, cpu_us }
    }

    /// Returns the operations per second.
    fn operations_rate(&mut self, operations: impl Iterator<Item = Operation>) -> f64 {
        let mut left: Vec<_> = (0..).map(Ticket).zip(operations).collect();
        let count = left.len();
        let (start, mut replied) = (Instant::now(), 0);
        while replied < count {
            self.target.submit(&mut left).unwrap_or_else(|error| panic!("{error}"));
            for event in self.take_events() {
                match event {
                    OffloadEvent::Completed { result: Ok(()), .. } => replied += 1,
                    OffloadEvent::Counted { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        count as f64 / start.elapsed().as_secs_f64()
    }
}

/// Returns LTM rules that match a destination and a port, and rewrite the TTL.
fn rules(count: usize) -> Vec<Arc<LtmRule>> {
    let matching = |fields: &[(FieldId, u128)]| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        for (field, value) in fields {
            key.set_field(*field, *value);
            mask.add_field(*field);
        }
        Match::new(&key, &mask)
    };
    let rule = |number: usize| {
        let fields = [
            (FieldId::EthType, 0x0800),
            (FieldId::IpProto, 6),
            (FieldId::Ipv4Dst, number as u128),
            (FieldId::TcpDst, 443),
        ];
        let rewrite = matching(&[(FieldId::NwTtl, 63)]);
        Arc::new(LtmRule {
            tag: Tag::new(1),
            matching: matching(&fields),
            length: 3,
            actions: [DatapathAction::SetHeader(rewrite.clone())].into(),
            rewrite,
            next: Next::Tag(Tag::new(2)),
        })
    };
    (0..count).map(rule).collect()
}
