//! Tests that every call which records a dependency of a translation is needed.
//!
//! In tests the recorder calls [`is_disabled`] with the position of the calling line. So the tests
//! can disable one recording call after another, without a new compilation. Without the call, an
//! invariant of translation must break for some packet of the generated networks.
//!
//! A call that may be left out without breaking an invariant is listed in [`EXEMPTIONS`], with the
//! name of the test that fails instead.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe, Location},
    path::Path,
};

use shunt_flow::FlowKey;

use super::invariants;
use crate::testing::{
    CheckedPipeline, draw,
    generate::{self, Op},
    runner, visible,
};

/// A position in the source: file, line and column.
type Site = (&'static str, u32, u32);

thread_local! {
    /// The calls of this thread.
    static CALLS: RefCell<Calls> = RefCell::default();
}

/// The recording calls that were made, and the disabled one.
#[derive(Default)]
struct Calls {
    /// The source positions of the recording calls since the set was cleared.
    made: BTreeSet<Site>,
    disabled: Option<Site>,
}

/// Returns whether the call at `place` is disabled, and notes the call.
pub(in crate::translate) fn is_disabled(place: &'static Location<'static>) -> bool {
    let site = (place.file(), place.line(), place.column());
    CALLS.with_borrow_mut(|calls| {
        calls.made.insert(site);
        calls.disabled == Some(site)
    })
}

/// A network, packets that arrive in it, and later changes of the network.
struct CallSiteCase {
    network: Vec<Op>,
    packets: Vec<FlowKey>,
    changes: Vec<Op>,
}

impl CallSiteCase {
    /// Generates one case of the test.
    fn draw(runner: &mut proptest::test_runner::TestRunner) -> Self {
        let mut some = |count| (0..count).map(|_| draw(runner, &generate::packet())).collect();
        let packets: Vec<FlowKey> = some(PACKETS);
        let mut changes: Vec<Op> = (0..CHANGES).map(|_| draw(runner, &generate::op())).collect();
        let network = draw(runner, &generate::network());
        changes.extend(aimed_changes(&network, &packets, runner));
        Self { network, packets, changes }
    }

    /// Returns the recording calls that the case reaches.
    fn sites(&self) -> BTreeSet<Site> {
        CALLS.with_borrow_mut(|calls| calls.made.clear());
        let _ = self.invariants_hold();
        CALLS.with_borrow_mut(|calls| std::mem::take(&mut calls.made))
    }

    fn invariants_hold(&self) -> Result<(), proptest::test_runner::TestCaseError> {
        let mut runner = runner();
        let mut checked = CheckedPipeline::new(&self.network);
        for key in &self.packets {
            invariants::agreeing_packets_get_one_result(&checked, key, &mut runner)?;
            invariants::agreeing_packets_continue_alike(&checked, key, &mut runner)?;
            invariants::visits_are_uniform(&checked, key, &mut runner)?;
        }
        for op in &self.changes {
            let sub_traversals =
                invariants::sub_traversals(&checked, &visible(&self.packets[0]), u64::MAX);
            invariants::sub_traversals_are_uniform(&checked, &sub_traversals, &mut runner)?;
            invariants::changes_are_named(&mut checked, &self.packets, op)?;
        }
        self.sub_traversals_change_by_name()
    }

    /// Checks that deltas name every change of a sub-traversal's result.
    fn sub_traversals_change_by_name(&self) -> Result<(), proptest::test_runner::TestCaseError> {
        let mut checked = CheckedPipeline::new(&self.network);
        self.changes.iter().try_for_each(|op| {
            let sub_traversals =
                invariants::sub_traversals(&checked, &visible(&self.packets[0]), u64::MAX);
            invariants::changes_of_sub_traversals_are_named(&mut checked, &sub_traversals, op)
        })
    }

    /// Returns whether an invariant or an assertion breaks without the call.
    fn fails_without(&self, site: Site) -> bool {
        CALLS.with_borrow_mut(|calls| calls.disabled = Some(site));
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| self.invariants_hold()));
        CALLS.with_borrow_mut(|calls| calls.disabled = None);
        !matches!(outcome, Ok(Ok(())))
    }
}

/// Returns changes of objects that the packets read, and the learning of a packet.
fn aimed_changes(
    network: &[Op],
    packets: &[FlowKey],
    runner: &mut proptest::test_runner::TestRunner,
) -> Vec<Op> {
    let checked = CheckedPipeline::new(network);
    let traversals = packets.iter().flat_map(|key| checked.traversals(key));
    let reads: BTreeSet<_> = traversals.flat_map(|traversal| traversal.reads).collect();
    let changes = reads.into_iter().filter_map(generate::change_of).take(AIMED);
    let changes = changes.map(|change| draw(runner, &change));
    let learn = packets.first().map(|key| Op::LearnFrom(Box::new(key.clone())));
    changes.chain(learn).collect()
}

