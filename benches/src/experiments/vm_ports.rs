//! TCP between two virtual machines, through rules that rewrite addresses.
//!
//! Each machine is a Linux guest in QEMU at a vhost-user port. QEMU emulates the processors, so no
//! hardware for virtual machines is needed. The first guest sends to an address that only the rules
//! know, and the port of the second guest counts the bytes. Guests and switch share the CPUs, so the
//! guests set the rate if the switch is fast enough.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::forwarding::FORWARDING_CPU;
use crate::{
    cpu::Account,
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, PortSpec, Setup, Switch},
};

/// The environment variable with the folder of `vmlinuz` and `initrd.gz`.
const FILES: &str = "SHUNT_LINUX_GUEST";

/// The rules that give the second guest another address for the first guest.
const RULES: [&str; 4] = [
    "ip,in_port=1,nw_dst=10.66.3.4,actions=set_field:10.66.3.2->ip_dst,output:2",
    "ip,in_port=2,nw_src=10.66.3.2,actions=set_field:10.66.3.4->ip_src,output:1",
    "arp,in_port=1,arp_tpa=10.66.3.4,actions=set_field:10.66.3.2->arp_tpa,output:2",
    "arp,in_port=2,arp_spa=10.66.3.2,actions=set_field:10.66.3.4->arp_spa,output:1",
];

/// Maximum time until emulated guests send.
const BOOT_MAX: Duration = Duration::from_secs(240);
/// Pause between two checks for the start.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes after which the guests count as connected.
const STARTED_BYTES: u64 = 16 << 20;

const RATE: &str = "TCP rate between two guests";
const CORES: &str = "CPU cores of the switch";

/// Values of one run.
#[derive(Clone, Copy, Debug)]
struct VmSample {
    /// Gbit/s of the frames that the second guest got.
    rate: f64,
    /// CPU cores of the switch.
    cores: f64,
}

/// A guest in QEMU, which is stopped on drop.
struct Vm(Child);

/// Measures Shunt and OVS-DPDK in turns.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let Some(files) = env::var_os(FILES).map(PathBuf::from) else {
        return run.skip(
            "there are no files of a Linux guest: run `cargo xtask bench ports-vms`, which installs \
             QEMU and downloads a kernel of Debian",
        );
    };
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    let contenders: Vec<Contender> =
        [Some(Contender::ours()), rival].into_iter().flatten().collect();
    let (rounds, seconds) = (run.either(3, 1), run.either(10, 3) as u64);
    run.begin(rounds * contenders.len());
    let mut samples = vec![Vec::new(); contenders.len()];
    for round in 1..=rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let what = format!("{}, round {round}", contender.name());
            let measured = run.step(&what, |folder| measure(contender, folder, &files, seconds));
            samples.push(measured);
        }
    }
    rows_of(&contenders, &samples)
}

fn rows_of(contenders: &[Contender], samples: &[Vec<VmSample>]) -> Vec<Row> {
    let row = |metric, unit, better, read: fn(&VmSample) -> f64| {
        let values = |samples: &Vec<VmSample>| Samples(samples.iter().map(read).collect());
        Row {
            better,
            ours: samples.first().map(values).unwrap_or_default(),
            rival: contenders.get(1).map(Contender::name).zip(samples.get(1).map(values)),
            ..Row::new("TCP, rewritten addresses", metric, unit)
        }
    };
    vec![
        row(RATE, "Gbit/s", Better::More, |sample| sample.rate),
        // The rates differ, so more CPU time is not worse.
        row(CORES, "cores", Better::Neither, |sample| sample.cores),
    ]
}

