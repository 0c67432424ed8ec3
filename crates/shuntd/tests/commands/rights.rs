//! Tests of the rights of users, and of the limits of the daemon.

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
};

use crate::{Daemon, errors, wait_until};

/// The user id of `nobody`.
const NOBODY: u32 = 65_534;

#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
#[test]
fn another_user_gets_a_permission_error() {
    let daemon = Daemon::start("");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shuntctl"));
        command.arg("--run-dir").arg(daemon.run_dir()).arg("show").stdin(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            // The command must not run as root, because root may connect to any socket.
            command.uid(NOBODY);
        }
        command.output()
    };
    let set_mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    for (file, open) in [(daemon.run_dir().join("shuntd.pid"), 0o644), (daemon.socket(), 0o666)] {
        set_mode(daemon.run_dir().to_owned(), 0o755).unwrap();
        set_mode(file.clone(), 0).unwrap();
        let refused = match run() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("SKIPPED: another user may not run the program of this build");
                return;
            }
            refused => refused.unwrap(),
        };
        assert_eq!(refused.status.code(), Some(3));
        let expected = format!("permission denied: {}; run shuntctl as root", file.display());
        assert!(errors(&refused).contains(&expected), "{}", errors(&refused));
        set_mode(file, open).unwrap();
    }
}

#[test]
fn the_daemon_raises_its_limit_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    // The shell lowers the soft limit, and then executes the daemon.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 64 && ulimit -Hn 200 && exec \"$0\" --run-dir \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_shuntd")).arg(folder.path()).stderr(Stdio::from(log));
    let daemon = Daemon { process: command.spawn().unwrap(), folder };
    daemon.wait_for_answer();
    let limits = format!("/proc/{}/limits", daemon.process.id());
    let files = || {
        let limits = fs::read_to_string(&limits).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().skip(3).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(wait_until(|| files() == ["200", "200"]), "{:?}", files());
}

#[test]
fn port_beyond_limit_of_files_has_advice() {
    let folder = tempfile::tempdir().unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" --run-dir \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_shuntd")).arg(folder.path()).stderr(Stdio::from(log));
    let daemon = Daemon { process: command.spawn().unwrap(), folder };
    daemon.wait_for_answer();
    daemon.answer(&["add-br", "br0"]);
    let refused = (0..64).find_map(|number| {
        let (name, path) = (format!("p{number}"), folder_path(&daemon, number));
        let added = daemon.shuntctl(&["add-port", "br0", &name, "type=pcap", &path]);
        (!added.status.success()).then(|| errors(&added))
    });
    assert!(refused.as_ref().is_some_and(|text| text.contains("LimitNOFILE")), "{refused:?}");
}

/// Returns a setting for a port: the path of a capture file to write.
fn folder_path(daemon: &Daemon, number: usize) -> String {
    format!("tx={}", daemon.run_dir().join(format!("{number}.pcap")).display())
}
