//! Frames between two devices of another program, through a switch with one packet thread.
//!
//! The program is `dpdk-testpmd`. The devices are two cards of a guest at two vhost-user ports, or
//! two memory interfaces at two memif ports. The program forwards frames from each device to the
//! other device and does not parse the frames. The switch forwards by two L4 rules. Frames circle,
//! so the slower of program and switch sets the rate. The switch copies each frame twice and
//! classifies the frame, and has one CPU. The program has the other CPU.

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

/// Measures Shunt and OVS-DPDK between vhost-user ports.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    measure_all(run, "between vhost-user ports", vhost_user)
}

/// Measures Shunt and OVS-DPDK between memif ports.
pub(crate) fn run_memif(run: &mut Run) -> Vec<Row> {
    measure_all(run, "between memif ports", memif)
}

/// A device of the program, and the port at its other end.
struct Connection {
    device: String,
    port: PortSpec,
    /// The socket at which the device listens.
    socket: PathBuf,
}

fn vhost_user(folder: &Path, number: u32) -> Connection {
    let socket = folder.join(format!("card{number}.sock"));
    let path = socket.display();
    let device = format!("net_virtio_user{number},path={path},server=1,queue_size=1024");
    Connection { device, port: PortSpec::Guest(socket.clone()), socket }
}

/// Returns one of several memory interfaces that share a socket.
fn memif(folder: &Path, id: u32) -> Connection {
    let socket = folder.join("memif.sock");
    let path = socket.display();
    let device = format!("net_memif{id},role=server,id={id},socket={path},socket-abstract=no");
    Connection { device, port: PortSpec::Memif { socket: socket.clone(), id }, socket }
}

fn measure_all(
    run: &mut Run,
    title: &'static str,
    connect: fn(&Path, u32) -> Connection,
) -> Vec<Row> {
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        println!("the other side is dpdk-testpmd, of the Debian package dpdk-dev: SKIPPED");
        return Vec::new();
    }
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    let contenders: Vec<Contender> =
        [Some(Contender::ours()), rival].into_iter().flatten().collect();
    let measure = |contender: &Contender, folder: &Path, length, seconds| {
        let connections = [0, 1].map(|number| connect(folder, number));
        measure(contender, folder, connections, length, seconds)
    };
    rows_by_length(run, title, &contenders, measure)
}

fn measure(
    contender: &Contender,
    folder: &Path,
    connections: [Connection; 2],
    length: u16,
    seconds: u64,
) -> Sample {
    let mut guest = Guest::start(&connections);
    let ports = connections.into_iter().map(|own| own.port).collect();
    let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
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

/// A program with two devices, which listens at the sockets of the devices.
struct Guest(Child);

impl Guest {
    fn start(connections: &[Connection; 2]) -> Self {
        let mut command = Command::new("dpdk-testpmd");
        // Two threads on the CPU that the switch does not use: one for commands, one for frames.
        command.args(["--lcores", "0@0,1@0", "--no-huge", "--no-shconf", "-m", "256", "--no-pci"]);
        command.arg("--no-telemetry");
        for Connection { device, socket, .. } in connections {
            // The program of the previous round has left the socket.
            let _ = fs::remove_file(socket);
            command.arg(format!("--vdev={device}"));
        }
        command.args(["--", "-i", "--total-num-mbufs=8192", "--forward-mode=io"]);
        command.args(["--txd=1024", "--rxd=1024"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let guest = Self(command.spawn().unwrap_or_else(|error| panic!("dpdk-testpmd: {error}")));
        // A client of the driver `net_memif` connects only once, when the switch starts.
        for _ in 0..100 {
            if connections.iter().all(|own| own.socket.exists()) {
                break;
            }
            sleep(Duration::from_millis(100));
        }
        guest
    }

    fn command(&mut self, words: &str) {
        let input = self.0.stdin.as_mut().unwrap_or_else(|| panic!("standard input is piped"));
        writeln!(input, "{words}").unwrap_or_else(|error| panic!("dpdk-testpmd: {error}"));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
