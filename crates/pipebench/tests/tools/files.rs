//! Tests that output files are reproducible, readable by other tools, complete or absent.

use std::{fs, process::Command, thread::sleep, time::Duration};

use crate::{PROGRAM, answer, errors, names, pipebench, print_skipped, tool, write};

/// The names of small workloads of each kind.
const NAMES: &[&str] = &[
    "psc:high:500:packets=2k:rules=300:updates=p4@1ms",
    "ant:low:500:packets=2k:rules=300:terminals=all",
    "classbench-fw:low:500:packets=2k:rules=300:bytes=imix:arrival=100@50%",
    "coflow:high:500:packets=2k:coflowiness=0.25",
];

#[test]
fn two_runs_of_name_write_same_bytes() {
    for name in NAMES {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        folders.iter().for_each(|folder| write(name, folder.path()));
        let files = names(folders[0].path());
        assert_eq!(files, names(folders[1].path()));
        assert!(files.len() >= 6, "{files:?}");
        for file in files {
            let [first, second] =
                [0, 1].map(|run| fs::read(folders[run].path().join(&file)).unwrap());
            assert!(first == second, "{name}: {file} differs");
        }
    }
}

#[test]
fn another_seed_makes_other_packets() {
    let folder = tempfile::tempdir().unwrap();
    let pcap = |seed: u32| {
        let path = folder.path().join(format!("{seed}.pcap"));
        let name = format!("classbench-acl:low:100:packets=300:rules=100:seed={seed}");
        answer(&["pcap", &name, "--out", path.to_str().unwrap()]);
        fs::read(path).unwrap()
    };
    assert!(pcap(1) != pcap(2));
}

#[test]
fn tcpdump_and_tshark_accept_every_packet() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        write(name, folder.path());
        let captures: Vec<_> =
            names(folder.path()).into_iter().filter(|file| file.ends_with(".pcap")).collect();
        let mut packets = 0;
        for capture in captures {
            let path = folder.path().join(capture);
            let path = path.to_str().unwrap();
            let Some(read) = tool("tcpdump", &["-nn", "-v", "-r", path]) else { return };
            let text = String::from_utf8(read.stdout).unwrap();
            assert!(!text.contains("bad cksum") && !text.contains("incorrect"), "{name}");
            let Some(count) = tool("tcpdump", &["--count", "-r", path]) else { return };
            let count = String::from_utf8(count.stdout).unwrap();
            packets += count.split(' ').next().unwrap().parse::<u32>().unwrap();
            let fields = ["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"];
            let fields = [&fields[..], &["-o", "udp.check_checksum:TRUE", "-r", path]].concat();
            let wrong = "ip.checksum.status == 0 || tcp.checksum.status == 0 \
                         || udp.checksum.status == 0";
            if let Some(judged) = tool("tshark", &[&fields[..], &["-Y", wrong]].concat()) {
                assert_eq!(String::from_utf8(judged.stdout).unwrap(), "", "{name}");
            }
        }
        assert_eq!(packets, 2000, "{name}");
    }
}

#[test]
fn ovs_ofctl_reads_rules_and_updates() {
    for name in NAMES {
        let folder = tempfile::tempdir().unwrap();
        write(name, folder.path());
        // The offline parser of `ovs-ofctl` accepts only rules, not commands.
        let rules = fs::read_to_string(folder.path().join("rules.txt")).unwrap();
        let updates = fs::read_to_string(folder.path().join("updates.txt")).unwrap();
        let added = updates.lines().filter_map(|line| line.strip_prefix("add "));
        let added: Vec<&str> = added.collect();
        for rules in [rules, added.join("\n")] {
            let path = folder.path().join("read.txt");
            fs::write(&path, &rules).unwrap();
            let arguments = ["-O", "OpenFlow13", "parse-flows", path.to_str().unwrap()];
            let Some(read) = tool("ovs-ofctl", &arguments) else { return };
            assert!(read.status.success(), "{name}: {}", errors(&read));
            let written = rules.lines().filter(|line| !line.starts_with('#')).count();
            let read = String::from_utf8(read.stdout).unwrap();
            let read = read.lines().filter(|line| line.contains("FLOW_MOD")).count();
            assert_eq!(read, written, "{name}");
        }
        let deleted = updates.lines().filter_map(|line| line.strip_prefix("delete_strict "));
        let is_added = |rule: &str| added.iter().any(|added| added.starts_with(rule));
        assert!(deleted.into_iter().all(is_added), "{name}");
    }
}

#[test]
fn a_full_disk_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=200k none {0} || exit 77; \
         {1} pcap classbench-acl:low:100:packets=20k:rules=100 --out {0}/x.pcap; ls -A {0}",
        mount.display(),
        PROGRAM
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    if output.status.code() != Some(0) {
        print_skipped(&format!("a small disk needs root: {}", errors(&output)));
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let message = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("make room"), "{message}");
}

