//! Shunt under test: the daemon itself, built for release.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use shunt_benches::cpu;

use crate::{FORWARDING_CPU, RULE, Switch};

/// A running `shuntd`; stopped when dropped.
pub(crate) struct Shunt {
    process: Child,
    folder: PathBuf,
}

impl Shunt {
    /// Starts it with a capture port, a null port and the rule.
    pub(crate) fn start(folder: &Path, capture: &Path) -> Self {
        let _ = fs::remove_dir_all(folder);
        let made = fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join("shunt.toml"), configuration(capture)));
        made.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let process = Command::new(binary("shuntd"))
            .arg("--config")
            .arg(folder.join("shunt.toml"))
            .arg("--run-dir")
            .arg(folder)
            .spawn()
            .unwrap_or_else(|error| panic!("shuntd: {error}"));
        let shunt = Self { process, folder: folder.to_path_buf() };
        for _ in 0..100 {
            if shunt.ask(&["show"]).is_some() {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        let socket = format!("unix:{}", folder.join("br0.mgmt").display());
        let rule = ["-O", "OpenFlow13", "add-flow", &socket, RULE];
        let added = Command::new("ovs-ofctl").args(rule).status();
        assert!(added.is_ok_and(|status| status.success()), "the rule was not added");
        shunt
    }

    fn ask(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(binary("shuntctl"));
        let output = command.arg("--run-dir").arg(&self.folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Switch for Shunt {
    fn received(&self) -> u64 {
        let text = self.ask(&["ports", "--json"]).unwrap_or_default();
        let ports: Value = serde_json::from_str(&text).unwrap_or_default();
        let ports = ports.as_array().into_iter().flatten();
        ports.filter_map(|port| port["rx_packets"].as_u64()).sum()
    }

    fn thread(&self) -> (u32, u32) {
        let thread = cpu::find_thread(self.process.id(), "shunt-packet-0");
        (self.process.id(), thread.unwrap_or_else(|| panic!("shuntd has no packet thread")))
    }
}

impl Drop for Shunt {
    fn drop(&mut self) {
        if self.ask(&["exit"]).is_none() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

fn configuration(capture: &Path) -> String {
    format!(
        r#"
[logging]
filter = "warn"
[threads]
packet = 1
cpus = [{FORWARDING_CPU}]
[[bridge]]
name = "br0"
[[bridge.port]]
name = "in"
number = 1
type = "pcap"
rx = "{}"
repeat = "endless"
[[bridge.port]]
name = "out"
number = 2
type = "null"
"#,
        capture.display()
    )
}

/// A binary beside this one.
fn binary(name: &str) -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    own.parent().map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}
