//! Tests of the reads of an entry, for each kind of object: without these reads, a change leaves an
//! entry that forwards wrongly.
//!
//! Each test installs an entry twice: once as it was translated, and once without its reads of one
//! kind. A later change makes the entry wrong. The entry that read the changed object must be
//! evicted, and the other entry remains.
//!
//! [`Kind`] has every variant of [`Object`]. No translation reads the settings of a bridge, so
//! [`Object::Bridge`] is tested with a bridge that is added. The age and number of MAC addresses
//! have an effect only when an address is removed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod groups;
mod learning;
mod multicast;
mod ports;

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, GroupCommand, MeterCommand,
    Modification, Object, OwnerId, Pipeline, PortInfo, Time, Traversal,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

/// Lists the tests for each kind of read.
/// Without a test, a new kind of object does not compile.
macro_rules! kinds {
    ($($kind:ident: [$($test:ident),+ $(,)?];)+) => {
        /// The kind of an object that an entry reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Kind {
            $($kind),+
        }

        impl Kind {
            /// All kinds of objects, each with the tests that remove the reads of the kind.
            const ALL: &[(Self, &[&str])] = &[$((Self::$kind, &[$(stringify!($test)),+])),+];

            const fn of(object: &Object) -> Self {
                match object {
                    $(Object::$kind(..) => Self::$kind),+
                }
            }
        }
    };
}

kinds! {
    Ports: [
        a_port_added_to_a_flood_evicts_entries,
        port_added_to_normal_flood_evicts_entries,
        changed_vlans_of_a_normal_flood_evict,
        a_changed_port_of_many_outputs_evicts_entries,
    ];
    Port: [
        a_changed_output_port_evicts_entries,
        an_added_output_port_evicts_entries,
        a_removed_patch_peer_evicts_entries,
        a_further_no_recv_port_evicts_entries,
        a_further_no_fwd_port_evicts_entries,
        a_watched_port_without_output_evicts_entries,
        a_watched_link_that_comes_up_evicts_entries,
        watched_link_of_select_bucket_evicts_entries,
        an_indirectly_watched_link_evicts_entries,
        a_changed_link_of_a_bundle_evicts_entries,
        changed_vlans_of_the_ingress_port_evict,
        changed_vlans_of_the_output_port_evict,
    ];
    PortFilters: [
        the_first_no_recv_port_evicts_entries,
        the_first_no_fwd_port_evicts_entries,
    ];
    Bridge: [an_added_peer_bridge_evicts_entries, an_added_mirror_evicts_entries, an_added_output_of_a_mirror_evicts_entries];
    Group: [
        a_modified_group_evicts_entries,
        a_deleted_group_of_a_bucket_evicts_entries,
        a_modified_watched_group_evicts_entries,
        a_deleted_watched_group_evicts_entries,
        an_added_watched_group_evicts_entries,
        an_indirectly_watched_group_evicts_entries,
    ];
    Meter: [a_modified_meter_evicts_entries, an_added_packet_in_meter_evicts_entries];
    Mac: [
        a_newly_learned_destination_evicts_entries,
        a_moved_destination_evicts_entries,
        an_aged_out_destination_evicts_entries,
        a_flushed_address_evicts_entries,
        address_forgotten_by_full_table_evicts_entries,
        a_moved_source_evicts_entries,
        an_aged_out_source_evicts_entries,
    ];
    MulticastGroup: [
        a_first_member_evicts_entries,
        a_further_member_evicts_entries,
        a_member_that_leaves_evicts_entries,
        an_aged_out_member_evicts_entries,
        group_evicted_by_full_table_evicts_entries,
    ];
    MulticastRouters: [a_new_router_port_evicts_entries, an_aged_out_router_port_evicts_entries];
    Live: [newly_readable_hidden_state_evicts_entries];
    Learned: [a_deleted_learned_rule_evicts_entries, a_changed_number_of_learned_rules_evicts_entries];
}

const BRIDGE: BridgeId = BridgeId::new(1);
const PEER: BridgeId = BridgeId::new(2);
/// The entry with all objects that its traversal read.
const WHOLE: EntryId = EntryId { owner: OwnerId(0), slot: 0, generation: 0 };
/// The entry of the same traversal without the objects that it read.
const WITHOUT_READS: EntryId = EntryId { owner: OwnerId(0), slot: 1, generation: 0 };

