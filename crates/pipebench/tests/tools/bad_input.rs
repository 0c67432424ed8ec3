//! Tests that damaged, foreign and misspelled input is refused with problem and position.

use std::{fs, path::Path, process::Command};

use crate::{PROGRAM, answer, errors, names, pipebench, print_skipped};

/// Returns the error output of a failed command, with single spaces.
fn refusal(arguments: &[&str]) -> String {
    let output = pipebench(arguments);
    assert!(!output.status.success(), "{arguments:?} is accepted");
    errors(&output).split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

/// Writes a file; returns its path.
fn file(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// Returns a capture of one packet with a link type and two lengths.
fn capture(link: u32, captured: u32, original: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    for number in [0, 0, 65_535, link, 0, 0, captured, original] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(vec![0; captured as usize]);
    bytes
}

#[test]
fn wrong_link_type_and_truncated_packets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stats = |content| refusal(&["stats", &file(folder.path(), "x.pcap", content)]);
    let message = stats(capture(105, 60, 60));
    assert!(message.contains("105") && message.contains("Ethernet"), "{message}");
    let message = stats(capture(1, 60, 1500));
    assert!(message.contains("60") && message.contains("1500"), "{message}");
    let message = stats(capture(1, 60, 60)[..90].to_vec());
    assert!(message.contains("ends within packet 1"), "{message}");
    let message = stats(b"GIF89a and so on, no capture at all".to_vec());
    assert!(message.contains("capture"), "{message}");
}

/// A pipeline file with two tables.
const PIPELINE: &str = r#"{
  "pipeline": "mine",
  "tables": [
    {"id": 0, "name": "first", "match_fields": ["ip_dst"]},
    {"id": 1, "name": "second", "match_fields": ["tp_dst"]}
  ],
  "edges": [[0, 1]],
  "traversals": [
    {"id": "all", "terminal": "output", "steps": [
      {"table": 0, "match": ["ip_dst"]},
      {"table": 1, "match": ["tp_dst"]}
    ]}
  ]
}"#;

#[test]
fn a_pipeline_mistake_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let message = |from: &str, to: &str| {
        let text = PIPELINE.replacen(from, to, 1);
        assert_ne!(text, PIPELINE, "{from}");
        refusal(&["describe", &file(folder.path(), "mine.json", text)])
    };
    assert!(pipebench(&["describe", &file(folder.path(), "ok.json", PIPELINE)]).status.success());
    let unknown = message(r#"["ip_dst"]}"#, r#"["ip_dts"]}"#);
    assert!(unknown.contains("line 4") && unknown.contains("ip_dst"), "{unknown}");
    let unreachable = message(r#"["tp_dst"]}"#, r#"["tp_dst"]}, {"id": 2, "match_fields": []}"#);
    assert!(unreachable.contains("table 2"), "{unreachable}");
    let cyclic = message("[[0, 1]]", "[[0, 1], [1, 0]]");
    assert!(cyclic.contains("0") && cyclic.contains("1") && cyclic.contains("loop"), "{cyclic}");
    let key = message(r#""edges""#, r#""edgse""#);
    assert!(key.contains("line 7") && key.contains("edges"), "{key}");
}

#[test]
fn a_bad_filter_line_is_refused_with_position() {
    let folder = tempfile::tempdir().unwrap();
    let good = "@10.0.0.0/8\t192.168.0.0/16\t0 : 65535\t80 : 80\t0x06/0xFF\n";
    let bad = good.replace("192.168.0.0/16", "192.168.0.0/61");
    let path = file(folder.path(), "mine.rules", format!("{good}{bad}"));
    for arguments in [&["rules", &path][..], &["flows", &format!("{path}:low:20")]] {
        let message = refusal(arguments);
        assert!(message.contains("line 2, column"), "{message}");
        assert!(message.contains("expected"), "{message}");
    }
}

#[test]
fn binary_and_empty_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = |name: &str, content: &[u8]| {
        let path = file(folder.path(), name, content);
        refusal(&["describe", &path])
    };
    assert!(message("rules.gz", &[0x1f, 0x8b, 8, 0]).contains("gunzip"));
    assert!(message("trace.cap", &capture(1, 60, 60)).contains("pipebench stats"));
    assert!(message("k.rules", b"# a comment\n").contains("only blanks"));
    assert!(message("list.json", b"[]").contains("expected"), "{}", message("list.json", b"[]"));
    assert!(refusal(&["flows", "ols.high:100k"]).contains("did you mean `ols`"));
    // The content of a capture determines its kind, not its name.
    let path = file(folder.path(), "TRACE", capture(1, 60, 60));
    assert!(answer(&["stats", &path]).contains("packets"));
    let path = file(folder.path(), "next.pcapng", [0x0a, 0x0d, 0x0d, 0x0a].repeat(8));
    assert!(refusal(&["stats", &path]).contains("editcap"));
}

#[test]
fn only_pipelines_have_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.svg").display().to_string();
    assert!(refusal(&["describe", "acl", "--picture", &path]).contains("only pipelines"));
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_folder_as_output_file_is_refused_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // The test would take too long if the program generated these flows first.
    let message = refusal(&["flows", "classbench-fw:low:10m:rules=1m", "--out", path]);
    assert!(message.contains("name a file in it"), "{message}");
}

