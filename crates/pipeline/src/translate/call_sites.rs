//! Every call by which a translation says what it depended on is needed.
//!
//! The recorder asks here, in tests alone, whether the call that was made is disabled. So each
//! place in the source that records something is left out in turn, with nothing compiled anew, and
//! the laws of translation must break for some packet of the generated worlds.
//!
//! A call that may be left out without a law breaking is listed in [`SPARE`], with the reason.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe, Location},
};

use shunt_flow::FlowKey;

use super::laws;
use crate::testing::{
    Twin, draw,
    generate::{self, Op},
    runner, visible,
};

/// A place in the source: file, line and column.
type Site = (&'static str, u32, u32);

thread_local! {
    static CALLS: RefCell<Calls> = RefCell::default();
}

#[derive(Default)]
struct Calls {
    /// Those made since it was last cleared.
    made: BTreeSet<Site>,
    disabled: Option<Site>,
}

/// Whether the call at this place is disabled; notes that it was made.
pub(super) fn is_disabled(place: &'static Location<'static>) -> bool {
    let site = (place.file(), place.line(), place.column());
    CALLS.with_borrow_mut(|calls| {
        calls.made.insert(site);
        calls.disabled == Some(site)
    })
}

/// A world, packets that come to it, and changes that follow.
struct Case {
    world: Vec<Op>,
    packets: Vec<FlowKey>,
    changes: Vec<Op>,
}

impl Case {
    fn draw(runner: &mut proptest::test_runner::TestRunner) -> Self {
        let mut some = |count| (0..count).map(|_| draw(runner, &generate::packet())).collect();
        let packets: Vec<FlowKey> = some(PACKETS);
        let mut changes: Vec<Op> = (0..CHANGES).map(|_| draw(runner, &generate::op())).collect();
        let world = draw(runner, &generate::world());
        changes.extend(aimed(&world, &packets, runner));
        Self { world, packets, changes }
    }

    /// The calls that it reaches.
    fn sites(&self) -> BTreeSet<Site> {
        CALLS.with_borrow_mut(|calls| calls.made.clear());
        let _ = self.laws_hold();
        CALLS.with_borrow_mut(|calls| std::mem::take(&mut calls.made))
    }

    fn laws_hold(&self) -> Result<(), proptest::test_runner::TestCaseError> {
        let mut runner = runner();
        let mut twin = Twin::new(&self.world);
        for key in &self.packets {
            laws::agreeing_packets_fare_alike(&twin, key, &mut runner)?;
            laws::agreeing_packets_go_on_alike(&twin, key, &mut runner)?;
            laws::visits_are_uniform(&twin, key, &mut runner)?;
        }
        for op in &self.changes {
            let pieces = laws::pieces(&twin, &visible(&self.packets[0]), u64::MAX);
            laws::pieces_are_uniform(&twin, &pieces, &mut runner)?;
            laws::changes_are_named(&mut twin, &self.packets, op)?;
        }
        self.pieces_change_by_name()
    }

    /// As `changes_are_named`, of pieces.
    fn pieces_change_by_name(&self) -> Result<(), proptest::test_runner::TestCaseError> {
        let mut twin = Twin::new(&self.world);
        self.changes.iter().try_for_each(|op| {
            let pieces = laws::pieces(&twin, &visible(&self.packets[0]), u64::MAX);
            laws::changes_of_pieces_are_named(&mut twin, &pieces, op)
        })
    }

    /// Whether a law breaks, or an assertion, when the call is left out.
    fn breaks_without(&self, site: Site) -> bool {
        CALLS.with_borrow_mut(|calls| calls.disabled = Some(site));
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| self.laws_hold()));
        CALLS.with_borrow_mut(|calls| calls.disabled = None);
        !matches!(outcome, Ok(Ok(())))
    }
}

