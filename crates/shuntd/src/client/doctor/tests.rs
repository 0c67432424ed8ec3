//! Tests of the checks; a host is a directory with files.

use std::{fs, os::unix::fs::symlink};

use super::*;

/// Creates a host with the given files.
fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostSystem) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = HostSystem::new(folder.path());
    (folder, system)
}

/// Returns the files of a process with the given capabilities and limits.
fn process(capabilities: &str, files: &str, memory: &str) -> [(&'static str, String); 2] {
    [
        ("proc/7/status", format!("Uid:\t5\t5\t5\t5\nCapEff:\t{capabilities}\n")),
        (
            "proc/7/limits",
            format!("Max open files 9 {files} files\nMax locked memory {memory} unlimited bytes\n"),
        ),
    ]
}

/// Returns the missing objects for a daemon with one port of a type.
fn missing_of(kind: &str, link: &str, files: &[(&str, String)], thread: &str) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (_folder, system) = host(&files);
    let bridges = json!([{"ports": [{"name": "p1", "type": kind, "link": link}]}]);
    let threads = json!([{"name": "packet thread 0", "state": thread}]);
    let daemon = RunningDaemon { process: "7".to_owned(), bridges, threads };
    let checks = daemon.checks(&system);
    let missing = checks.into_iter().filter(|check| check.state == CheckState::Missing);
    missing
        .map(|check| {
            assert!(check.mend.is_some(), "{check:?}");
            check.subject
        })
        .collect()
}

#[test]
fn a_capable_daemon_lacks_nothing() {
    let files = process("0000000000003000", "65536", "8388608");
    assert_eq!(missing_of("af_packet", "up", &files, "running"), [""; 0]);
    assert_eq!(missing_of("null", "down", &process("0", "512", "0"), "running"), [""; 0]);
}

#[test]
fn each_missing_right_is_named() {
    let files = process("0", "65536", "8388608");
    assert_eq!(missing_of("af_packet", "up", &files, "running"), ["CAP_NET_RAW"]);
    assert_eq!(missing_of("tap", "up", &files, "running"), ["CAP_NET_ADMIN", "/dev/net/tun"]);
    let all = ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "locked memory", "port p1"];
    assert_eq!(missing_of("af_xdp", "down: no memory", &files, "running"), all);
    assert!(missing_of("null", "down: by a controller", &files, "running").is_empty());
    let set_down = "down: the device p1 is set down: use `ip link set p1 up`";
    assert!(missing_of("null", set_down, &files, "running").is_empty());
    let few = process("0000000000003000", "256", "8388608");
    assert_eq!(missing_of("af_packet", "up", &few, "running"), ["open files"]);
}

