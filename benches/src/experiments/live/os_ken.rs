//! os-ken as the controller: others' OpenFlow, driven by lines of JSON.
//!
//! Its application (`benches/tools/os_ken_flapper.py`) makes the flow-mod and the barrier request, and
//! tells when it began and when the reply was there, by the clock that this side has too.

use std::{
    env,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::{
    bed::{TABLES, WATCHED, port},
    flap::{Flapper, PRIORITY, is_new, outline_of},
    probe::label_address,
};
use crate::controller::Changed;

/// The Python that has os-ken, as `cargo xtask bench` names it.
const PYTHON: &str = "SHUNT_OS_KEN_PYTHON";
/// Where the application finds this side.
const FLAPPER: &str = "SHUNT_FLAPPER";
/// How long the switch and the application may take to connect.
const CONNECT: Duration = Duration::from_secs(40);
/// How long a barrier may take.
const ANSWER: Duration = Duration::from_secs(120);

/// A running os-ken with a switch.
#[derive(Debug)]
pub(crate) struct OsKen {
    orders: TcpStream,
    answers: BufReader<TcpStream>,
    _process: Process,
}

impl OsKen {
    /// The Python that has it; `None` where there is none, which is said.
    pub(crate) fn python() -> Option<PathBuf> {
        let python = env::var_os(PYTHON).map(PathBuf::from);
        if python.is_none() {
            println!("without os-ken: {PYTHON} is not set, which `cargo xtask bench` does");
        }
        python
    }

    /// Starts it, and waits until a switch has connected.
    ///
    /// # Panics
    ///
    /// When none does.
    pub(crate) fn start(python: &Path, folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("{error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("{error}"));
        let log = folder.join("os-ken.log");
        let file = File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(python);
        command.arg(root.join("../tests/tools/os_ken_manager.py"));
        command.args(["--ofp-tcp-listen-port", "6653", "--ofp-listen-host", "127.0.0.1"]);
        command.arg(root.join("tools/os_ken_flapper.py"));
        command.env(FLAPPER, address.to_string()).stdout(Stdio::null()).stderr(file);
        let process = command.spawn().unwrap_or_else(|error| panic!("os-ken: {error}"));
        let process = Process(process);
        let orders = accepted(&listener, &log);
        let ready = orders.set_nodelay(true);
        let ready = ready.and_then(|()| orders.set_read_timeout(Some(ANSWER)));
        let answers = ready.and_then(|()| orders.try_clone()).map(BufReader::new);
        let answers = answers.unwrap_or_else(|error| panic!("os-ken: {error}"));
        Self { orders, answers, _process: process }
    }
}

impl Flapper for OsKen {
    fn bring(&mut self, number: u32) -> Changed {
        let order = json!({
            "number": number,
            "command": if is_new(number) { "add" } else { "modify_strict" },
            "table": TABLES - 1,
            "priority": PRIORITY,
            "network": format!("10.0.0.0/{}", Ipv4Addr::from(!(WATCHED - 1))),
            "label": label_address(number),
            "output": port(outline_of(number)),
        });
        let written = self.orders.write_all(format!("{order}\n").as_bytes());
        written.unwrap_or_else(|error| panic!("os-ken: {error}"));
        let mut answer = String::new();
        let read = self.answers.read_line(&mut answer);
        read.unwrap_or_else(|error| panic!("os-ken has no barrier reply: {error}"));
        let words: Result<Vec<u64>, _> =
            answer.split(' ').map(|word| word.trim().parse()).collect();
        match words.as_deref() {
            Ok(&[own, sent, acked]) if own == u64::from(number) => {
                Changed { sent: moment(sent), acked: moment(acked) }
            }
            _ => panic!("os-ken: {answer}"),
        }
    }

    fn rest(&mut self, time: Duration) {
        // os-ken answers the switch that asks whether it is there.
        sleep(time);
    }
}

/// When the system's monotonic clock said so many nanoseconds, which is not long ago.
fn moment(nanoseconds: u64) -> Instant {
    let clock = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    let clock = clock.unwrap_or_else(|error| panic!("the clock: {error}"));
    // Read after the clock, so that a moment seems to be later, if anything: no packet is held against a
    // switch for that.
    Instant::now() - clock.saturating_sub(Duration::from_nanos(nanoseconds))
}

/// A process that is ended when this is dropped.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn accepted(listener: &TcpListener, log: &Path) -> TcpStream {
    let start = Instant::now();
    listener.set_nonblocking(true).unwrap_or_else(|error| panic!("{error}"));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap_or_else(|error| panic!("{error}"));
                return stream;
            }
            Err(_) if start.elapsed() < CONNECT => sleep(Duration::from_millis(20)),
            Err(_) => {
                let said = fs::read_to_string(log).unwrap_or_default();
                panic!("no switch has connected to os-ken: {said}");
            }
        }
    }
}