/// Changes of what these packets meet, and what one of them teaches.
fn aimed(
    world: &[Op],
    packets: &[FlowKey],
    runner: &mut proptest::test_runner::TestRunner,
) -> Vec<Op> {
    let twin = Twin::new(world);
    let traversals = packets.iter().flat_map(|key| twin.traversals(key));
    let reads: BTreeSet<_> = traversals.flat_map(|traversal| traversal.reads).collect();
    let changes = reads.into_iter().filter_map(generate::change_of).take(AIMED);
    let changes = changes.map(|change| draw(runner, &change));
    let taught = packets.first().map(|key| Op::Teach(Box::new(key.clone())));
    changes.chain(taught).collect()
}

const AIMED: usize = 3;
const CASES: usize = 400;
/// How many of them are tried for one call, of those that reach it.
const CASES_EACH: usize = 60;
const PACKETS: usize = 6;
const CHANGES: usize = 6;

/// Calls that generated packets do not always need: the file, words of the line, and why.
const SPARE: &[(&str, &str, &str)] = &[
    ("commit.rs", "FieldId::EthType", "each action on labels has consulted the type before"),
    ("commit.rs", "self.pending.words()", RARE),
    ("commit.rs", "consult_word(word, 0xffff_ffff", RARE),
    (
        "context.rs",
        "word::BRIDGE",
        "packets that agree are drawn in one bridge; see tests/pipeline",
    ),
    ("context.rs", "FieldId::RecircId", "they are drawn with one id; see tests/pipeline"),
    (
        "context.rs",
        "Object::Bridge(id)",
        "no generated change is one of settings; see tests/pipeline",
    ),
    (
        "cut.rs",
        "Object::Live(frozen.bridge)",
        "what is behind a name that is given no more is met by nobody; it goes the sooner",
    ),
    ("groups.rs", "Object::Group(self.here.id, watched)", RARE),
    ("hash.rs", "FieldId::NwFrag", RARE),
    ("mpls.rs", "THIRD, u64::MAX << 32", RARE),
    ("normal.rs", "Object::Mac(bridge, vlan, mac)", RARE),
    ("piece.rs", "Object::Live(self.here.id)", RARE),
    ("vlan.rs", "VLAN, INNER", RARE),
];

const RARE: &str = "too few generated packets need it; a test of tests/pipeline/reads.rs does";

#[test]
fn every_call_that_records_something_is_needed() {
    let mut runner = runner();
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut runner)).collect();
    let mut reached: BTreeMap<Site, Vec<&Case>> = BTreeMap::new();
    for case in &cases {
        case.sites().into_iter().for_each(|site| reached.entry(site).or_default().push(case));
    }
    // What breaks without a call may be an assertion.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let is_needed = |(site, cases): (&Site, &Vec<&Case>)| {
        (*site, cases.iter().take(CASES_EACH).any(|case| case.breaks_without(*site)))
    };
    let needed: BTreeMap<Site, bool> = reached.iter().map(is_needed).collect();
    panic::set_hook(hook);
    let lines = lines();
    let is_of = |((file, _), words): (&(String, u32), &String), spare: &(&str, &str, &str)| {
        file == spare.0 && words.contains(spare.1)
    };
    for spare in SPARE {
        assert!(lines.iter().any(|line| is_of(line, spare)), "there is no {spare:?}");
    }
    let judge = |line: (&(String, u32), &String)| {
        let (file, number) = line.0;
        let mut own = needed.iter().filter(|((f, n, _), _)| f.ends_with(file) && n == number);
        let verdict = match own.next() {
            Some((_, true)) => return None,
            _ if SPARE.iter().any(|spare| is_of(line, spare)) => return None,
            Some((_, false)) => "no law breaks without",
            None => "no packet reaches",
        };
        Some(format!("{verdict} {file}:{number} {}", line.1))
    };
    let wrong: Vec<String> = lines.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The lines of the source that record something.
fn lines() -> BTreeMap<(String, u32), String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/translate");
    let mut lines = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        let calls = (1..).zip(text.lines()).filter(|(_, line)| {
            ["read", "consult", "consult_mask", "consult_word", "visit", "meet"]
                .iter()
                .any(|call| line.contains(&format!("recorder.{call}(")))
        });
        let named = calls.map(|(at, line)| ((name.to_owned(), at), line.trim().to_owned()));
        lines.extend(named);
    }
    lines
}