#[test]
fn updates_after_the_packets_are_refused() {
    let message = refusal(&["updates", "psc:high:1k:rules=200:updates=p2@10s"]);
    assert!(message.contains("updates=p2@") && message.contains("rate="), "{message}");
}

#[test]
fn port_names_in_a_dump_get_advice() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rule) in [
        ("in.flows", "table=0, priority=1,in_port=eth0 actions=output:1\n"),
        ("out.flows", "table=0, priority=1,in_port=1 actions=output:veth7\n"),
    ] {
        let message = refusal(&["describe", &file(folder.path(), name, rule)]);
        assert!(message.contains("--no-names"), "{message}");
    }
}

#[test]
fn a_folder_with_foreign_files_is_refused() {
    for foreign in ["README.md", "rules.txt", "packets-9.pcap"] {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), foreign, "mine");
        let out = folder.path().to_str().unwrap();
        let message = refusal(&["write", "coflow:low:100", "--out", out]);
        assert!(message.contains(foreign), "{message}");
        assert_eq!(names(folder.path()), [foreign]);
        assert_eq!(fs::read(folder.path().join(foreign)).unwrap(), b"mine");
    }
}

#[test]
fn generator_options_are_refused_for_existing_filters() {
    let folder = tempfile::tempdir().unwrap();
    let filters = file(folder.path(), "my.filters", answer(&["rules", "acl", "--count", "5"]));
    for (option, value) in [("--count", "1k"), ("--smoothness", "7"), ("--port-scope", "0")] {
        let message = refusal(&["rules", &filters, option, value]);
        assert!(message.contains(option) && message.contains("as they are"), "{message}");
    }
    let message = refusal(&["rules", "acl", "--form", "real"]);
    assert!(message.contains("--pipeline"), "{message}");
    let message = refusal(&["rules", "acl", "--count", "10x"]);
    assert!(message.contains("as in 500, 100k or 1m"), "{message}");
}

#[test]
fn piped_errors_do_not_wrap_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a-long-name-".repeat(12)).display().to_string();
    let output = pipebench(&["describe", &path]);
    assert!(errors(&output).contains(&path), "{}", errors(&output));
}

#[test]
fn fewer_packets_than_flows_are_refused_at_once() {
    let message = refusal(&["stats", "psc:high:10m:packets=100"]);
    assert!(message.contains("10000000 flows cannot have 100 packets"), "{message}");
}

#[test]
fn a_misnamed_file_is_refused_with_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let describe = |path: String| refusal(&["flows", &path]);
    let message = describe(file(folder.path(), "mine.pipeline", PIPELINE));
    assert!(message.contains("a pipeline") && message.contains("ends in .json"), "{message}");
    let rules = "table=0, priority=1,ip,actions=output:1\n";
    let message = describe(file(folder.path(), "rules.json", rules));
    assert!(message.contains("a dump of rules"), "{message}");
    let filters = answer(&["rules", "acl", "--count", "5"]);
    let message = describe(file(folder.path(), "filters.json", filters));
    assert!(message.contains("is filters"), "{message}");
    file(folder.path(), "acl1_seed", "x");
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder.path()).args(["flows", "acl1_seed:low:10k"]);
    let output = command.output().unwrap();
    assert!(errors(&output).contains("./acl1_seed:low:10k"), "{}", errors(&output));
}

