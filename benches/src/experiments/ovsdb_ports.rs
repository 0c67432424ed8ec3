//! Time of `ovs-vsctl` to add one port after the other, to few ports and to many.
//!
//! Each command is a process that reads the database, changes it, and waits until the switch has
//! applied the change. The first and the last ports of a bridge are timed. Shunt has its embedded
//! server, or follows `ovsdb-server` as the rival does. The ports are TAP devices, and a bridge has
//! no rules, so that no packet is flooded to them.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    cpu::Account,
    experiment::{Row, Run, Samples},
    switch::{Contender, Setup, Switch, output},
};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Attempts to reach a database that starts.
const START_ATTEMPTS: u32 = 600;

const TIME: &str = "time for `ovs-vsctl` to add a port";
const CPU: &str = "CPU of the switch and its database to add a port";

/// The switch, and the server of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseKind {
    /// Shunt with its embedded server.
    Embedded,
    /// Shunt with `ovsdb-server`.
    Foreign,
    /// Open vSwitch with `ovsdb-server`.
    Rival,
}

/// The ports of a round, and those of them that are timed.
#[derive(Clone, Copy, Debug)]
struct PortCounts {
    all: usize,
    /// Number of timed ports, at the beginning and at the end.
    timed: usize,
}

/// The mean costs of a timed port, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct PortCost {
    time: f64,
    cpu: f64,
}

/// A running switch with its database.
struct DatabaseSwitch {
    /// Processes of Shunt and its database, which end on drop.
    daemons: Vec<Child>,
    /// Open vSwitch, which ends on drop.
    _rival: Option<Box<dyn Switch>>,
    /// Ids of the processes of the switch and of its database.
    ids: Vec<u32>,
    socket: PathBuf,
}

/// Adds ports to each switch, in alternating rounds.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    // The host would send packets of its own on each new device.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let contenders = Contender::both_on_devices();
    let [ours, rivals @ ..] = contenders.as_slice() else { return Vec::new() };
    let (rounds, all, timed) = (run.either(3, 1), run.either(1000, 40), run.either(100, 10));
    let counts = PortCounts { all, timed };
    let mut kinds = vec![DatabaseKind::Embedded];
    if !rivals.is_empty() {
        kinds.extend([DatabaseKind::Foreign, DatabaseKind::Rival]);
    }
    run.begin(rounds * kinds.len());
    let mut costs: Vec<Vec<[PortCost; 2]>> = kinds.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (kind, costs) in kinds.iter().zip(&mut costs) {
            let what = format!("{all} ports, {kind:?}, round {}", round + 1);
            costs.push(run.step(&what, |folder| {
                let prefix = format!("{}{round}-", kind.prefix());
                let switch = DatabaseSwitch::start(*kind, ours, &folder.join(kind.prefix()));
                switch.measure(&prefix, counts)
            }));
        }
    }
    let rival = rivals.first().map(Contender::name).zip(costs.get(2));
    let mut rows = Vec::new();
    let readers: [fn(&PortCost) -> f64; 2] = [|cost| cost.time, |cost| cost.cpu];
    for (metric, read) in [TIME, CPU].into_iter().zip(readers) {
        for (kind, own) in
            kinds.iter().zip(&costs).filter(|(kind, _)| **kind != DatabaseKind::Rival)
        {
            for (window, ports) in counts.names().into_iter().enumerate() {
                let samples = |costs: &Vec<[PortCost; 2]>| {
                    Samples(costs.iter().map(|round| read(&round[window])).collect())
                };
                let name = format!("{ports}, {}", kind.database());
                let rival = rival.as_ref().map(|(name, costs)| (name.clone(), samples(costs)));
                rows.push(Row { ours: samples(own), rival, ..Row::new(name, metric, "ms") });
            }
        }
    }
    rows
}

impl PortCounts {
    /// Returns the names of the timed ports.
    fn names(self) -> [String; 2] {
        let Self { all, timed } = self;
        [format!("ports 1 to {timed}"), format!("ports {} to {all}", all - timed + 1)]
    }
}

impl DatabaseKind {
    /// Returns the first letter of the names of devices.
    ///
    /// Devices of an earlier switch may still be closing.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Embedded => "e",
            Self::Foreign => "f",
            Self::Rival => "r",
        }
    }

    const fn database(self) -> &'static str {
        match self {
            Self::Embedded => "embedded server",
            Self::Foreign | Self::Rival => "ovsdb-server",
        }
    }
}