/// Maximum number of changes that are aimed at objects of a translation.
const AIMED: usize = 3;
/// Number of generated cases.
const CASES: usize = 400;
/// The most cases that are tried for one call, among the cases that reach it.
const CASES_EACH: usize = 60;
/// Number of packets of a case.
const PACKETS: usize = 6;
/// Number of random changes of a case.
const CHANGES: usize = 6;

/// A recording call that the generated packets do not always need.
struct Exemption {
    file: &'static str,
    /// Text in the source line of the call.
    words: &'static str,
    proof: Proof,
}

/// Evidence that a call is needed, if generated packets do not show it.
enum Proof {
    /// A test of `tests/pipeline/{masks,reads}.rs` that fails without the call.
    Test(&'static str),
    /// The reason why no test can fail without the call, and why the call stays.
    Reason(&'static str),
}

/// Returns an exemption, with the test that covers it.
const fn exempt(file: &'static str, words: &'static str, test: &'static str) -> Exemption {
    Exemption { file, words, proof: Proof::Test(test) }
}

/// Calls that too few generated packets need.
const EXEMPTIONS: &[Exemption] = &[
    Exemption {
        file: "working_packet/action_builder.rs",
        words: "FieldId::EthType",
        proof: Proof::Reason(
            "labels on the wire differ from the key's only after an action on labels, and each \
             has consulted the type; it stays because the type is what is emitted here",
        ),
    },
    exempt(
        "working_packet/action_builder.rs",
        "self.pending.words()",
        "restoring_a_field_after_a_clone_consults_it",
    ),
    exempt(
        "working_packet/action_builder.rs",
        "consult_word(word, 0xffff_ffff",
        "pushes_pops_and_clones_consult_labels",
    ),
    // All generated packets of a comparison are in one bridge and not recirculated. No generated
    // change concerns settings.
    exempt(
        "translate/entry.rs",
        "word::BRIDGE",
        "the_bridge_and_the_recirculation_id_are_consulted",
    ),
    exempt(
        "translate/entry.rs",
        "FieldId::RecircId",
        "the_bridge_and_the_recirculation_id_are_consulted",
    ),
    exempt(
        "translate/bridge_view.rs",
        "Object::Bridge(id)",
        "the_bridge_and_the_recirculation_id_are_consulted",
    ),
    // No generated change concerns a single port.
    exempt(
        "translate/bridge_view.rs",
        "Object::Port(self.id, number)",
        "a_traversal_records_the_ports_of_its_outputs",
    ),
    // The need for these three calls depends on the generated packets and networks.
    exempt(
        "translate/bridge_view.rs",
        "Object::Ports(self.id)",
        "a_traversal_records_the_ports_of_its_outputs",
    ),
    exempt(
        "translate/bridge_view.rs",
        "Object::PortFilters(self.id)",
        "an_ingress_output_after_partition_reads_port_filters",
    ),
    exempt("actions/mirror.rs", "consult_word(VLAN, INNER_ID)", "copy_for_vlan_consults_inner_tag"),
    // Few bridges have bonds with LACP or ports with BFD, and few packets are of these protocols.
    exempt("actions/protocols.rs", "FieldId::EthType", "lacp_frame_consults_type_address_port"),
    exempt("actions/protocols.rs", "FieldId::EthDst", "lacp_frame_consults_type_address_port"),
    exempt(
        "actions/protocols.rs",
        "FieldId::IpProto",
        "bfd_packet_consults_protocol_port_and_address",
    ),
    exempt(
        "actions/protocols.rs",
        "consult(field, 1 << bit)",
        "other_udp_ports_consult_one_bfd_bit",
    ),
    exempt(
        "actions/protocols.rs",
        "consult(field, u128::MAX)",
        "bfd_packet_consults_protocol_port_and_address",
    ),
    // Few bridges snoop, and few packets have a multicast address.
    exempt("actions/multicast.rs", "consult(field", "a_multicast_packet_consults_its_group"),
    exempt(
        "translate/bridge_view.rs",
        "Object::MulticastGroup(self.id",
        "multicast_packet_reads_its_group_and_routers",
    ),
    exempt(
        "translate/bridge_view.rs",
        "Object::MulticastRouters(self.id",
        "multicast_packet_reads_its_group_and_routers",
    ),
    // Few random bridges have bonds, and few packets there go to a learned address.
    exempt(
        "translate/bridge_view.rs",
        "recorder.read(match active",
        "output_to_bond_reads_its_active_member",
    ),
    // Few floods leave on a bond that balances, and few packets are gratuitous ARP packets.
    exempt(
        "actions/bond.rs",
        "consult_word(VLAN, u64::MAX)",
        "a_flood_to_a_bond_consults_the_vlan",
    ),
    exempt(
        "actions/bond.rs",
        "consult(FieldId::EthType",
        "an_announcement_consults_its_arp_fields",
    ),
    exempt("actions/bond.rs", "consult(field", "an_announcement_consults_its_arp_fields"),
    // No packet reaches the entries after an old name; the read only evicts them a little earlier.
    exempt(
        "translate/translation.rs",
        "Object::Live(frozen.bridge)",
        "a_partition_point_reads_the_live_bits",
    ),
    exempt("actions/hash.rs", "FieldId::NwFrag", "a_select_group_consults_the_connection"),
    // A change that affects only a counted rule, and no other visited rule, is rare.
    exempt("actions/learn.rs", "read(counted)", "a_learn_limit_reads_the_number_of_rules"),
    exempt(
        "working_packet/mpls.rs",
        "THIRD, u64::MAX << 32",
        "pushes_pops_and_clones_consult_labels",
    ),
    // Packets with the Ethernet type of a tag and no tag are not generated, because there are no
    // such frames.
    exempt(
        "actions/normal.rs",
        "FieldId::EthType, bit",
        "an_untagged_packet_consults_few_type_bits",
    ),
    exempt(
        "partition/live_state.rs",
        "Object::Live(state.bridge.id())",
        "a_partition_point_reads_the_live_bits",
    ),
    exempt("working_packet/vlan.rs", "VLAN, INNER", "pushes_and_pops_consult_vlan_tags"),
];

/// The sources of the named tests.
const TESTS: [&str; 2] = [
    include_str!("../../../tests/pipeline/masks.rs"),
    include_str!("../../../tests/pipeline/reads.rs"),
];

/// Each recording call that random cases cannot reach names its test, or a reason.
#[test]
fn calls_without_generated_packets_have_a_test() {
    let lines = lines();
    for exemption in EXEMPTIONS {
        let Exemption { file, words, proof } = exemption;
        assert!(lines.iter().any(|line| exemption.is_of(line)), "{file} has no {words}");
        match proof {
            Proof::Test(name) => {
                let own = format!("fn {name}()");
                assert!(TESTS.iter().any(|source| source.contains(&own)), "no {name}");
            }
            Proof::Reason(reason) => assert!(!reason.is_empty()),
        }
    }
}

impl Exemption {
    fn is_of(&self, ((file, _), words): (&(String, u32), &String)) -> bool {
        file == self.file && words.contains(self.words)
    }
}

/// Without any single recording call, some case violates an invariant.
#[test]
fn every_call_that_records_something_is_needed() {
    let mut runner = runner();
    let cases: Vec<CallSiteCase> = (0..CASES).map(|_| CallSiteCase::draw(&mut runner)).collect();
    let mut reached: BTreeMap<Site, Vec<&CallSiteCase>> = BTreeMap::new();
    for case in &cases {
        case.sites().into_iter().for_each(|site| reached.entry(site).or_default().push(case));
    }
    // A disabled call may also violate an assertion, which panics.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let is_needed = |(site, cases): (&Site, &Vec<&CallSiteCase>)| {
        (*site, cases.iter().take(CASES_EACH).any(|case| case.fails_without(*site)))
    };
    let needed: BTreeMap<Site, bool> = reached.iter().map(is_needed).collect();
    panic::set_hook(hook);
    let lines = lines();
    let judge = |line: (&(String, u32), &String)| {
        let (file, number) = line.0;
        let mut own = needed.iter().filter(|((f, n, _), _)| f.ends_with(file) && n == number);
        let verdict = match own.next() {
            Some((_, true)) => return None,
            _ if EXEMPTIONS.iter().any(|exemption| exemption.is_of(line)) => return None,
            Some((_, false)) => "no invariant breaks without",
            None => "no packet reaches",
        };
        Some(format!("{verdict} {file}:{number} {}", line.1))
    };
    let wrong: Vec<String> = lines.iter().filter_map(judge).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the source lines with recording calls, by file and number.
///
/// The name of a file includes its folder.
fn lines() -> BTreeMap<(String, u32), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/translate");
    let mut lines = BTreeMap::new();
    let folders =
        ["", "actions", "partition", "record", "working_packet"].map(|folder| root.join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let [folder, file] = [path.parent().and_then(Path::file_name), path.file_name()]
            .map(|name| name.and_then(|name| name.to_str()).unwrap());
        let name = format!("{folder}/{file}");
        let text = std::fs::read_to_string(&path).unwrap();
        let calls = (1..).zip(text.lines()).filter(|(_, line)| {
            ["read", "consult", "consult_mask", "consult_word", "begin_visit", "visit_conjunction"]
                .iter()
                .any(|call| line.contains(&format!("recorder.{call}(")))
        });
        let named = calls.map(|(at, line)| ((name.clone(), at), line.trim().to_owned()));
        lines.extend(named);
    }
    lines
}
