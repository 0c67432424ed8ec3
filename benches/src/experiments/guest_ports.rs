//! Frames between two cards of a guest, through a switch with one packet thread.
//!
//! The guest is DPDK's virtio driver in `dpdk-testpmd`, with two cards at two vhost-user ports. It forwards
//! from each card to the other without a look at the frames, and the switch does so by two L4 rules. Frames
//! circle, so the slower of the two sets the rate. The switch copies each frame twice and classifies it, and
//! has one CPU; the guest has the other.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use super::forwarding::{FORWARDING_CPU, Sample, rows_by_length, sample};
use crate::{
    experiment::{Row, Run},
    switch::{Contender, PortSpec, Setup},
};

/// The rules: L4 matches, so that no switch can take a shortcut.
const RULES: [&str; 2] = ["udp,in_port=1,actions=output:2", "udp,in_port=2,actions=output:1"];

/// Bursts of 32 frames that each card sends at the start.
const BURSTS: usize = 8;

/// Time for the guest to start, and for the switch to connect to it.
const START: Duration = Duration::from_secs(4);

/// Measures Shunt and OVS-DPDK with each length of frames.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        println!("the guest is dpdk-testpmd, of the Debian package dpdk-dev: SKIPPED");
        return Vec::new();
    }
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    let contenders: Vec<Contender> =
        [Some(Contender::ours()), rival].into_iter().flatten().collect();
    rows_by_length(run, "between vhost-user ports", &contenders, measure)
}

fn measure(contender: &Contender, folder: &Path, length: u16, seconds: u64) -> Sample {
    let sockets = ["card0.sock", "card1.sock"].map(|name| folder.join(name));
    let mut guest = Guest::start(&sockets);
    let setup = Setup {
        ports: sockets.iter().cloned().map(PortSpec::Guest).collect(),
        cpu: Some(FORWARDING_CPU),
        ..Setup::default()
    };
    let switch = contender.start(folder, &setup);
    for rule in RULES {
        switch.ofctl(&[], "add-flow", &[rule]);
    }
    sleep(START);
    guest.command(&format!("set txpkts {length}"));
    guest.command(&format!("start tx_first {BURSTS}"));
    sleep(Duration::from_secs(seconds.min(2)));
    let sample = sample(&*switch, seconds);
    guest.command("stop");
    sample
}

/// A guest with two cards. It listens at their sockets.
struct Guest(Child);

impl Guest {
    fn start(sockets: &[PathBuf; 2]) -> Self {
        let mut command = Command::new("dpdk-testpmd");
        // Two threads on the CPU that the switch does not use: one for commands, one for frames.
        command.args(["--lcores", "0@0,1@0", "--no-huge", "--no-shconf", "-m", "256", "--no-pci"]);
        command.arg("--no-telemetry");
        for (card, path) in sockets.iter().enumerate() {
            // The guest of the round before has left it.
            let _ = fs::remove_file(path);
            let path = path.display();
            let device = format!("net_virtio_user{card},path={path},server=1,queue_size=1024");
            command.arg(format!("--vdev={device}"));
        }
        command.args(["--", "-i", "--total-num-mbufs=8192", "--forward-mode=io"]);
        command.args(["--txd=1024", "--rxd=1024"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("dpdk-testpmd: {error}")))
    }

    fn command(&mut self, words: &str) {
        let input = self.0.stdin.as_mut().unwrap_or_else(|| panic!("it is piped"));
        writeln!(input, "{words}").unwrap_or_else(|error| panic!("dpdk-testpmd: {error}"));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
