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
    let devices = Devices { title: "between vhost-user ports", connect: vhost_user, queues: 1 };
    measure_all(run, &devices)
}

/// Measures Shunt and OVS-DPDK between memif ports.
pub(crate) fn run_memif(run: &mut Run) -> Vec<Row> {
    let devices = Devices { title: "between memif ports", connect: memif, queues: MEMIF_QUEUES };
    measure_all(run, &devices)
}

/// Queues of a memory interface, in each direction.
///
/// A client of the driver `net_memif` offers a ring for each of its transmit queues, and a server
/// with fewer queues refuses the connection. OVS-DPDK has a transmit queue for each of its two
/// threads, and its packet thread uses one of them.
const MEMIF_QUEUES: usize = 2;

/// A kind of device of the program.
struct Devices {
    title: &'static str,
    connect: fn(&Path, u32) -> Connection,
    /// Queues of a device, in each direction.
    queues: usize,
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

fn measure_all(run: &mut Run, devices: &Devices) -> Vec<Row> {
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        return run.skip("there is no dpdk-testpmd: run `apt-get install dpdk-dev`");
    }
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    let contenders: Vec<Contender> =
        [Some(Contender::ours()), rival].into_iter().flatten().collect();
    let measure = |contender: &Contender, folder: &Path, length, seconds| {
        measure(contender, folder, devices, length, seconds)
    };
    rows_by_length(run, devices.title, &contenders, measure)
}

fn measure(
    contender: &Contender,
    folder: &Path,
    devices: &Devices,
    length: u16,
    seconds: u64,
) -> Sample {
    let connections = [0, 1].map(|number| (devices.connect)(folder, number));
    let mut guest = Guest::start(&connections, devices.queues);
    let ports = connections.into_iter().map(|own| own.port).collect();
    let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
    let switch = contender.start(folder, &setup);
    for rule in RULES {
        switch.ofctl(&[], "add-flow", &[rule]);
    }
    sleep(START);
    guest.command(&format!("set txpkts {length}"));
    // The program sends these bursts by each queue that the switch has. Shunt has one, and sends
    // by one. OVS-DPDK receives from all queues, and sends all frames by one.
    let queues = if *contender == Contender::OpenVSwitchDpdk { devices.queues } else { 1 };
    guest.command(&format!("start tx_first {}", BURSTS / queues));
    sleep(Duration::from_secs(seconds.min(2)));
    let sample = sample(&*switch, seconds);
    guest.command("stop");
    sample
}

/// A program with two devices, which listens at the sockets of the devices.
struct Guest(Child);

impl Guest {
    /// Starts the program; each device has `queues` queues in each direction.
    fn start(connections: &[Connection; 2], queues: usize) -> Self {
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
        command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
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