#[test]
fn too_many_open_files_get_advice() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |port: u32| format!("table=0, priority=1,in_port={port},ip actions=output:1\n");
    let dump = file(folder.path(), "wide.flows", (1..100).map(rule).collect::<String>());
    let out = folder.path().join("out").display().to_string();
    let script = format!("ulimit -n 40; {PROGRAM} write {dump}:low:1k --out {out}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(!output.status.success() && errors(&output).contains("ulimit -n"), "{output:?}");
    assert!(!folder.path().join("out").exists(), "no file is left");
}

#[test]
fn an_unreadable_dump_is_refused_with_position() {
    let folder = tempfile::tempdir().unwrap();
    let dump = " cookie=0x0, table=0, priority=1,ip,actions=ouptut:1\n";
    let message = refusal(&["describe", &file(folder.path(), "dump.txt", dump)]);
    assert!(message.contains("line 1, column"), "{message}");
}

#[test]
fn a_dump_with_a_bad_line_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dump = "NXST_FLOW reply (xid=0x4):\n \
                table=0, priority=9,in_port=3 actions=resubmit(,8)\n \
                table=8, priority=5,ip,nw_dsst=10.1.0.0/16 actions=output:1\n";
    let path = file(folder.path(), "br-int.flows", dump);
    let out = folder.path().join("out");
    let message = refusal(&["write", &format!("{path}:low:10"), "--out", out.to_str().unwrap()]);
    assert!(message.contains("line 3, column 25: unknown field `nw_dsst`"), "{message}");
    assert!(!out.exists(), "no file is written");
    assert!(refusal(&["describe", &path]).contains("line 3, column 25"));
}

#[test]
fn an_untitled_pipeline_is_shown_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "mine.json", PIPELINE);
    assert!(answer(&["describe", &path]).starts_with("mine\n2 tables, 1 traversals\n"));
}

#[test]
fn unsupported_rules_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let dump = "table=0, priority=9,in_port=3 actions=resubmit(,8)\n\
                table=8, priority=6,ip actions=set_field:1->tun_metadata0,output:2\n\
                table=8, priority=5,ip,nw_dst=10.1.0.0/16 actions=output:1\n";
    let path = file(folder.path(), "br-int.flows", dump);
    let output = pipebench(&["flows", &format!("{path}:low:10")]);
    assert!(output.status.success());
    let message = errors(&output);
    assert!(message.contains("left out: 1; the first: line 2, column "), "{message}");
}

#[test]
fn one_line_file_does_not_fill_screen() {
    let folder = tempfile::tempdir().unwrap();
    let edges = "[0, 1], ".repeat(1000);
    let text = PIPELINE.replace("[[0, 1]]", &format!("[{edges}[0, 7]]")).replace('\n', " ");
    let message = refusal(&["describe", &file(folder.path(), "x.json", text)]);
    assert!(message.contains("line 1, column") && message.contains("table 7"), "{message}");
    assert!(message.len() < 300, "{message}");
}

#[test]
fn any_misspelled_word_gets_a_suggestion() {
    for (name, nearest) in [
        ("pcs:high:1k", "psc:high:1k"),
        ("psc:hihg:1k", "psc:high:1k"),
        ("psc:high:1k:byts=imix", "bytes=imix"),
        ("psc:high:1k:filters=fww", "filters=fw"),
        ("psc:high:1k:sizes=caidda", "sizes=caida"),
    ] {
        let message = refusal(&["flows", name]);
        assert!(message.contains(nearest), "{name}: {message}");
    }
}

#[test]
fn a_full_disk_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=300k none {0} || exit 77; \
         {PROGRAM} write classbench-acl:low:100:packets=20k:rules=100 --out {0}/x; ls -A {0}",
        mount.display(),
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    if output.status.code() != Some(0) {
        print_skipped(&format!("a small disk needs root: {}", errors(&output)));
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let message = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("make room"), "{message}");
    assert_eq!(names(&mount), Vec::<String>::new());
}