struct Switch(Pipeline);

impl Switch {
    fn new() -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=4).map(PortInfo::datapath).collect()).unwrap();
        Self(pipeline)
    }

    fn modify(&self, request: impl Into<Modification>) -> Change {
        self.0.modify(BRIDGE, [request.into()], Time::ZERO).unwrap()
    }

    fn rule(&self, command: FlowModCommand, rule: &str) -> Change {
        self.modify(parse_rule(command, rule, &NoPortNames).unwrap())
    }

    fn add(&self, rule: &str) -> Change {
        self.rule(FlowModCommand::Add, rule)
    }

    fn group(&self, command: GroupCommand, group: &str) -> Change {
        self.modify(parse_group_mod(command, group, &NoPortNames).unwrap())
    }

    fn meter(&self, command: MeterCommand, meter: &str) -> Change {
        self.modify(parse_meter_mod(command, meter).unwrap())
    }

    /// Changes some of the ports of the bridge.
    fn set_ports(&self, change: impl FnOnce(&mut Vec<PortInfo>)) -> Change {
        let ports = self.0.ports(BRIDGE).unwrap();
        let mut ports: Vec<_> = ports.iter().map(|port| (**port).clone()).collect();
        change(&mut ports);
        self.0.set_ports(BRIDGE, ports).unwrap()
    }

    /// Applies the learn requests of a packet.
    fn learn(&self, key: &FlowKey) -> Change {
        self.learn_at(key, Time::ZERO)
    }

    fn learn_at(&self, key: &FlowKey, now: Time) -> Change {
        self.0.learn(&self.translate(key).learnings, now)
    }

    fn translate(&self, key: &FlowKey) -> Traversal {
        self.0.translate(key, self.0.version())
    }

    /// Applies these changes after an entry was installed.
    /// Checks the reads of one kind as the module documentation describes.
    #[track_caller]
    fn assert_needed(
        &self,
        entry: Traversal,
        kind: Kind,
        change: impl FnOnce(&Self) -> Vec<Change>,
    ) {
        let kept = entry.reads.iter().copied().filter(|object| Kind::of(object) != kind).collect();
        let forgetful = Traversal { reads: kept, ..entry.clone() };
        assert!(forgetful.reads.len() < entry.reads.len(), "the entry reads an object of the kind");
        let mut engine = Direct::new(self.0.version(), 1);
        let entry = Arc::new(entry);
        engine.installed(WHOLE, &entry);
        engine.installed(WITHOUT_READS, &Arc::new(forgetful));
        let changes = change(self);
        let ended = changes.iter().flat_map(|own| engine.apply(&own.deltas, own.version));
        assert_eq!(ended.collect::<Vec<_>>(), [WHOLE]);
        let now = self.0.translate_again(&entry, self.0.version());
        let is_right = now.actions == entry.actions
            && now.next == entry.next
            && now.learnings.len() == entry.learnings.len();
        assert!(!is_right, "a remaining entry forwards wrongly: {entry:?}");
    }
}

/// Returns the key of a packet between two hosts that arrives on a port.
fn packet(port: u32, [source, target]: [u8; 2]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(port));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::EthSrc, 0x0200_0000_0000 | u128::from(source));
    key.set_field(FieldId::EthDst, 0x0200_0000_0000 | u128::from(target));
    key
}

fn any_packet() -> FlowKey {
    packet(1, [1, 2])
}

/// The list of kinds names exactly the tests that remove a read of each kind.
#[test]
fn each_kind_of_read_has_its_test() {
    let sources = [
        include_str!("ports.rs"),
        include_str!("groups.rs"),
        include_str!("addresses.rs"),
        include_str!("learning.rs"),
        include_str!("multicast.rs"),
    ];
    let all: Vec<&str> =
        sources.iter().flat_map(|source| source.split("#[test]\nfn ").skip(1)).collect();
    for (kind, tests) in Kind::ALL {
        let removes = |test: &&&str| test.contains(&format!("Kind::{kind:?},"));
        let removing = all.iter().filter(removes).filter_map(|test| test.split('(').next());
        assert_eq!(sort_names(removing), sort_names(tests.iter().copied()), "{kind:?}");
    }
}

fn sort_names<'t>(tests: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut tests: Vec<_> = tests.collect();
    tests.sort_unstable();
    tests
}
