//! Unrecorded rules and frames, replayed to Shunt and to Open vSwitch.
//!
//! Cases are generated from seeds or read from a file. A case with a difference is shrunk and
//! printed with its seed. Without Open vSwitch, the test is skipped with a message. A case that
//! crashes Open vSwitch is named, and the other cases continue with a new process.
//!
//! * `SHUNT_SEEDS=FIRST..END`: the seeds (`cargo xtask differential`).
//! * `SHUNT_KIND=tables`, `normal` or `mirrors`: the kind of cases. The default is all kinds.
//! * `SHUNT_CASES=FILE`: cases from a file, in the format of the recording.
//! * `SHUNT_WHOLE`: print cases without shrinking.
//! * `SHUNT_RECORD=FILE`: write cases without differences to FILE, with the results of Open
//!   vSwitch.

use std::{env, fs, ops::Range};

use shunt_tests::repository::root;

use crate::{
    case::{Case, Recording},
    generate::Kind,
    rival::Rival,
    shrink::shrink,
    side_by_side::play,
};

/// Header text of a recording.
const PROVENANCE: &str = "Recorded from Open vSwitch 3.1.0 (Debian 12, userspace datapath, dummy \
                          ports) by the differential suite, with SHUNT_RECORD. Rules, groups and \
                          meters were loaded over OpenFlow 1.3; frames, counters and packet-ins \
                          are those of one pass over the packets.";

#[test]
fn cases_match_open_vswitch() {
    let Some(cases) = cases() else { return };
    let Some(mut rival) = Rival::start_or_skip() else { return };
    let mut alike = Vec::new();
    let mut unlike = Vec::new();
    let mut died = 0;
    for case in cases {
        let Some((found, played)) = play(&case, &mut rival) else {
            println!("{}: Open vSwitch crashed", case.id);
            died += 1;
            continue;
        };
        if found.is_empty() {
            alike.push(played);
        } else {
            let (case, found) = if env::var_os("SHUNT_WHOLE").is_some() {
                (case, found)
            } else {
                shrink(case, found, &mut rival)
            };
            let without_results =
                serde_json::to_string_pretty(&case.without_results()).unwrap_or_default();
            println!("{} differs:\n{}\n{without_results}\n", case.id, found.join("\n"));
            unlike.push(case.id);
        }
    }
    println!("{} cases equal, {} different, {died} crashed", alike.len(), unlike.len());
    if let Ok(file) = env::var("SHUNT_RECORD") {
        let recording = Recording { provenance: PROVENANCE.to_owned(), cases: alike };
        let text = serde_json::to_string(&recording).expect("a recording is JSON");
        fs::write(root().join(file), text + "\n").expect("the recording can be written");
    }
    assert_eq!(unlike, [""; 0]);
}

/// Returns the selected cases; `None` if no cases are selected.
fn cases() -> Option<Vec<Case>> {
    if let Ok(file) = env::var("SHUNT_CASES") {
        let text = fs::read_to_string(root().join(file)).expect("the cases can be read");
        return Some(serde_json::from_str(&text).expect("the cases are JSON"));
    }
    let asked = env::var("SHUNT_SEEDS").ok()?;
    let read = |text: &str| text.parse().expect("seeds are numbers: FIRST..END");
    let (first, end) = asked.split_once("..").expect("seeds are a range: FIRST..END");
    let seeds: Range<u64> = read(first)..read(end);
    let asked = env::var("SHUNT_KIND").ok();
    let is_asked = |name: &str| asked.as_deref().is_none_or(|asked| asked == name);
    let kinds = Kind::ALL.into_iter().filter(|(name, _)| is_asked(name));
    let cases: Vec<_> =
        kinds.flat_map(|(_, kind)| seeds.clone().map(move |seed| kind.generate(seed))).collect();
    assert!(
        !cases.is_empty() || seeds.is_empty(),
        "a kind is tables, normal or mirrors: {asked:?}"
    );
    Some(cases)
}
