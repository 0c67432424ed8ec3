//! Rules and frames that nobody has recorded, played to Shunt and to Open vSwitch side by side.
//!
//! Seeds make them, or a file gives them. A case that differs is printed as small as it still
//! differs, with its seed. Without Open vSwitch nothing is compared, and that is said; a case that
//! Open vSwitch does not survive is named, and the others go on with a new one.
//!
//! * `SHUNT_SEEDS=FIRST..END`: the seeds (`cargo xtask differential`).
//! * `SHUNT_KIND=tables` or `normal`: what their cases are about; both unless it is said.
//! * `SHUNT_CASES=FILE`: cases of a file instead, in the form of the recording.
//! * `SHUNT_WHOLE`: what differs is printed as it is.
//! * `SHUNT_RECORD=FILE`: cases that do not differ are written there, with what Open vSwitch did.

use std::{env, fs, ops::Range};

use shunt_tests::repository::root;

use crate::{
    case::{Case, Recording},
    generate::Kind,
    rival::Rival,
    shrink::shrink,
    side_by_side::play,
};

/// What the file of a recording says of itself.
const PROVENANCE: &str = "Recorded from Open vSwitch 3.1.0 (Debian 12, userspace datapath, dummy \
                          ports) by the differential suite, with SHUNT_RECORD. Rules, groups and \
                          meters were loaded over OpenFlow 1.3; frames, counters and packet-ins \
                          are those of one pass over the packets.";

#[test]
fn cases_fare_as_in_open_vswitch() {
    let Some(cases) = cases() else { return };
    let Some(mut rival) = Rival::start_or_skip() else { return };
    let mut alike = Vec::new();
    let mut unlike = Vec::new();
    let mut died = 0;
    for case in cases {
        let Some((found, played)) = play(&case, &mut rival) else {
            println!("{}: Open vSwitch did not survive it", case.id);
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
            let given = serde_json::to_string_pretty(&case.given()).unwrap_or_default();
            println!("{} differs:\n{}\n{given}\n", case.id, found.join("\n"));
            unlike.push(case.id);
        }
    }
    println!("{} cases alike, {} unlike, {died} not survived", alike.len(), unlike.len());
    if let Ok(file) = env::var("SHUNT_RECORD") {
        let recording = Recording { provenance: PROVENANCE.to_owned(), cases: alike };
        let text = serde_json::to_string(&recording).expect("a recording is JSON");
        fs::write(root().join(file), text + "\n").expect("the recording can be written");
    }
    assert_eq!(unlike, [""; 0]);
}

/// The cases that are asked for, if any are.
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
    assert!(!cases.is_empty() || seeds.is_empty(), "a kind is tables or normal: {asked:?}");
    Some(cases)
}