#[test]
fn standard_output_errors_are_reported() {
    for arguments in [
        &["flows", "psc:10"][..],
        &["stats", "coflow:low:50"],
        &["names"],
        &["list"],
        &["describe", "ant"],
        &["rules", "acl", "--count", "10"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(arguments).stdout(full).output().unwrap();
        let message = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(message.contains("cannot write to standard output"), "{arguments:?}: {message}");
        assert!(message.contains("make room"), "{arguments:?}: {message}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    for words in ["describe ant", "list", "names", "flows psc:1k", "rules acl --count 3000"] {
        let script = format!("{{ {PROGRAM} {words} 2>&3; echo $? >&2; }} 3>/dev/null | head -n 1");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(errors(&output), "0\n", "{words}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "{words}");
    }
}

#[test]
fn a_new_workload_replaces_the_old_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes"), "mine").unwrap();
    write("psc:high:100:rules=100", folder.path());
    assert!(names(folder.path()).len() > 6, "{:?}", names(folder.path()));
    write("coflow:low:50", folder.path());
    let expected = [
        "README.md",
        "flows.csv",
        "manifest.json",
        "notes",
        "packets.pcap",
        "rules.txt",
        "updates.txt",
    ];
    assert_eq!(names(folder.path()), expected);
}

#[test]
fn a_folder_lists_table_names() {
    let folder = tempfile::tempdir().unwrap();
    write("psc:high:100:rules=100", folder.path());
    let manifest = fs::read(folder.path().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let first = manifest["tables"]["0"].as_str().unwrap();
    assert!(first.starts_with("1 "), "{first}");
    let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
    assert!(readme.contains(&format!("- 0: {first}\n")), "{readme}");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    for (command, out) in [("pcap", "x.pcap"), ("write", "x")] {
        let folder = tempfile::tempdir().unwrap();
        let mut program = Command::new(PROGRAM)
            .args([command, "coflow:low:1k:packets=100m", "--out", out])
            .current_dir(&folder)
            .spawn()
            .unwrap();
        let is_started = || names(folder.path()).iter().any(|name| name.starts_with('x'));
        let starts_in_time = (0..20_000).any(|_| {
            let is_started = is_started();
            if !is_started {
                sleep(Duration::from_millis(1));
            }
            is_started
        });
        assert!(starts_in_time, "the program writes no file");
        let id = program.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(program.wait().unwrap().code(), Some(128 + 15));
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{command}");
    }
}

#[test]
fn high_locality_differs_from_low_for_every_source() {
    for source in shunt_pipebench::name::SOURCES {
        // Each host of a collective operation sends the same number of packets.
        let packets = match source.word {
            "collective" => continue,
            "coflow" => "",
            _ => ":rules=2k",
        };
        let flows =
            |locality| answer(&["flows", &format!("{}:{locality}:500{packets}", source.word)]);
        // The first columns are the number of the flow and its number of packets.
        let headers = |text: &str| {
            let headers = text.lines().map(|line| line.splitn(6, ',').last().unwrap().to_owned());
            headers.collect::<Vec<_>>()
        };
        assert_ne!(headers(&flows("high")), headers(&flows("low")), "{}", source.word);
    }
}

#[test]
fn classbench_parameters_fill_a_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my_seed");
    fs::write(&path, answer(&["describe", "acl"])).unwrap();
    let path = path.to_str().unwrap();
    let flows = answer(&["flows", &format!("{path}:low:20:rules=100")]);
    assert_eq!(flows.lines().count(), 21);
    let flows = answer(&["flows", &format!("psc:low:20:rules=100:filters={path}")]);
    assert_eq!(flows.lines().count(), 21);
}

#[test]
fn dumped_rules_are_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("br-int.flows");
    let dump = "NXST_FLOW reply (xid=0x4):\n \
        cookie=0x1, duration=1.5s, table=0, n_packets=7, priority=9,in_port=3 actions=resubmit(,8)\n \
        cookie=0x1, table=0, priority=9,in_port=5,dl_vlan=7 actions=resubmit(,8)\n \
        table=0, priority=5,ipv6,in_port=6 actions=drop\n \
        table=8, priority=5,ip,nw_dst=10.1.0.0/16 actions=output:1\n \
        table=8, priority=7,tcp,tp_dst=443 actions=output:2\n";
    fs::write(&path, dump).unwrap();
    let name = format!("{}:low:200:packets=1k", path.display());
    write(&name, &folder.path().join("x"));
    let rules = fs::read_to_string(folder.path().join("x/rules.txt")).unwrap();
    assert_eq!(rules.lines().count(), 6, "{rules}");
    assert!(rules.contains("\ncookie=0x1,table=0,priority=9,in_port=3 actions=resubmit(,8)\n"));
    let files = names(&folder.path().join("x"));
    assert!(files.contains(&"packets-3.pcap".to_owned()), "{files:?}");
    assert!(!files.contains(&"packets-6.pcap".to_owned()), "no IPv6 is generated: {files:?}");
    let flows = fs::read_to_string(folder.path().join("x/flows.csv")).unwrap();
    assert!(flows.lines().skip(1).all(|line| line.contains(",10.1.") && line.ends_with(",443")));
    let capture = folder.path().join("x/packets-5.pcap");
    let arguments = ["-nn", "-e", "-c", "1", "-r", capture.to_str().unwrap()];
    let Some(read) = tool("tcpdump", &arguments) else { return };
    assert!(String::from_utf8_lossy(&read.stdout).contains("vlan 7,"));
}

#[test]
fn a_misspelled_name_gets_a_suggestion() {
    let output = pipebench(&["flows", "psc:hihg:100k"]);
    assert!(!output.status.success());
    let message = errors(&output);
    assert!(message.contains("psc:high:100k:seed=1"), "{message}");
}

#[test]
fn a_name_without_command_lists_the_commands() {
    let output = pipebench(&["psc:high:500"]);
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains("pipebench write psc:high:500 --out DIR"), "{message}");
    assert!(!errors(&pipebench(&["wirte", "psc"])).contains("name of a workload"));
}

