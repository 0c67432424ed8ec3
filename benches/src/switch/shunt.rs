//! Shunt under test: the daemon itself, built for release.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use super::{FrontCaches, PortSpec, Setup, Switch, huge_pages::HugePages};
use crate::cpu;

/// Time of a busy poll of an `af_xdp` port, if the experiment polls it.
const BUSY_POLL_US: u32 = 20;

/// A running `shuntd`.
#[derive(Debug)]
pub struct Shunt {
    process: Child,
    control: ShuntCtl,
    /// Huge pages of DPDK ports, released after the process has ended.
    _huge_pages: Option<HugePages>,
}

/// Client of a running daemon.
#[derive(Debug)]
pub struct ShuntCtl {
    program: PathBuf,
    run_dir: PathBuf,
}

impl ShuntCtl {
    /// Runs a command. Returns the output if the command succeeded.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(&self.program);
        let output = command.arg("--run-dir").arg(&self.run_dir).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command with JSON output. Returns null if the command failed.
    #[must_use]
    pub fn json(&self, command: &str) -> Value {
        let text = self.ask(&[command, "--json"]).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

impl Shunt {
    /// Starts the daemon with the binaries of a folder,
    /// and waits until the daemon replies.
    ///
    /// # Panics
    ///
    /// If the daemon does not start.
    #[must_use]
    pub fn start(binaries: &Path, folder: &Path, setup: &Setup) -> Self {
        let _ = fs::remove_dir_all(folder);
        let made = fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join("shunt.toml"), configuration(setup)));
        made.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let huge_pages = setup.ports.iter().any(PortSpec::is_of_dpdk).then(HugePages::ask);
        let daemon = binaries.join("shuntd");
        let process = Command::new(&daemon)
            .arg("--config")
            .arg(folder.join("shunt.toml"))
            .arg("--run-dir")
            .arg(folder)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", daemon.display()));
        let (program, run_dir) = (binaries.join("shuntctl"), folder.to_path_buf());
        let control = ShuntCtl { program, run_dir };
        let shunt = Self { process, control, _huge_pages: huge_pages };
        let answers = (0..1200).any(|_| {
            sleep(Duration::from_millis(50));
            shunt.control.ask(&["show"]).is_some()
        });
        assert!(answers, "{} does not reply", daemon.display());
        shunt
    }
}

/// Returns whether the daemon in a folder of binaries was built with DPDK.
///
/// The daemon refuses a configuration with a DPDK port otherwise.
pub(super) fn has_dpdk(binaries: &Path, folder: &Path) -> bool {
    let port = PortSpec::Dpdk { driver: "net_null", arguments: "no-rx=1".to_owned() };
    let file = folder.join("dpdk.toml");
    let setup = Setup { ports: vec![port], ..Setup::default() };
    let written = fs::write(&file, configuration(&setup));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut command = Command::new(binaries.join("shuntd"));
    let output = command.arg("--config").arg(&file).arg("--check").output();
    output.is_ok_and(|output| output.status.success())
}

impl Switch for Shunt {
    fn id(&self) -> u32 {
        self.process.id()
    }

    fn received(&self) -> u64 {
        let ports = self.control.json("ports");
        let ports = ports.as_array().into_iter().flatten();
        ports.filter_map(|port| port["rx_packets"].as_u64()).sum()
    }

    fn evicting_threads(&self) -> &'static [&'static str] {
        // The control thread handles small changes. The time of this thread includes the
        // connection.
        &["shunt-eviction", "shunt-control"]
    }

    fn forwarding_thread(&self) -> u32 {
        let thread = cpu::find_thread(self.process.id(), "shunt-packet-0");
        thread.unwrap_or_else(|| panic!("shuntd has no packet thread"))
    }

    fn cached(&self) -> u64 {
        self.control.json("caches")["entries"].as_u64().unwrap_or_default()
    }

    fn add_tap(&self, name: &str) {
        let added = self.control.ask(&["add-port", "br0", name, "type=tap"]);
        added.unwrap_or_else(|| panic!("shuntctl add-port {name} failed"));
    }

    fn remove_port(&self, name: &str) {
        let deleted = self.control.ask(&["del-port", name]);
        deleted.unwrap_or_else(|| panic!("shuntctl del-port {name} failed"));
    }

    fn folder(&self) -> &Path {
        &self.control.run_dir
    }

    fn shuntctl(&self) -> Option<&ShuntCtl> {
        Some(&self.control)
    }
}

