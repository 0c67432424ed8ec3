//! A Linux guest in QEMU at a vhost-user port: the driver of Linux, with offloads and notifications.
//!
//! QEMU emulates the processor, so the test needs no hardware for virtual machines. The guest
//! repeats rounds of a ping, a download and an upload over TCP, through the local port of a bridge
//! with `NORMAL`. Meanwhile, the switch is killed, or QEMU migrates the guest to another port.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]
#![expect(clippy::disallowed_methods, reason = "the guest runs in real time")]

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_tests::{
    daemon::{Daemon, text, wait_until},
    namespace::{Namespace, namespace_or_skip, print_skipped},
};
use tempfile::TempDir;

/// Sends 8 MiB to clients of port 9001, and reads the data of clients of port 9002.
const PEER: &str = "
import hashlib, socketserver, threading
data = bytes(range(251)) * (8 * 2 ** 20 // 251)
print('DOWNLOAD', hashlib.md5(data).hexdigest(), flush=True)
class Sends(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(data)
class Reads(socketserver.BaseRequestHandler):
    def handle(self):
        length = 0
        while part := self.request.recv(1 << 20):
            length += len(part)
        print('UPLOAD', length, flush=True)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
threading.Thread(target=Server(('', 9001), Sends).serve_forever, daemon=True).start()
Server(('', 9002), Reads).serve_forever()
";

/// Bytes of each upload of the guest.
const UPLOAD: &str = "UPLOAD 8388608";

/// Maximum time for rounds of an emulated guest.
const PATIENCE: Duration = Duration::from_secs(100);

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, output: &Path) -> Self {
        let file = File::create(output).unwrap_or_else(|error| panic!("{error}"));
        let errors = file.try_clone().unwrap_or_else(|error| panic!("{error}"));
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch in a namespace, guests at its ports, and a peer in the namespace.
struct Setup {
    daemon: Daemon,
    folder: TempDir,
    files: PathBuf,
    middle: Namespace,
    /// The last guest runs; the previous guests have migrated to this guest.
    guests: Vec<Running>,
    _peer: Running,
}

impl Setup {
    /// Starts a switch with two ports, and a guest at the first port.
    ///
    /// The card of the guest has the QEMU options `options`.
    fn start(options: &str) -> Option<Self> {
        let Some(files) = env::var_os("SHUNT_LINUX_GUEST").map(PathBuf::from) else {
            print_skipped("a Linux guest needs its files: run `cargo xtask test linux_guest`");
            return None;
        };
        let middle = namespace_or_skip("a Linux guest")?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let mut configuration = "[[bridge]]\nname = \"br0\"\nlocal = \"tap\"\n".to_owned();
        for guest in [1, 2] {
            let socket = folder.path().join(format!("guest{guest}.sock"));
            configuration += &format!(
                "[[bridge.port]]\nname = \"vm{guest}\"\ntype = \"vhost_user\"\npath = {socket:?}\n"
            );
        }
        let daemon = Daemon::start_with(&configuration, |program| {
            middle.command(&program.to_string_lossy())
        });
        let mut python = middle.command("python3");
        let peer = Running::start(python.args(["-c", PEER]), &folder.path().join("peer"));
        let guests = Vec::new();
        let mut setup = Self { daemon, folder, files, middle, guests, _peer: peer };
        setup.add_rule();
        setup.middle.run("ip", &["addr", "add", "10.66.3.1/24", "dev", "br0"]);
        setup.start_guest(options, &[]);
        Some(setup)
    }

    /// Starts a guest at the next port.
    fn start_guest(&mut self, options: &str, arguments: &[&str]) {
        let guest = self.guests.len() + 1;
        let mut command = qemu(&self.files, self.folder.path(), guest, options);
        let console = self.folder.path().join(format!("console{guest}"));
        self.guests.push(Running::start(command.args(arguments), &console));
    }

    /// Migrates the running guest to the second port,
    /// as QEMU migrates a guest to another host.
    fn migrate(&mut self, options: &str) {
        let socket = self.folder.path().join("migration.sock");
        let address = format!("unix:{}", socket.display());
        self.start_guest(options, &["-incoming", &address]);
        assert!(wait_until(|| socket.exists()), "{}", self.console());
        let monitor = self.folder.path().join("monitor1.sock");
        let monitor = UnixStream::connect(monitor).unwrap_or_else(|error| panic!("{error}"));
        monitor.set_read_timeout(Some(PATIENCE)).unwrap_or_else(|error| panic!("{error}"));
        let requests = [
            r#"{"execute": "qmp_capabilities"}"#.to_owned(),
            format!(r#"{{"execute": "migrate", "arguments": {{"uri": "{address}"}}}}"#),
        ];
        for request in requests {
            writeln!(&monitor, "{request}").unwrap_or_else(|error| panic!("{error}"));
        }
        let lines = BufReader::new(&monitor).lines().map_while(Result::ok);
        let is_reply = |line: &String| line.contains(r#""return""#) || line.contains(r#""error""#);
        let replies: Vec<String> = lines.filter(is_reply).take(2).collect();
        let is_accepted = replies.iter().all(|reply| reply.contains(r#""return""#));
        assert!(is_accepted && replies.len() == 2, "{replies:?}");
    }

    fn add_rule(&self) {
        text(&self.daemon.ovs_ofctl("br0", "add-flow", &["priority=0,actions=NORMAL"]));
    }

    fn output(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// Returns the output of the running guest.
    fn console(&self) -> String {
        self.output(&format!("console{}", self.guests.len()))
    }

    fn uploads(&self) -> usize {
        self.output("peer").matches(UPLOAD).count()
    }

    /// Returns the whole lines of the running guest about its rounds.
    fn rounds(&self) -> Vec<String> {
        let console = self.console();
        let whole = console.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = whole.filter_map(|line| line.split_once("GUEST round "));
        lines.map(|(_, round)| round.trim().to_owned()).collect()
    }

    /// Waits for further rounds with a whole download.
    ///
    /// At most `wrong_max` of these rounds may have another download.
    fn await_rounds(&self, count: usize, wrong_max: usize) {
        let expected = || {
            let peer = self.output("peer");
            peer.split_whitespace().nth(1).unwrap_or("the peer does not run").to_owned()
        };
        let before = self.rounds().len();
        let deadline = Instant::now() + PATIENCE;
        // Returns the number of rounds with a whole download, and of the other rounds.
        let counts = || {
            let (mut rounds, expected) = (self.rounds(), expected());
            let (whole, wrong): (Vec<_>, Vec<_>) =
                rounds.drain(before..).partition(|round| round.ends_with(&expected));
            (whole.len(), wrong.len())
        };
        loop {
            let (whole, wrong) = counts();
            if whole >= count && wrong <= wrong_max {
                break;
            }
            assert!(
                Instant::now() < deadline && wrong <= wrong_max,
                "a download has {}\n{}\n{}",
                expected(),
                self.console(),
                self.daemon.log()
            );
            sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the command of a guest. The guest has a number.
fn qemu(files: &Path, folder: &Path, guest: usize, options: &str) -> Command {
    let socket = |name: &str| folder.join(format!("{name}{guest}.sock")).display().to_string();
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-machine", "q35,accel=tcg", "-m", "256", "-display", "none"]);
    command.args(["-monitor", "none", "-serial", "stdio", "-no-reboot"]);
    command.args(["-object", "memory-backend-memfd,id=mem,size=256M,share=on"]);
    command.args(["-numa", "node,memdev=mem"]);
    command.arg("-kernel").arg(files.join("vmlinuz")).arg("-initrd").arg(files.join("initrd.gz"));
    command.args(["-append", "console=ttyS0 panic=-1 mitigations=off quiet"]);
    command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", socket("monitor")));
    let chardev = format!("socket,id=c0,path={},server=on,wait=off", socket("guest"));
    command.args(["-chardev", &chardev, "-netdev", "vhost-user,id=n0,chardev=c0,queues=1"]);
    // QEMU 7.2 has a bug with MSI-X and vhost-user without KVM.
    let card = "virtio-net-pci,netdev=n0,mac=02:00:00:00:00:02,mq=off,vectors=0";
    command.arg("-device").arg(format!("{card}{options}"));
    command
}

/// Lock for one guest: guests run one after the other,
/// because each guest needs a processor.
static ONE_GUEST: Mutex<()> = Mutex::new(());

#[test]
fn tcp_of_linux_guest_survives_killed_switch() {
    check_kill("");
}

/// QEMU cannot determine where a killed switch stopped in a packed ring.
#[test]
fn tcp_over_packed_rings_survives_a_killed_switch() {
    check_kill(",packed=on");
}

fn check_kill(options: &str) {
    let _guest = ONE_GUEST.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut setup) = Setup::start(options) else { return };
    setup.await_rounds(2, 0);
    let before = setup.uploads();
    assert!(before >= 2, "{}", setup.output("peer"));
    let Setup { daemon, middle, .. } = &mut setup;
    daemon.start_next("-KILL", |program| middle.command(&program.to_string_lossy()));
    setup.add_rule();
    // The kill may break a round.
    setup.await_rounds(2, 1);
    assert!(setup.uploads() > before, "{}", setup.output("peer"));
    let shown = text(&setup.daemon.shuntctl(&["ports", "--json"]));
    assert!(shown.contains("\"up\""), "{shown}");
}

/// The switch marks changed pages while QEMU copies the memory of the guest.
#[test]
fn tcp_of_a_linux_guest_survives_its_migration() {
    let _guest = ONE_GUEST.lock().unwrap_or_else(PoisonError::into_inner);
    let options = ",packed=on";
    let Some(mut setup) = Setup::start(options) else { return };
    setup.await_rounds(1, 0);
    let before = setup.uploads();
    setup.migrate(options);
    setup.await_rounds(2, 0);
    assert!(setup.uploads() > before, "{}", setup.output("peer"));
}
