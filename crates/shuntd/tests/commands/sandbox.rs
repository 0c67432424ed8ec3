//! Rights that the daemon drops: system calls, write access, and the rights of root.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Stdio,
};

use tempfile::TempDir;

use crate::{Daemon, errors, shuntctl, shuntd, wait_until};

/// The user and group id of `nobody` on Debian.
const NOBODY: u32 = 65_534;

/// The bits of `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_IPC_LOCK` and `CAP_BPF`.
const PORTS: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 39;

/// Starts a daemon in `folder` with the given options, and waits until it answers.
fn start(folder: TempDir, options: &[&str]) -> Daemon {
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut command = shuntd(folder.path());
    let process = command.args(options).stderr(Stdio::from(log)).spawn().unwrap();
    let daemon = Daemon { process, folder };
    daemon.wait_for_answer();
    daemon
}

/// Returns a field of `/proc/PID/task/*/status` for each thread of a daemon.
fn of_each_thread(daemon: &Daemon, field: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.process.id())).unwrap();
    let mut values = Vec::new();
    for thread in threads {
        // A thread may end while it is read.
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else {
            continue;
        };
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        values.push(line.unwrap().trim().to_owned());
    }
    assert!(values.len() > 2, "control threads and a packet thread: {values:?}");
    values
}

#[test]
fn every_thread_has_the_filter_of_system_calls() {
    let daemon = Daemon::start("[[bridge]]\nname = \"br0\"\n");
    // Mode 2 means that a seccomp filter is in force.
    assert!(of_each_thread(&daemon, "Seccomp").iter().all(|mode| mode == "2"));
    assert!(of_each_thread(&daemon, "NoNewPrivs").iter().all(|set| set == "1"));
    assert!(!daemon.log().contains("WARN"), "{}", daemon.log());
}

#[test]
fn another_user_keeps_the_capabilities_of_ports_alone() {
    if !nix::unistd::geteuid().is_root() {
        print_skipped("only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let daemon = start(folder, &["--user", "nobody"]);
    let ids = format!("{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}");
    assert!(of_each_thread(&daemon, "Uid").iter().all(|found| *found == ids));
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        for held in of_each_thread(&daemon, set) {
            let held = u64::from_str_radix(&held, 16).unwrap();
            assert_eq!(held & !PORTS, 0, "{set} {held:x}");
        }
    }
    assert!(of_each_thread(&daemon, "CapInh").iter().all(|held| held.trim_matches('0').is_empty()));
    daemon.answer(&["add-br", "br0"]);
    assert_eq!(fs::metadata(daemon.socket()).unwrap().uid(), NOBODY);
    // A packet socket needs CAP_NET_RAW in the effective set.
    let added = daemon.shuntctl(&["add-port", "br0", "lo", "type=af_packet"]);
    assert!(!errors(&added).contains("not permitted"), "{}", errors(&added));
}

#[test]
fn foreign_run_directory_is_refused_with_advice() {
    if !nix::unistd::geteuid().is_root() {
        print_skipped("only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = shuntd(folder.path()).args(["--user", "nobody"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let path = folder.path().display();
    // The error report breaks long lines.
    let text = errors(&refused).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("belongs to another user"), "{text}");
    assert!(text.contains("chown -R nobody"), "{text}");
    assert!(text.replace("│ ", "").contains(&path.to_string()), "{text}");
}

#[test]
fn a_run_directory_is_created_for_the_user() {
    if !nix::unistd::geteuid().is_root() {
        print_skipped("only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run_dir = folder.path().join("parent/run");
    let mut daemon = shuntd(&run_dir).args(["--user", "nobody"]).spawn().unwrap();
    let answers = || shuntctl(&run_dir, &["show"]).status.success();
    let is_up = wait_until(answers);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(is_up);
    let owner = |path: &Path| fs::metadata(path).unwrap().uid();
    assert_eq!((owner(&run_dir), owner(run_dir.parent().unwrap())), (NOBODY, 0));
}

#[test]
fn files_outside_the_writable_directories_cannot_be_changed() {
    let (folder, outside, named) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let daemon = start(folder, &["--writable", named.path().to_str().unwrap()]);
    daemon.answer(&["add-br", "br0"]);
    let add = |name: &str, directory: &Path| {
        let tx = format!("tx={}", directory.join("out.pcap").display());
        daemon.shuntctl(&["add-port", "br0", name, "type=pcap", &tx])
    };
    for (name, directory) in [("run", daemon.run_dir()), ("named", named.path())] {
        let added = add(name, directory);
        assert!(added.status.success(), "{name}: {}", errors(&added));
        assert!(directory.join("out.pcap").exists());
    }
    let refused = add("outside", outside.path());
    assert!(!refused.status.success());
    let text = errors(&refused).to_lowercase();
    assert!(text.contains("permission denied"), "{text}");
    assert!(!outside.path().join("out.pcap").exists());
}

#[test]
fn missing_writable_directory_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = shuntd(folder.path()).args(["--writable", "/nonexistent"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors(&refused).contains("--writable /nonexistent"), "{}", errors(&refused));
}

#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn print_skipped(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}