fn measure(contender: &Contender, folder: &Path, files: &Path, seconds: u64) -> VmSample {
    let sockets = [1, 2].map(|number| folder.join(format!("vm{number}.sock")));
    let roles = ["send", "receive"].into_iter().zip(&sockets).zip(1..);
    let _guests: Vec<Vm> =
        roles.map(|((role, socket), number)| Vm::start(files, role, socket, number)).collect();
    let ports = sockets.iter().cloned().map(PortSpec::Guest).collect();
    let setup = Setup { ports, cpu: Some(FORWARDING_CPU), ..Setup::default() };
    let switch = contender.start(folder, &setup);
    for rule in RULES {
        switch.ofctl(&[], "add-flow", &[rule]);
    }
    let start = Instant::now();
    while received_bytes(&*switch) < STARTED_BYTES {
        assert!(start.elapsed() < BOOT_MAX, "{}: no TCP between the guests", contender.name());
        sleep(LOOK);
    }
    let account = Account::open(switch.id());
    let (bytes, start) = (received_bytes(&*switch), Instant::now());
    sleep(Duration::from_secs(seconds));
    let (bytes, elapsed) = (received_bytes(&*switch) - bytes, start.elapsed());
    VmSample {
        rate: bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e9,
        cores: account.spent().share() / 100.0,
    }
}

/// Returns the bytes that the switch has sent to the second guest.
fn received_bytes(switch: &dyn Switch) -> u64 {
    sent_bytes(&switch.ofctl(&[], "dump-ports", &["2"])).unwrap_or_default()
}

/// Returns the bytes that a port has sent, from statistics of `ovs-ofctl`.
fn sent_bytes(statistics: &str) -> Option<u64> {
    let sent = statistics.split("tx pkts=").nth(1)?.split("bytes=").nth(1)?;
    sent.split(',').next()?.trim().parse().ok()
}

impl Vm {
    /// Starts a guest that listens at a vhost-user socket.
    fn start(files: &Path, role: &str, socket: &Path, number: u32) -> Self {
        // The guest of the previous round has left the socket.
        let _ = fs::remove_file(socket);
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", "q35,accel=tcg", "-m", "256", "-display", "none"]);
        command.args(["-monitor", "none", "-serial", "null", "-no-reboot"]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=256M,share=on"]);
        command.args(["-numa", "node,memdev=mem"]);
        command.arg("-kernel").arg(files.join("vmlinuz"));
        command.arg("-initrd").arg(files.join("initrd.gz"));
        // Without a console, the first program of the guest has no standard streams.
        let options = format!("console=ttyS0 panic=-1 mitigations=off quiet shunt_role={role}");
        command.args(["-append", &options]);
        let chardev = format!("socket,id=c0,path={},server=on,wait=off", socket.display());
        command.args(["-chardev", &chardev, "-netdev", "vhost-user,id=n0,chardev=c0,queues=1"]);
        // QEMU 7.2 has a bug with MSI-X and vhost-user without KVM.
        let card = format!("virtio-net-pci,netdev=n0,mac=02:00:00:00:00:{number:02x},vectors=0");
        command.args(["-device", &card]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("qemu-system-x86_64: {error}")))
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_ovs_ofctl_are_read() {
        let text = "OFPST_PORT reply (OF1.3) (xid=0x2): 1 ports\n  port  2: rx pkts=7, bytes=70, \
                    drop=0, errs=0, frame=0, over=0, crc=0\n           tx pkts=9, bytes=512, \
                    drop=0, errs=0, coll=0\n";
        assert_eq!(sent_bytes(text), Some(512));
        assert_eq!(sent_bytes(""), None);
    }

    #[test]
    fn only_the_rate_is_compared() {
        let samples = |rate| vec![VmSample { rate, cores: 1.0 }; 3];
        let contenders = [Contender::ours(), Contender::OpenVSwitch];
        let rows = rows_of(&contenders, &[samples(2.0), samples(1.0)]);
        let ratios = rows.iter().map(|row| row.ratio().map(|ratio| ratio.middle));
        assert_eq!(ratios.collect::<Vec<_>>(), [Some(2.0), None]);
        assert!(rows_of(&contenders[..1], &[samples(2.0)]).iter().all(|row| row.rival.is_none()));
    }
}
