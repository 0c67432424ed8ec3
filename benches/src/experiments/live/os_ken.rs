//! os-ken as the controller: a third-party OpenFlow implementation, controlled by lines of JSON.
//!
//! The os-ken application (`benches/tools/os_ken_flapper.py`) sends the flow-mod and the barrier
//! request. The application reports the times of the request and the reply on the monotonic clock.
//! This process uses the same clock.

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
    flap::{Flapper, PRIORITY, exit_of, is_new},
    probe::label_address,
    testbed::{TABLES, WATCHED, port},
};
use crate::controller::Changed;

/// Variable with the Python that has os-ken; `cargo xtask bench` sets the variable.
const PYTHON: &str = "SHUNT_OS_KEN_PYTHON";
/// Environment variable with the address of this process, for the application.
const FLAPPER: &str = "SHUNT_FLAPPER";
/// Maximum time for the switch and the application to connect.
const CONNECT: Duration = Duration::from_secs(40);
/// Maximum time until a barrier reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running os-ken with a switch.
#[derive(Debug)]
pub(crate) struct OsKen {
    orders: TcpStream,
    replies: BufReader<TcpStream>,
    _process: Process,
}

impl OsKen {
    /// Returns the Python with os-ken.
    /// Without such a Python, prints a message and returns `None`.
    pub(crate) fn python() -> Option<PathBuf> {
        let python = env::var_os(PYTHON).map(PathBuf::from);
        if python.is_none() {
            println!("without os-ken: {PYTHON} is not set; `cargo xtask bench` sets it");
        }
        python
    }

    /// Starts os-ken, and waits until a switch has connected.
    ///
    /// # Panics
    ///
    /// If no switch connects.
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
        let orders = accept_switch(&listener, &log);
        let ready = orders.set_nodelay(true);
        let ready = ready.and_then(|()| orders.set_read_timeout(Some(REPLY_TIMEOUT)));
        let replies = ready.and_then(|()| orders.try_clone()).map(BufReader::new);
        let replies = replies.unwrap_or_else(|error| panic!("os-ken: {error}"));
        Self { orders, replies, _process: process }
    }
}

impl Flapper for OsKen {
    fn install(&mut self, number: u32) -> Changed {
        let order = json!({
            "number": number,
            "command": if is_new(number) { "add" } else { "modify_strict" },
            "table": TABLES - 1,
            "priority": PRIORITY,
            "network": format!("10.0.0.0/{}", Ipv4Addr::from(!(WATCHED - 1))),
            "label": label_address(number),
            "output": port(exit_of(number)),
        });
        let written = self.orders.write_all(format!("{order}\n").as_bytes());
        written.unwrap_or_else(|error| panic!("os-ken: {error}"));
        let mut answer = String::new();
        let read = self.replies.read_line(&mut answer);
        read.unwrap_or_else(|error| panic!("os-ken reports no barrier reply: {error}"));
        let words: Result<Vec<u64>, _> =
            answer.split(' ').map(|word| word.trim().parse()).collect();
        match words.as_deref() {
            Ok(&[own, sent, replied]) if own == u64::from(number) => {
                Changed { sent: moment(sent), replied: moment(replied) }
            }
            _ => panic!("os-ken: {answer}"),
        }
    }

    fn wait(&mut self, time: Duration) {
        // os-ken answers the echo requests of the switch.
        sleep(time);
    }
}

/// Converts a recent reading of the monotonic clock in nanoseconds.
fn moment(nanoseconds: u64) -> Instant {
    let clock = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    let clock = clock.unwrap_or_else(|error| panic!("the clock: {error}"));
    // `Instant` is read after the clock, so the result is never too early. An early result causes
    // false violations.
    Instant::now() - clock.saturating_sub(Duration::from_nanos(nanoseconds))
}

/// A process that is killed on drop.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn accept_switch(listener: &TcpListener, log: &Path) -> TcpStream {
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
                let log = fs::read_to_string(log).unwrap_or_default();
                panic!("no switch has connected to os-ken; its log: {log}");
            }
        }
    }
}