impl Drop for Shunt {
    fn drop(&mut self) {
        if self.control.ask(&["exit"]).is_none() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn caches(setup: &Setup) -> String {
    let mut text = String::new();
    text.push_str(match setup.caches {
        FrontCaches::Usual => "",
        FrontCaches::Signature => "exact_entries = 0\n",
        FrontCaches::Both => "exact_entries = 131072\n",
        FrontCaches::Nothing => "exact_entries = 0\nsignature_entries = 0\n",
        FrontCaches::Tables => "kind = \"flows\"\n",
    });
    if setup.keeps_entries {
        let room = setup.entries_max.unwrap_or(1_000_000);
        let _ = writeln!(text, "megaflow_entries = {room}\nidle_ms = 600000");
    }
    if let Some(idle_ms) = setup.idle_ms {
        let _ = writeln!(text, "idle_ms = {idle_ms}");
    }
    if let Some(room) = setup.ltm_entries_max {
        let _ = writeln!(text, "kind = \"gigaflow\"\n[caches.gigaflow]\nstage_entries = {room}");
    }
    if setup.nic {
        text.push_str("[caches.gigaflow.offload]\nkind = \"embedded\"\n");
    }
    text
}

/// Returns the configuration section of forecasts,
/// which older builds do not support.
fn foresight(setup: &Setup) -> String {
    if setup.predictors.is_none() && !setup.forecasts {
        return String::new();
    }
    let predictors = setup.predictors.unwrap_or_default();
    let mut text = format!("[foresight]\npredictors = {predictors:?}\n");
    if setup.forecasts {
        text.push_str("entries = 1000000\n");
    }
    text
}

fn configuration(setup: &Setup) -> String {
    let cpus = setup.cpu.map_or_else(String::new, |cpu| cpu.to_string());
    let engine = setup.engine.map(|name| format!("engine = \"{name}\"\n")).unwrap_or_default();
    let repair = setup.repair.map(|name| format!("repair = \"{name}\"\n")).unwrap_or_default();
    let controller = setup.controller.map(|name| format!("controllers = [\"{name}\"]\n"));
    let mut text = format!(
        "[logging]\nfilter = \"warn\"\n[threads]\npacket = {}\ncpus = [{cpus}]\n\
         [caches]\n{}{}[eviction]\n{engine}{repair}[[bridge]]\nname = \"br0\"\n{}",
        setup.threads.unwrap_or(1),
        caches(setup),
        foresight(setup),
        controller.unwrap_or_default(),
    );
    for (port, number) in setup.ports.iter().zip(1..) {
        let kind = match port {
            PortSpec::Capture(file) => {
                format!("type = \"pcap\"\nrx = \"{}\"\nrepeat = \"endless\"", file.display())
            }
            PortSpec::Null => "type = \"null\"".to_owned(),
            PortSpec::Tap(name) => format!("type = \"tap\"\ndevice = \"{name}\""),
            PortSpec::Guest(path) => format!("type = \"vhost_user\"\npath = {path:?}"),
            PortSpec::Memif { socket, id } => {
                format!("type = \"memif\"\nsocket = {socket:?}\nid = {id}")
            }
            PortSpec::Device(name) => format!("type = \"af_packet\"\ndevice = \"{name}\""),
            PortSpec::Xdp(name) => format!("type = \"af_xdp\"\ndevice = \"{name}\""),
            PortSpec::PolledXdp(name) => {
                format!("type = \"af_xdp\"\ndevice = \"{name}\"\nbusy_poll_us = {BUSY_POLL_US}")
            }
            PortSpec::Dpdk { driver, arguments } => {
                format!("type = \"dpdk\"\ndevargs = \"{driver}{number},{arguments}\"")
            }
        };
        let _ =
            writeln!(text, "[[bridge.port]]\nname = \"port{number}\"\nnumber = {number}\n{kind}");
    }
    text
}