impl DatabaseSwitch {
    /// Starts a switch with the bridge `br0`, which has no rules.
    fn start(kind: DatabaseKind, ours: &Contender, folder: &Path) -> Self {
        if kind == DatabaseKind::Rival {
            let rival = Contender::OpenVSwitch.start(folder, &Setup::default());
            let server = fs::read_to_string(rival.folder().join("ovsdb-server.pid"));
            let server = server.ok().and_then(|id| id.trim().parse().ok());
            let ids = [Some(rival.id()), server].into_iter().flatten().collect();
            let socket = rival.folder().join("db.sock");
            return Self { daemons: Vec::new(), _rival: Some(rival), ids, socket };
        }
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let socket = folder.join("db.sock");
        let mut switch = Self { daemons: Vec::new(), _rival: None, ids: Vec::new(), socket };
        let remote = format!("unix:{}", switch.socket.display());
        let mut text = "[logging]\nfilter = \"warn\"\n[threads]\npacket = 1\n".to_owned();
        if kind == DatabaseKind::Embedded {
            let log = folder.join("conf.db");
            text += &format!("[ovsdb]\nsocket = {:?}\nlog = {log:?}\n", switch.socket);
        } else {
            switch.start_server(folder, &remote);
        }
        let file = folder.join("shunt.toml");
        let written = fs::write(&file, text);
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let Contender::Shunt(binaries) = ours else { panic!("{ours:?} is not Shunt") };
        let mut command = Command::new(binaries.join("shuntd"));
        command.arg("--config").arg(&file).arg("--run-dir").arg(folder);
        if kind == DatabaseKind::Foreign {
            command.args(["--db", &remote]);
        }
        switch.spawn(&mut command);
        switch.await_database();
        switch.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "fail_mode=secure"]);
        switch
    }

    fn start_server(&mut self, folder: &Path, remote: &str) {
        let file = folder.join("conf.db").display().to_string();
        output("ovsdb-tool", &["create", &file, SCHEMA]);
        let mut command = Command::new("ovsdb-server");
        let control = folder.join("ovsdb-server.ctl");
        command.arg(&file).arg(format!("--remote=p{remote}"));
        command.arg(format!("--unixctl={}", control.display()));
        command.args(["-vconsole:off", "-vsyslog:off"]);
        self.spawn(&mut command);
        self.await_database();
        self.vsctl(&["--no-wait", "init"]);
    }

    fn spawn(&mut self, command: &mut Command) {
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        self.ids.push(child.id());
        self.daemons.push(child);
    }

    /// Waits until the server of the database accepts clients.
    fn await_database(&self) {
        for _ in 0..START_ATTEMPTS {
            if self.socket.exists() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("{}: no server", self.socket.display());
    }

    fn vsctl(&self, words: &[&str]) {
        let database = format!("--db=unix:{}", self.socket.display());
        output("ovs-vsctl", &[&[database.as_str()], words].concat());
    }

    /// Adds ports; returns the costs of the first and of the last ones.
    fn measure(&self, prefix: &str, counts: PortCounts) -> [PortCost; 2] {
        let PortCounts { all, timed } = counts;
        let first = self.add(prefix, 1..=timed);
        self.add(prefix, timed + 1..=all - timed);
        [first, self.add(prefix, all - timed + 1..=all)]
    }

    /// Adds ports with some numbers; returns their mean costs.
    fn add(&self, prefix: &str, numbers: RangeInclusive<usize>) -> PortCost {
        let accounts: Vec<Account> = self.ids.iter().map(|id| Account::open(*id)).collect();
        let (start, count) = (Instant::now(), numbers.clone().count().max(1) as f64);
        for number in numbers {
            let name = format!("{prefix}{number}");
            let port = ["add-port", "br0", &name, "--", "set", "interface", &name, "type=internal"];
            self.vsctl(&port);
        }
        let time = start.elapsed().as_secs_f64() * 1e3 / count;
        let cpu = accounts.iter().map(|account| account.spent().run_ns).sum::<f64>() / 1e6 / count;
        PortCost { time, cpu }
    }
}

impl Drop for DatabaseSwitch {
    fn drop(&mut self) {
        // The switch ends before its database.
        for daemon in self.daemons.iter_mut().rev() {
            let _ = Command::new("kill").arg(daemon.id().to_string()).output();
            let _ = daemon.wait();
        }
    }
}
