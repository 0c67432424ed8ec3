//! DPDK's `dpdk-testpmd` at the other end of ports, which forwards frames between its devices.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::spawn,
};

use crate::daemon::wait_until;

/// A running `dpdk-testpmd`, which is killed on drop.
#[derive(Debug)]
pub struct Testpmd {
    process: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
}

impl Testpmd {
    /// Returns whether the program is installed (Debian package `dpdk-dev`).
    #[must_use]
    pub fn is_installed() -> bool {
        Command::new("dpdk-testpmd").arg("--version").output().is_ok()
    }

    /// Starts the program with virtual devices.
    ///
    /// Each device is the name of a driver with a number, and the arguments of the driver.
    ///
    /// [`Self::await_prompt`] waits until the program is ready.
    ///
    /// # Panics
    ///
    /// Panics if the program does not start.
    #[must_use]
    pub fn start(devices: &[String]) -> Self {
        let mut command = Command::new("dpdk-testpmd");
        // Two threads on any CPUs: one thread for commands, and one thread for frames.
        command.args(["--lcores", "0,1", "--no-huge", "--no-shconf", "-m", "256", "--no-pci"]);
        command.arg("--no-telemetry");
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        command.args(["--", "-i", "--total-num-mbufs=4096", "--forward-mode=io"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("dpdk-testpmd: {error}"));
        let input =
            process.stdin.take().unwrap_or_else(|| panic!("standard input and output are piped"));
        let mut printed =
            process.stdout.take().unwrap_or_else(|| panic!("standard input and output are piped"));
        let output = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&output);
        spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = printed.read(&mut bytes) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { process, input, output }
    }

    fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the program takes commands.
    ///
    /// # Panics
    ///
    /// Panics if the program does not print its prompt.
    pub fn await_prompt(&self) {
        let is_there = || self.output().trim_end().ends_with("testpmd>");
        assert!(wait_until(is_there), "no prompt: {}", self.output());
    }

    /// Runs a command; returns its output.
    ///
    /// # Panics
    ///
    /// Panics if the program has ended.
    pub fn run(&mut self, command: &str) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clear();
        writeln!(self.input, "{command}").unwrap_or_else(|error| panic!("{command}: {error}"));
        self.await_prompt();
        self.output()
    }

    /// Returns the numbers of received and sent frames of each device.
    pub fn counts(&mut self) -> Vec<(u64, u64)> {
        let printed = self.run("show port stats all");
        let numbers = |name: &str| -> Vec<u64> {
            let behind = printed.split(name).skip(1);
            let words = behind.filter_map(|rest| rest.split_whitespace().next());
            words.filter_map(|word| word.parse().ok()).collect()
        };
        numbers("RX-packets:").into_iter().zip(numbers("TX-packets:")).collect()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
