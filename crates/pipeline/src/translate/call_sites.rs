//! Every call by which a translation says what it depended on is needed.
//!
//! The recorder asks here, in tests alone, whether the call that was made is disabled. So each
//! place in the source that records something is left out in turn, with nothing compiled anew, and
//! the laws of translation must break for some packet of the generated worlds.
//!
//! A call that may be left out without a law breaking is listed in [`SPARE`], with the test by name
//! that fails instead.

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

/// A call that generated packets do not always need.
struct Spare {
    file: &'static str,
    /// Words of its line.
    words: &'static str,
    proof: Proof,
}

/// What stands in for the generated packets.
enum Proof {
    /// A test of `tests/pipeline/reads.rs`, which fails without the call.
    Test(&'static str),
    /// Why nothing can fail without it, and why it stays.
    Reason(&'static str),
}

const fn spare(file: &'static str, words: &'static str, test: &'static str) -> Spare {
    Spare { file, words, proof: Proof::Test(test) }
}

/// Calls that too few generated packets need.
const SPARE: &[Spare] = &[
    Spare {
        file: "commit.rs",
        words: "FieldId::EthType",
        proof: Proof::Reason(
            "labels on the wire differ from the key's only behind an action on labels, and each \
             has consulted the type; it stays because the type is what is emitted here",
        ),
    },
    spare("commit.rs", "self.pending.words()", "what_a_clone_has_written_and_is_put_back"),
    spare(
        "commit.rs",
        "consult_word(word, 0xffff_ffff",
        "labels_that_are_pushed_popped_and_put_back",
    ),
    // Packets that agree are drawn in one bridge, and of one round; no change is one of settings.
    spare("context.rs", "word::BRIDGE", "the_bridge_and_that_it_is_the_first_round"),
    spare("context.rs", "FieldId::RecircId", "the_bridge_and_that_it_is_the_first_round"),
    spare("context.rs", "Object::Bridge(id)", "the_bridge_and_that_it_is_the_first_round"),
    // No change is one of a single port.
    spare("context.rs", "Object::Port(self.here.id, number)", "the_ports_of_a_bridge"),
    spare("context.rs", "Object::Port(bridge, port)", "the_ports_that_a_patch_joins"),
    // Read where a packet comes in, but for pieces.
    spare(
        "output.rs",
        "Object::PortFilters(self.here.id)",
        "whether_ports_filter_where_a_packet_goes_back_behind_a_cut",
    ),
    // What is behind a name that is given no more is met by nobody; it goes the sooner.
    spare(
        "cut.rs",
        "Object::Live(frozen.bridge)",
        "what_hidden_state_can_be_read_where_a_traversal_is_cut",
    ),
    spare(
        "groups.rs",
        "Object::Group(self.here.id, watched)",
        "the_group_and_each_that_its_buckets_watch",
    ),
    spare("hash.rs", "FieldId::NwFrag", "the_connection_that_chooses_a_bucket"),
    // A change that takes one of the rules which are counted, and no other that was met, is rare.
    spare(
        "learn.rs",
        "read(counted)",
        "how_many_rules_of_a_cookie_there_are_where_that_is_limited",
    ),
    spare("mpls.rs", "THIRD, u64::MAX << 32", "labels_that_are_pushed_popped_and_put_back"),
    // Packets with the type of a tag and none are not drawn: no frame can be made of them.
    spare("normal.rs", "FieldId::EthType, bit", "that_a_type_is_not_that_of_a_tag"),
    spare(
        "normal.rs",
        "Object::Mac(bridge, vlan, mac)",
        "where_addresses_are_or_that_nobody_knows",
    ),
    spare(
        "piece.rs",
        "Object::Live(self.here.id)",
        "what_hidden_state_can_be_read_where_a_traversal_is_cut",
    ),
    spare("vlan.rs", "VLAN, INNER", "tags_that_are_pushed_over_popped_and_looked_for"),
];

/// The tests by name.
const READS: &str = include_str!("../../tests/pipeline/reads.rs");

#[test]
fn what_generated_packets_do_not_need_has_a_test_by_name() {
    let lines = lines();
    for spare in SPARE {
        let Spare { file, words, proof } = spare;
        assert!(lines.iter().any(|line| spare.is_of(line)), "{file} has no {words}");
        match proof {
            Proof::Test(name) => assert!(READS.contains(&format!("fn {name}()")), "no {name}"),
            Proof::Reason(reason) => assert!(!reason.is_empty()),
        }
    }
}

impl Spare {
    fn is_of(&self, ((file, _), words): (&(String, u32), &String)) -> bool {
        file == self.file && words.contains(self.words)
    }
}

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
    let judge = |line: (&(String, u32), &String)| {
        let (file, number) = line.0;
        let mut own = needed.iter().filter(|((f, n, _), _)| f.ends_with(file) && n == number);
        let verdict = match own.next() {
            Some((_, true)) => return None,
            _ if SPARE.iter().any(|spare| spare.is_of(line)) => return None,
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