/// Runs the checks of a daemon with one AF_XDP port and a limit of locked memory.
fn checks_of_af_xdp(link: &str, has_file: bool) -> Vec<HostCheck> {
    let mut files = process("ffffffffffffbfff", "65536", "8388608").to_vec();
    if has_file {
        files.push(("etc/systemd/system/shuntd.service.d/af-xdp.conf", String::new()));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (_folder, system) = host(&files);
    let bridges = json!([{"ports": [{"name": "p1", "type": "af_xdp", "link": link}]}]);
    RunningDaemon { process: "7".to_owned(), bridges, threads: json!([]) }.checks(&system)
}

/// The advice is only given if the file is not installed and no port is open.
#[test]
fn the_advice_on_locked_memory_can_help() {
    let memory = |link, has_file| {
        let checks = checks_of_af_xdp(link, has_file);
        checks.into_iter().find(|check| check.subject == "locked memory").unwrap()
    };
    assert_eq!(memory("up", true).state, CheckState::Note);
    let missing = memory("down: no memory", false);
    assert!(missing.mend.unwrap().starts_with("install -D"));
    let limited = memory("down: no memory", true);
    assert_eq!(limited.state, CheckState::Missing);
    assert!(limited.detail.contains("af-xdp.conf exists"), "{}", limited.detail);
    assert!(!limited.mend.unwrap().contains("install -D"));
}

#[test]
fn a_missing_device_has_an_advice() {
    let checks = checks_of_af_xdp("down: port p1: there is no device eth7", true);
    let port = checks.iter().find(|check| check.subject == "port p1").unwrap();
    assert_eq!(port.detail, "there is no device eth7");
    assert!(port.mend.as_ref().unwrap().ends_with("shuntctl del-port p1"), "{port:?}");
}

#[test]
fn missing_features_of_the_kernel_are_named() {
    let mut files = process("ffffffffffffffff", "65536", "unlimited").to_vec();
    files.push(("proc/net/protocols", "protocol size\nPACKET 1\nTCP 1\n".to_owned()));
    files.push(("proc/sys/net/core/bpf_jit_enable", "0\n".to_owned()));
    let expected = ["kernel protocol XDP", "net.core.bpf_jit_enable"];
    assert_eq!(missing_of("af_xdp", "up", &files, "running"), expected);
    files[2].1 = "protocol size\n".to_owned();
    assert_eq!(missing_of("af_packet", "up", &files, "running"), ["kernel protocol PACKET"]);
}

#[test]
fn closed_ports_and_ended_threads_are_named() {
    let files = process("ffffffffffffffff", "65536", "unlimited");
    assert_eq!(missing_of("null", "no such device", &files, "running"), ["port p1"]);
    assert_eq!(missing_of("null", "up", &files, "panicked"), ["packet thread 0"]);
}

/// A controller that does not answer is no problem of this host.
#[test]
fn listeners_without_a_socket_are_wrong() {
    let files = process("ffffffffffffffff", "65536", "unlimited");
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (_folder, system) = host(&files);
    let reason = "cannot listen on ptcp:6653: in use";
    let controllers = json!([
        {"target": "tcp:192.0.2.1", "state": "waiting", "reason": "refused", "retry_in_s": 1},
        {"target": "ptcp:6653", "state": "waiting", "reason": reason, "retry_in_s": 1},
        {"target": "ptcp:6654", "state": "listening"},
        {"target": "pssl:6655", "state": "listening", "problem": "no private key"},
    ]);
    let bridges = json!([{"name": "br0", "controllers": controllers, "ports": []}]);
    let daemon = RunningDaemon { process: "7".to_owned(), bridges, threads: json!([]) };
    let checks = daemon.checks(&system);
    let of_bridge = checks.iter().filter(|check| check.subject == "bridge br0");
    let wrong: Vec<_> = of_bridge.map(|check| (check.state, check.detail.as_str())).collect();
    let expected = [
        (
            CheckState::Wrong,
            "cannot listen on ptcp:6653: in use; the switch tries again every second",
        ),
        (CheckState::Wrong, "pssl:6655: no private key"),
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn a_unit_must_be_enabled() {
    let unit = |files: &[(&str, &str)], is_enabled: bool| {
        let (folder, system) = host(files);
        if is_enabled {
            let wants = folder.path().join("etc/systemd/system/multi-user.target.wants");
            fs::create_dir_all(&wants).unwrap();
            symlink("/lib/systemd/system/shuntd.service", wants.join("shuntd.service")).unwrap();
        }
        checks::service(&system).map(|check| (check.state, check.mend))
    };
    let installed = [("lib/systemd/system/shuntd.service", "")];
    assert_eq!(unit(&[], false), None);
    assert_eq!(unit(&installed, true), Some((CheckState::Ok, None)));
    let mend = "systemctl enable --now shuntd".to_owned();
    assert_eq!(unit(&installed, false), Some((CheckState::Missing, Some(mend))));
    let booted = [installed[0], ("run/systemd/system/a", "")];
    assert_eq!(unit(&booted, true).unwrap().0, CheckState::Wrong, "the service does not run");
    let group = ("sys/fs/cgroup/system.slice/shuntd.service/cgroup.procs", "");
    assert_eq!(unit(&[booted[0], booted[1], group], true), Some((CheckState::Ok, None)));
}

/// The devices of the configuration must exist, and have no other user.
#[test]
fn devices_are_checked_before_the_start() {
    let config = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\ndevice = \"shunt-none\"\n\
                  [[bridge.port]]\nname = \"shunt-none2\"\n";
    let (folder, system) = host(&[("shunt.toml", config), ("sys/class/net/shunt-none/x", "")]);
    let device = folder.path().join("sys/class/net/shunt-none");
    symlink("../br7", device.join("master")).unwrap();
    let checks = run_checks(&system, folder.path(), &folder.path().join("shunt.toml"));
    let find = |subject: &str| checks.iter().find(|check| check.subject == subject).unwrap();
    let member = find("device shunt-none of port p1");
    assert_eq!(member.detail, "is a member of br7");
    assert_eq!(member.mend.as_deref(), Some("ip link set shunt-none nomaster"));
    assert!(find("device shunt-none2 of port shunt-none2").detail.starts_with("does not exist"));
    assert_eq!(find("daemon").state, CheckState::Note);
}

#[test]
fn an_invalid_configuration_is_wrong() {
    let (folder, system) = host(&[("shunt.toml", "nonsense")]);
    let file = folder.path().join("shunt.toml");
    let checks = run_checks(&system, folder.path(), &file);
    let found = checks.iter().find(|check| check.subject == "configuration").unwrap();
    assert_eq!(found.state, CheckState::Wrong);
    assert_eq!(found.mend, Some(format!("shuntd --config {} --check", file.display())));
}

/// A daemon does not start with a token file that cannot be used.
#[test]
fn a_token_file_is_checked_before_the_start() {
    let (folder, system) = host(&[("token", "short")]);
    let file = folder.path().join("shunt.toml");
    let found = |token_file: &str| {
        let token_file = folder.path().join(token_file).display().to_string();
        let text = format!("[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"{token_file}\"\n");
        fs::write(&file, text).unwrap();
        let checks = run_checks(&system, folder.path(), &file);
        let found = checks.into_iter().find(|check| check.subject == "HTTP server");
        found.map(|check| (check.state, check.detail))
    };
    for (name, words) in [
        ("none", "none: No such file or directory (os error 2): create the file"),
        ("token", "token has 5 characters, and must have 16 to 512: write one with"),
    ] {
        let (state, detail) = found(name).unwrap();
        assert_eq!(state, CheckState::Wrong);
        assert!(detail.contains(words), "{detail}");
    }
    fs::write(folder.path().join("token"), "0123456789abcdef\n").unwrap();
    assert_eq!(found("token"), None);
}

#[test]
fn the_report_counts_what_is_missing() {
    let checks =
        [HostCheck::ok("a", "b"), HostCheck::missing("c", "d", "e\nf"), HostCheck::note("g", "h")];
    let expected = "ok       a: b\nmissing  c: d\n         run: e\n              f\n\
                    note     g: h\n3 checks, 1 missing\n";
    assert_eq!(text_of(&checks), expected);
    assert!(text_of(&checks[..1]).ends_with("1 check, nothing is missing\n"));
    assert!(json_of(&checks).contains("\"missing\":1"));
    assert!(text_of(&[HostCheck::wrong("a", "b", "c")]).ends_with("1 check, 1 wrong\n"));
    assert!(!is_complete(&[HostCheck::wrong("a", "b", "c")]));
}
