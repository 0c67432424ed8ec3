//! Runs the example commands of help texts and pages, with numbers divided by a thousand.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::{PROGRAM, answer, errors, live::in_namespace};

const COMMANDS: [&str; 10] =
    ["list", "describe", "rules", "names", "write", "flows", "pcap", "updates", "live", "stats"];

/// Divides the thousands and millions of a text by a thousand.
fn make_small(text: &str) -> String {
    let mut small = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let ends = rest.peek().is_none_or(|next| !next.is_alphanumeric());
        match character {
            'k' if before.is_ascii_digit() && ends => {}
            'm' if before.is_ascii_digit() && ends => small.push_str("000"),
            character => small.push(character),
        }
        before = character;
    }
    small
}

/// Returns the example commands of a help text, each up to its first pipe.
fn examples(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let command = &line[line.find("pipebench ")?..];
        let is_example = line.starts_with("  ") && !line.contains('`');
        let command = command.split(" | ").next().unwrap_or(command);
        (is_example && !command.starts_with("pipebench names")).then(|| make_small(command.trim()))
    });
    lines.collect()
}

/// Creates the input files of the examples.
fn create_inputs(folder: &Path) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let pipeline = crate::files::block(&page, "{");
    let filters = answer(&["rules", "acl", "--count", "50"]);
    let rules = " cookie=0x1, table=0, priority=1,ip,nw_dst=10.0.0.0/8 actions=output:1\n";
    for (name, content) in [
        ("mine.json", pipeline),
        ("my-pipeline.json", pipeline),
        ("mine.rules", &filters),
        ("my.filters", &filters),
        ("filters.txt", &filters),
        ("my_seed", &answer(&["describe", "acl"])),
        ("br-int.flows", rules),
    ] {
        fs::write(folder.join(name), content).unwrap();
    }
    let trace = folder.join("trace.pcap");
    answer(&["pcap", "coflow:low:50", "--out", trace.to_str().unwrap()]);
}

fn run(folder: &Path, command: &str) -> Output {
    let words = command.split_whitespace().skip(1);
    let words = words.take_while(|word| *word != ">");
    Command::new(PROGRAM).args(words).current_dir(folder).output().unwrap()
}

#[test]
fn every_help_example_works() {
    let folder = tempfile::tempdir().unwrap();
    create_inputs(folder.path());
    let mut count = 0;
    for help in COMMANDS.map(|command| answer(&[command, "--help"])) {
        for command in examples(&help) {
            count += 1;
            if command.starts_with("pipebench live") {
                let words = command.trim_start_matches("pipebench");
                let script = format!(
                    "ip link add veth0 type veth peer name veth1; ip link set veth0 up; \
                     ip link set veth1 up; {PROGRAM} {words}"
                );
                let message = in_namespace(&script);
                assert!(
                    message.is_none_or(|message| message.0.contains(" packets, ")),
                    "{command}"
                );
            } else {
                let output = run(folder.path(), &command);
                assert!(output.status.success(), "{command}: {}", errors(&output));
            }
        }
    }
    assert!(count > 15, "{count} examples");
}

#[test]
fn every_name_in_help_and_pages_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    create_inputs(folder.path());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    let page = fs::read_to_string(page).unwrap();
    // Later tables of the page list only parts of workload names.
    let page = page.split("## Pipelines and updates").next().unwrap_or_default();
    let of_page = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_file = |name: &str| {
        [".txt", ".csv", ".pcap", ".sh", ".json"].iter().any(|end| name.ends_with(end))
    };
    let of_page = of_page.filter(|name| !is_file(name));
    let help = answer(&["flows", "--help"]);
    let of_help = help.lines().skip_while(|line| !line.starts_with("A NAME describes"));
    let of_help = of_help.filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
    let [of_page, of_help]: [Vec<String>; 2] =
        [of_page.map(make_small).collect(), of_help.map(make_small).collect()];
    assert!(of_page.len() >= 10 && of_help.len() >= 5, "{of_page:?} {of_help:?}");
    let names = of_page.into_iter().chain(of_help);
    for name in names {
        let has_flows = name.split(':').any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        let name = if has_flows { name } else { name + ":100" };
        let output = run(folder.path(), &format!("pipebench stats {name}"));
        assert!(output.status.success(), "{name}: {}", errors(&output));
    }
}
