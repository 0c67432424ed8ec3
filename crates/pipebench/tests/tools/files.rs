//! Files: the same every time, read by other tools, whole or not there.

use std::{fs, process::Command};

use crate::{answer, errors, names, pipebench, skipped, tool, write};

/// Small workloads of each kind.
const NAMES: &[&str] = &[
    "psc:high:500:packets=2k:rules=300:updates=p4@1ms",
    "ant:low:500:packets=2k:rules=300:terminals=all",
    "classbench-fw:low:500:packets=2k:rules=300:bytes=imix:arrival=100@50%",
    "coflow:high:500:packets=2k:coflowiness=0.25",
];

#[test]
fn two_runs_of_a_name_write_the_same_bytes() {
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
fn tcpdump_and_tshark_read_every_packet_and_find_its_sums_right() {
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
        // Its reader of files without a switch takes rules alone, not commands.
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
fn a_full_disk_leaves_nothing_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=200k none {0} || exit 77; \
         {1} pcap classbench-acl:low:100:packets=20k:rules=100 --out {0}/x.pcap; ls -A {0}",
        mount.display(),
        crate::PROGRAM
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    if output.status.code() != Some(0) {
        skipped(&format!("a small disk needs root: {}", errors(&output)));
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let told = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("make room"), "{told}");
}

#[test]
fn a_misspelled_name_is_told_the_nearest() {
    let output = pipebench(&["flows", "psc:hihg:100k"]);
    assert!(!output.status.success());
    let told = errors(&output);
    assert!(told.contains("psc:high:100k:seed=1"), "{told}");
}

#[test]
fn a_name_without_a_command_is_told_which_commands_take_it() {
    let output = pipebench(&["psc:high:500"]);
    assert_eq!(output.status.code(), Some(2));
    let told = errors(&output);
    assert!(told.contains("pipebench write psc:high:500 --out DIR"), "{told}");
    assert!(!errors(&pipebench(&["wirte", "psc"])).contains("name of a workload"));
}

/// The block of a page of documentation that begins with these words.
fn block<'a>(page: &'a str, beginning: &str) -> &'a str {
    let blocks = page.split("```").skip(1).step_by(2);
    let mut bodies = blocks.filter_map(|block| block.split_once('\n')).map(|(_, body)| body);
    bodies.find(|body| body.starts_with(beginning)).unwrap()
}

#[test]
fn the_pipeline_of_the_page_is_a_workload_as_it_stands() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.json"), block(&page, "{")).unwrap();
    let commands = block(&page, "pipebench describe ./mine.json");
    for command in commands.lines() {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("pipebench"), "{command}");
        let output = Command::new(crate::PROGRAM).args(words).current_dir(&folder).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{command}: {}", errors(&output));
    }
    let rules = fs::read_to_string(folder.path().join("mine/rules.txt")).unwrap();
    assert!(rules.contains("table=1") && rules.contains("table=2"), "{rules}");
}

#[test]
fn an_edge_that_leads_nowhere_is_pointed_at() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap().replace("[0, 1]", "[0, 9]");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    fs::write(&path, block(&page, "{")).unwrap();
    let path = path.to_str().unwrap();
    for arguments in [&["describe", path][..], &["flows", path]] {
        let told = errors(&pipebench(arguments)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("line 5, column 14: the edge [0, 9]"), "{arguments:?}: {told}");
    }
}

#[test]
fn statistics_of_a_capture_are_those_of_the_workload() {
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
fn a_damaged_capture_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    answer(&["pcap", "coflow:low:50", "--out", path.to_str().unwrap()]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let output = pipebench(&["stats", path.to_str().unwrap()]);
    assert!(!output.status.success());
    let told = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("ends within packet"), "{told}");
}

#[test]
fn a_filter_file_of_the_users_own_is_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.rules");
    fs::write(&path, "@10.0.0.0/8\t192.168.0.0/16\t0 : 65535\t80 : 80\t0x06/0xFF\n").unwrap();
    let flows = answer(&["flows", &format!("{}:low:20", path.display())]);
    assert_eq!(flows.lines().count(), 21);
    assert!(flows.lines().skip(1).all(|line| line.ends_with(",80") && line.contains(",192.168.")));
    fs::write(&path, "@10.0.0.0/8\n").unwrap();
    let told = errors(&pipebench(&["flows", &format!("{}:low:20", path.display())]));
    assert!(told.contains("line 1"), "{told}");
}
