//! The reads of an entry, kind by kind: without one kind, a change leaves an entry that forwards
//! wrongly.
//!
//! Each case installs an entry twice: once as it was translated, and once without its reads of one
//! kind. Then a change makes the entry wrong. The first must be evicted, and the second stays.
//!
//! [`Kind`] has every variant of [`Object`]. No translation reads the settings of a bridge, so
//! [`Object::Bridge`] is tested with a bridge that is added. The age and number of MAC addresses
//! matter only when one is removed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod addresses;
mod groups;
mod learning;
mod ports;

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, GroupCommand, MeterCommand,
    Modification, Object, OwnerId, Pipeline, PortInfo, Time, Traversal,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

/// Lists the tests that remove a kind of read.
/// A new kind of object does not compile without one.
macro_rules! kinds {
    ($($kind:ident: [$($test:ident),+ $(,)?];)+) => {
        /// The kind of an object that is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Kind {
            $($kind),+
        }

        impl Kind {
            /// All kinds, each with the tests that remove it.
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
        the_ports_of_a_flood,
        the_ports_that_normal_floods_to,
        the_vlans_of_the_ports_that_normal_floods_to,
        more_ports_than_are_recorded_individually,
    ];
    Port: [
        the_ports,
        a_port_that_does_not_exist_yet,
        the_peer_of_a_patch,
        the_ingress_port_with_a_no_recv_port,
        the_ingress_port_with_a_no_fwd_port,
        a_watched_port_without_an_output,
        a_port_that_a_bucket_watches_until_its_link_comes_up,
        a_port_that_a_bucket_of_a_select_group_watches,
        a_port_that_a_watched_group_watches,
        the_ports_that_a_bundle_chooses_among,
        the_vlans_of_the_port_that_a_packet_came_in_by,
        the_vlans_of_the_port_that_normal_sends_to,
    ];
    PortFilters: [
        the_port_filters_of_received_packets,
        the_port_filters_of_sent_packets,
    ];
    Bridge: [a_bridge_that_does_not_exist_yet];
    Group: [
        a_group,
        a_group_that_a_bucket_sends_to,
        a_watched_group_that_changes,
        a_watched_group_that_is_removed,
        a_watched_group_that_does_not_exist_yet,
        a_group_that_a_watched_group_watches,
    ];
    Meter: [a_meter, a_missing_meter_of_packet_ins];
    Mac: [
        an_address_that_is_not_known_yet,
        an_address_that_moves_to_another_port,
        an_address_that_ages_out,
        an_address_that_is_flushed,
        an_address_that_a_full_table_forgets,
        the_source_of_a_packet_that_moves_to_another_port,
        the_source_of_a_packet_that_ages_out,
    ];
    Live: [the_hidden_state_readable_after_a_partition_point];
    Learned: [a_rule_that_a_packet_learned, the_number_of_rules_under_a_limit];
}

const BRIDGE: BridgeId = BridgeId::new(1);
const PEER: BridgeId = BridgeId::new(2);
const WHOLE: EntryId = EntryId { owner: OwnerId(0), slot: 0, generation: 0 };
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
        let mut ports = self.0.ports(BRIDGE).unwrap().to_vec();
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
    /// Checks its reads of a kind as described above.
    #[track_caller]
    fn assert_needed(
        &self,
        entry: Traversal,
        kind: Kind,
        change: impl FnOnce(&Self) -> Vec<Change>,
    ) {
        let kept = entry.reads.iter().copied().filter(|object| Kind::of(object) != kind).collect();
        let forgetful = Traversal { reads: kept, ..entry.clone() };
        assert!(forgetful.reads.len() < entry.reads.len(), "it reads one of the kind");
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

/// A packet of a port between two hosts.
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

#[test]
fn every_kind_of_read_is_removed_by_its_tests() {
    let sources = [
        include_str!("ports.rs"),
        include_str!("groups.rs"),
        include_str!("addresses.rs"),
        include_str!("learning.rs"),
    ];
    let all: Vec<&str> =
        sources.iter().flat_map(|source| source.split("#[test]\nfn ").skip(1)).collect();
    for (kind, tests) in Kind::ALL {
        let removes = |test: &&&str| test.contains(&format!("Kind::{kind:?},"));
        let removing = all.iter().filter(removes).filter_map(|test| test.split('(').next());
        assert_eq!(sorted(removing), sorted(tests.iter().copied()), "{kind:?}");
    }
}

fn sorted<'t>(tests: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut tests: Vec<_> = tests.collect();
    tests.sort_unstable();
    tests
}