/// Returns the block of a documentation page that begins with these words.
pub(crate) fn block<'a>(page: &'a str, beginning: &str) -> &'a str {
    let blocks = page.split("```").skip(1).step_by(2);
    let mut bodies = blocks.filter_map(|block| block.split_once('\n')).map(|(_, body)| body);
    bodies.find(|body| body.starts_with(beginning)).unwrap()
}

#[test]
fn the_pipeline_of_the_page_is_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.json"), block(&page, "{")).unwrap();
    let commands = block(&page, "pipebench describe ./mine.json");
    for command in commands.lines() {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("pipebench"), "{command}");
        let output = Command::new(PROGRAM).args(words).current_dir(&folder).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{command}: {}", errors(&output));
    }
    let rules = fs::read_to_string(folder.path().join("mine/rules.txt")).unwrap();
    assert!(rules.contains("table=1") && rules.contains("table=2"), "{rules}");
}

#[test]
fn an_edge_to_a_missing_table_is_reported() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap().replace("[0, 1]", "[0, 9]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    fs::write(&path, block(&page, "{")).unwrap();
    let path = path.to_str().unwrap();
    for arguments in [&["describe", path][..], &["flows", path]] {
        let message =
            errors(&pipebench(arguments)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(message.contains("line 5, column 14: the edge [0, 9]"), "{arguments:?}: {message}");
    }
}

#[test]
fn statistics_of_capture_are_those_of_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let path = path.to_str().unwrap();
    let name = "classbench-ipc:low:200:packets=1k:rules=200";
    answer(&["pcap", name, "--out", path]);
    let figures = |subject: &str| -> serde_json::Value {
        serde_json::from_str(&answer(&["stats", subject, "--json"])).unwrap()
    };
    let value = |rows: &serde_json::Value, what: &str| {
        let rows = rows.as_array().unwrap();
        rows.iter().find(|row| row["what"] == what).unwrap()["value"].as_f64().unwrap()
    };
    let (workload, capture) = (figures(name), figures(path));
    for what in ["flows", "packets", "bytes per packet", "mean gap", "duration"] {
        assert_eq!(value(&workload, what), value(&capture, what), "{what}");
    }
}

#[test]
fn a_damaged_capture_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    answer(&["pcap", "coflow:low:50", "--out", path.to_str().unwrap()]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let output = pipebench(&["stats", path.to_str().unwrap()]);
    assert!(!output.status.success());
    let message = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("ends within packet"), "{message}");
}

#[test]
fn filter_file_of_user_is_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.rules");
    fs::write(&path, "@10.0.0.0/8\t192.168.0.0/16\t0 : 65535\t80 : 80\t0x06/0xFF\n").unwrap();
    let flows = answer(&["flows", &format!("{}:low:20", path.display())]);
    assert_eq!(flows.lines().count(), 21);
    assert!(flows.lines().skip(1).all(|line| line.ends_with(",80") && line.contains(",192.168.")));
    fs::write(&path, "@10.0.0.0/8\n").unwrap();
    let message = errors(&pipebench(&["flows", &format!("{}:low:20", path.display())]));
    assert!(message.contains("line 1"), "{message}");
}
