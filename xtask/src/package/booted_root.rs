//! A Debian root directory with a running systemd, in separate namespaces.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use crate::shell::{TaskError, output, root, run};

/// A running root, which ends on drop.
pub(super) struct BootedRoot {
    /// The program `unshare`, which ends together with all programs that it started.
    unshare: Child,
    /// Process id of systemd.
    systemd: String,
    /// Control group of the root.
    group: PathBuf,
}

/// Attempts to find systemd ready, and the pause between two attempts.
const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

impl BootedRoot {
    /// Starts systemd in a root directory.
    ///
    /// # Errors
    ///
    /// If this machine does not permit systemd in a root directory.
    pub(super) fn start(folder: &Path) -> Result<Self, TaskError> {
        let group = new_control_group()?;
        fs::create_dir_all(&group)?;
        let log = fs::File::create(folder.with_file_name("boot.log"))?;
        // systemd owns the group of the process that starts it, and all groups below.
        let script = "echo $$ > \"$0\"/cgroup.procs && exec unshare --pid --fork --mount --net --ipc \
                      --uts --cgroup --kill-child sh \"$@\"";
        let mut start = Command::new("sh");
        start.args(["-c", script]).arg(&group).arg(root().join("packaging/boot.sh")).arg(folder);
        let unshare = start
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()?;
        let mut booted = Self { unshare, systemd: String::new(), group };
        booted.wait()?;
        Ok(booted)
    }

    /// Waits until systemd has started its services.
    fn wait(&mut self) -> Result<(), TaskError> {
        let unshare = self.unshare.id();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        for _ in 0..ATTEMPTS_MAX {
            if let Some(status) = self.unshare.try_wait()? {
                return Err(TaskError::new(format!("systemd did not start: {status}")));
            }
            self.systemd = fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            let state = || self.shell("systemctl is-system-running || true");
            // A unit that needs a missing device fails in a container: `degraded`.
            if !self.systemd.is_empty()
                && state().is_ok_and(|state| ["running", "degraded"].contains(&state.trim()))
            {
                return Ok(());
            }
            sleep(PAUSE);
        }
        Err(TaskError::new("systemd did not start its services in time"))
    }

    /// Runs a shell script in the root, and returns its output.
    pub(super) fn shell(&self, script: &str) -> Result<String, TaskError> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.systemd, "--pid", "--mount", "--net", "--uts", "--root"]);
        command.args([
            "--wd=/",
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL=C.UTF-8",
        ]);
        output(command.args(["DEBIAN_FRONTEND=noninteractive", "sh", "-ec", script]))
    }

    /// Repeats a script until it succeeds.
    pub(super) fn repeat_until_ok(&self, script: &str) -> Result<String, TaskError> {
        let mut last = self.shell(script);
        for _ in 0..ATTEMPTS_MAX {
            if last.is_ok() {
                break;
            }
            sleep(PAUSE);
            last = self.shell(script);
        }
        last
    }
}

impl Drop for BootedRoot {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // The system removes the processes of the namespace after `unshare` has ended.
        for _ in 0..ATTEMPTS_MAX {
            let folders = "find \"$0\" -depth -type d -exec rmdir {} +";
            let mut remove = Command::new("sh");
            remove.args(["-c", folders]).arg(&self.group).stderr(Stdio::null());
            if run(&mut remove).is_ok() {
                break;
            }
            sleep(PAUSE);
        }
    }
}

/// Returns a new group in the file system of control groups, version 2.
fn new_control_group() -> Result<PathBuf, TaskError> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let folder = words.next()?;
        (words.next() == Some("cgroup2")).then(|| PathBuf::from(folder))
    });
    let mounted = mounted.ok_or_else(|| TaskError::new("no file system cgroup2 is mounted"))?;
    Ok(mounted.join(format!("shunt-package-{}", std::process::id())))
}
