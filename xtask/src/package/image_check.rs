//! The check of the container image: podman runs the image, and packets pass through the switch.
//!
//! Images and containers are kept below `target`, separate from images and containers of the host.
//! The container has a network namespace that the check creates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::shell::{TaskError, is_root, output, run, step};

/// Name of the container, and of the network namespace of the container.
const NAME: &str = "shunt-image-check";
/// Name of the network namespace of the host behind the switch.
const HOST: &str = "shunt-image-host";

/// Maximum time until a command inside of the container succeeds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Loads an image, runs the image, and sends packets through the switch.
///
/// The container has the privileges that the ports need, and no others.
pub(super) fn check(folder: &Path, image: &Path, version: &str) -> Result<(), TaskError> {
    if !is_root() {
        println!("SKIPPED: a container with devices of the check: not root");
        return Ok(());
    }
    let mut podman = Podman::new(folder)?;
    step("load", || podman.run(&["load", "--quiet", "--input", &image.to_string_lossy()]))?;
    step("start", || start(&mut podman, version))?;
    step("forward packets", || forward(&podman))?;
    step("stop", || stop(&podman))
}

/// Podman with a separate storage, and the processes that the check has started.
struct Podman {
    storage: PathBuf,
    /// Folder of the sockets of the daemon.
    sockets: PathBuf,
}

impl Podman {
    fn new(folder: &Path) -> Result<Self, TaskError> {
        let podman = Self { storage: folder.join("podman"), sockets: folder.join("run") };
        podman.clean();
        fs::create_dir_all(&podman.sockets)?;
        Ok(podman)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.storage.join("root"));
        command.arg("--runroot").arg(self.storage.join("run"));
        // These options need neither systemd nor a certain filesystem.
        command.args([
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
            "--runtime=runc",
        ]);
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<(), TaskError> {
        run(&mut self.command(arguments))
    }

    /// Runs `shuntctl` in the container until it succeeds.
    fn shuntctl(&self, arguments: &[&str]) -> Result<String, TaskError> {
        let command: Vec<&str> =
            ["exec", NAME, "shuntctl"].iter().chain(arguments).copied().collect();
        repeat_until_ok(|| output(&mut self.command(&command)))
    }

    /// Removes everything that this check or an earlier check has left.
    fn clean(&self) {
        // These commands fail if nothing is left.
        let _ = output(&mut self.command(&["rm", "--force", "--time=1", NAME]));
        let _ = output(&mut self.command(&["rmi", "--all", "--force"]));
        for name in [NAME, HOST] {
            let _ = ip(&["netns", "del", name]);
        }
        let _ = fs::remove_dir_all(&self.sockets);
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.clean();
    }
}

/// Repeats an action until the action succeeds, for at most [`PATIENCE`].
fn repeat_until_ok(
    mut action: impl FnMut() -> Result<String, TaskError>,
) -> Result<String, TaskError> {
    let start = Instant::now();
    loop {
        match action() {
            Err(_) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

fn ip(arguments: &[&str]) -> Result<String, TaskError> {
    output(Command::new("ip").args(arguments))
}

/// Starts the container with a device that leads to another namespace.
fn start(podman: &mut Podman, version: &str) -> Result<(), TaskError> {
    for name in [NAME, HOST] {
        ip(&["netns", "add", name])?;
    }
    ip(&[
        "-n", NAME, "link", "add", "port1", "type", "veth", "peer", "name", "eth0", "netns", HOST,
    ])?;
    ip(&["-n", NAME, "link", "set", "port1", "up"])?;
    ip(&["-n", HOST, "link", "set", "eth0", "up"])?;
    ip(&["-n", HOST, "address", "add", "10.99.0.2/24", "dev", "eth0"])?;
    let network = format!("--network=ns:/run/netns/{NAME}");
    let volume = format!("--volume={}:/run/shunt", podman.sockets.display());
    let image = format!("shunt:{version}");
    podman.run(&[
        "run",
        "--detach",
        "--name",
        NAME,
        // The defaults of podman may be above the limits of this machine.
        "--ulimit=nofile=4096:4096",
        "--ulimit=nproc=4096:4096",
        "--read-only",
        "--cap-drop=all",
        "--cap-add=net_raw,net_admin",
        "--device=/dev/net/tun",
        &network,
        &volume,
        &image,
    ])
}

/// Pings the host behind the device from a TAP device, through the switch.
fn forward(podman: &Podman) -> Result<(), TaskError> {
    podman.shuntctl(&["add-br", "br0"])?;
    podman.shuntctl(&["add-port", "br0", "tap1", "type=tap"])?;
    podman.shuntctl(&["add-port", "br0", "port1"])?;
    let bridge = format!("unix:{}", podman.sockets.join("br0.mgmt").display());
    let rule = ["-O", "OpenFlow13", "add-flow", &bridge, "priority=0,actions=NORMAL"];
    output(Command::new("ovs-ofctl").args(rule))?;
    ip(&["-n", NAME, "address", "add", "10.99.0.1/24", "dev", "tap1"])?;
    ip(&["-n", NAME, "link", "set", "tap1", "up"])?;
    let ping = ["netns", "exec", NAME, "ping", "-c", "2", "-i", "0.2", "-W", "5", "10.99.0.2"];
    repeat_until_ok(|| ip(&ping))?;
    print!("{}", podman.shuntctl(&["show"])?);
    Ok(())
}

/// Stops the container. The daemon must end without a kill and without an error.
fn stop(podman: &Podman) -> Result<(), TaskError> {
    podman.run(&["stop", "--time=10", NAME])?;
    let code = output(&mut podman.command(&["inspect", "--format={{.State.ExitCode}}", NAME]))?;
    if code.trim() == "0" {
        return Ok(());
    }
    podman.run(&["logs", NAME])?;
    Err(TaskError::new(format!("the daemon ended with exit code {}", code.trim())))
}
