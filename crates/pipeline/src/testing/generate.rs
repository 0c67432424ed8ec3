//! Generators of rules and packets with few tables, fields and values, so that packets match rules.

mod bfd;
mod bond;
mod conjunction;
mod groups;
mod labels;
mod learn;
mod mirror;
mod multicast;
mod normal;
mod op;

use std::time::Duration;

use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
};
use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo, layout::word};

pub use self::{
    mirror::mirrors,
    multicast::{message, multicast_packet, snooping},
    op::Op,
};
use super::visible;
use crate::{
    action::{Action, ControllerAction, PacketInReason, Subfield},
    bridges::port::{PortConfig, PortInfo, PortKind},
    id::{BridgeId, Cookie, DatapathPort, TableId},
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::{FlowFlags, Instructions},
        rule_filter::RuleFilter,
    },
    time::Time,
    update::bundle::BundleStep,
    versions::delta::Object,
};

/// The bridges of generated networks.
///
/// The two bridges have ports, and patch ports to each other.
pub const BRIDGES: [BridgeId; 2] = [BridgeId::new(1), BridgeId::new(2)];

/// Generates the operations that build a network.
///
/// First come the ports of both bridges, then groups and meters, then rules, settings, and the
/// packets that learn actions process.
pub fn network() -> impl Strategy<Value = Vec<Op>> {
    let built = prop_oneof![2 => plain_network(), 2 => labels::network(), 1 => goto_network()];
    let settings = BRIDGES.map(normal::first_settings);
    let snooping = BRIDGES.map(multicast::initial_ops);
    // Boxed, because the value would be on the stack of each test.
    (built.boxed(), settings, snooping, vec(packet(), 0..6)).prop_map(
        |(mut network, settings, snooping, learning_keys)| {
            network.extend(settings.into_iter().chain(snooping).flatten());
            network.extend(learning_keys.into_iter().map(|key| Op::LearnFrom(Box::new(key))));
            network
        },
    )
}

/// Generates two bridges with ports, groups, rules and table-miss rules.
fn plain_network() -> impl Strategy<Value = Vec<Op>> {
    let built = |id| {
        let families = vec(conjunction::family(), 0..2);
        let misses = (table_miss_of(TableId::FIRST), vec(table_miss(), 0..4));
        (ports(id), groups::all(), vec(add(), 0..24), families, misses).prop_map(
            move |(ports, groups, rules, families, (first, misses))| {
                let rules = [rules, families.concat(), misses, vec![first]].concat();
                [Op::SetPorts(id, ports), Op::Modify(id, groups), Op::Apply(id, rules)]
            },
        )
    };
    let [one, two] = BRIDGES;
    (built(one), built(two)).prop_map(|(first, second)| [first, second].concat())
}

/// A network in which the rules of the first tables only go to the next table.
///
/// The rules have no action sets, so the sub-traversals of a packet can be combined.
pub fn goto_network() -> impl Strategy<Value = Vec<Op>> {
    let misses = |id| {
        let all = (0..4).filter_map(TableId::new).map(table_miss_of).collect::<Vec<_>>();
        all.prop_map(move |rules| Op::Apply(id, rules))
    };
    let [one, two] = BRIDGES.map(misses);
    let settings = BRIDGES.map(normal::first_settings);
    let parts = (plain_network().boxed(), one, two, 1_u8..4, settings);
    parts.prop_map(|(mut network, one, two, tables, settings)| {
        network.extend([one, two]);
        network.extend(settings.into_iter().flatten());
        let led = |op| match op {
            Op::Apply(id, rules) => {
                let rules = rules.into_iter().map(|rule| leading(rule, tables));
                Some(Op::Apply(id, rules.collect()))
            }
            Op::Modify(..) => None,
            op => Some(op),
        };
        network.into_iter().filter_map(led).collect()
    })
}

/// Returns the rule without `write_actions`.
///
/// A rule in one of the first `tables` tables also keeps only its `goto_table`.
fn leading(rule: FlowMod, tables: u8) -> FlowMod {
    let instructions = match rule.table {
        TableSelector::One(table) if table.number() < tables => {
            let goto = TableId::new(table.number() + 1);
            Instructions { goto, ..Instructions::default() }
        }
        _ => Instructions { write: Box::default(), ..rule.instructions },
    };
    FlowMod { instructions, ..rule }
}

/// A random change of a network.
pub fn op() -> impl Strategy<Value = Op> {
    let mods = (select(&BRIDGES[..]), vec(flow_mod(), 1..4));
    let new_ports = select(&BRIDGES[..]).prop_flat_map(|id| (Just(id), ports(id)));
    prop_oneof![
        8 => mods.prop_map(|(id, mods)| Op::Apply(id, mods)),
        5 => groups::op(),
        1 => new_ports.prop_map(|(id, ports)| Op::SetPorts(id, ports)),
        2 => prop_oneof![2 => mirror::op(), 2 => normal::op(), 3 => multicast::op()],
        3 => packet().prop_map(|key| Op::LearnFrom(Box::new(key))),
        1 => Just(Op::Reclaim),
    ]
}

/// A change of any kind: those of [`op`], bundles, and rules that expire.
pub fn change() -> impl Strategy<Value = Op> {
    let bundle = select(&BRIDGES[..]).prop_flat_map(|id| (Just(id), vec(step(id), 1..5)));
    let moment = select(vec![2, 2, 2, 3, 5, 7]).prop_map(Duration::from_secs);
    prop_oneof![
        20 => op(),
        5 => bundle.prop_map(|(id, steps)| Op::Commit(id, steps)),
        1 => moment.prop_map(|moment| Op::Expire(Time::ZERO.after(moment))),
    ]
}

/// A request of a bundle; the port of a port-mod may not exist.
fn step(id: BridgeId) -> impl Strategy<Value = BundleStep> {
    let sent = (packet(), vec(action(), 0..4)).prop_map(move |(mut key, actions)| {
        key.set_bridge(id.number().into());
        BundleStep::Packet { key: Box::new(key), actions }
    });
    let port = select(vec![1, 2, 3, 1, 2, 3, 1, 2, 3, 5]).prop_map(PortNo::new);
    prop_oneof![
        3 => flow_mod().prop_map(|request| BundleStep::Modify(request.into())),
        1 => groups::request().prop_map(BundleStep::Modify),
        2 => (port, config()).prop_map(|(port, config)| BundleStep::Port(port, config)),
        1 => sent,
    ]
}

/// Returns a change of an object that a translation has consulted.
/// `None` if its kind has no such changes.
#[must_use]
pub fn change_of(object: Object) -> Option<BoxedStrategy<Op>> {
    groups::change_of(object)
}

/// Ports of a bridge, most of them members of bonds.
pub fn bonded_ports(id: BridgeId) -> impl Strategy<Value = Vec<PortInfo>> {
    ports(id).prop_flat_map(|ports| bond::bonded(ports, 1))
}

/// The ports of a bridge: datapath ports 1 to 3 and LOCAL, one or two patch ports.
///
/// The settings of the ports are random.
pub fn ports(id: BridgeId) -> impl Strategy<Value = Vec<PortInfo>> {
    let kinds = move |(number, patch): (u32, PortKind)| {
        let datapath = DatapathPort::new(u32::from(id.number()) * 100 + number % 100);
        if number <= 3 || number == PortNo::LOCAL.number() {
            PortKind::Datapath(datapath)
        } else {
            patch
        }
    };
    let port = move |number| {
        let to = select(&BRIDGES[..]);
        let to_patch = (to, 4u32..7)
            .prop_map(|(bridge, port)| PortKind::Patch { bridge, port: PortNo::new(port) });
        let kind = prop_oneof![5 => to_patch, 1 => Just(PortKind::Unbound)];
        let settings = (normal::settings(), multicast::flooding());
        (Just(number), kind, config(), settings).prop_map(
            move |(number, kind, config, ((vlans, is_protected), multicast))| PortInfo {
                vlans,
                is_protected,
                multicast,
                name: format!("p{number}"),
                config,
                mac: [2, 0, 0, 0, 0, 1],
                ..PortInfo::new(PortNo::new(number), kinds((number, kind)))
            },
        )
    };
    (1u32..=4).prop_flat_map(move |last| {
        let numbers = (1..=last.max(3)).chain((last > 3).then_some(5));
        let ports = numbers.chain([PortNo::LOCAL.number()]).map(port).collect::<Vec<_>>();
        let ports = ports.prop_flat_map(groups::with_links).prop_flat_map(bond::few_bonded);
        ports.prop_flat_map(bfd::few_with_bfd)
    })
}

/// Generates the configuration of a port.
fn config() -> impl Strategy<Value = PortConfig> {
    let rarely = || prop::bool::weighted(0.04);
    let flags = (rarely(), rarely(), rarely(), rarely(), prop::bool::weighted(0.2));
    flags.prop_map(|(port_down, no_recv, no_fwd, no_packet_in, no_flood)| PortConfig {
        port_down,
        no_recv,
        no_fwd,
        no_packet_in,
        no_flood,
    })
}

/// A packet as it arrives on a port of the datapath.
pub fn packet() -> impl Strategy<Value = FlowKey> {
    let headers: Vec<_> = HEADERS
        .iter()
        .map(|(field, values)| select(*values).prop_map(move |value| (*field, value)))
        .collect();
    let tags = vec((select(vec![0x8100u64, 0x88a8]), select(&TCIS[..])), 0..=2);
    let parts = (select(&BRIDGES[..]), 1u32..=3, headers, tags);
    let packet = parts.prop_map(|(bridge, port, headers, tags)| {
        let mut key = FlowKey::ZERO;
        headers.into_iter().for_each(|(field, value)| key.set_field(field, value));
        key.words_mut()[usize::from(word::VLAN)] = tags
            .iter()
            .zip([32, 0])
            .fold(0, |word, ((tpid, tci), shift)| word | (tpid << 16 | tci) << shift);
        key.set_bridge(bridge.number().into());
        key.set_in_port(PortNo::new(port));
        key
    });
    let packet = multicast::few_for_groups(bond::few_for_lacp(packet));
    labels::labelled(bfd::few_for_bfd(packet))
}

/// A packet that agrees with `key` under `mask`.
/// All other bits of the packet are random.
///
/// The packet could arrive on a datapath port: for example, the bits of a missing tag are zero. If
/// the test compares results of the packet, `key` must be that of a generated packet, which has the
/// hidden part of the frame.
pub fn sibling(key: &FlowKey, mask: &FlowMask) -> impl Strategy<Value = FlowKey> + use<> {
    let (key, mask) = (key.clone(), mask.clone());
    // Some words come from a generated packet, with values that rules match: random values would
    // seldom match another rule.
    let noise = vec(option::of(noise_word()), key.words().len());
    (packet(), noise, 1u32..=3).prop_map(move |(named, noise, port)| {
        let mut other = named;
        let words = key.words().iter().zip(mask.words()).zip(noise);
        for (word, ((own, mask), noise)) in other.words_mut().iter_mut().zip(words) {
            *word = own & mask | noise.unwrap_or(*word) & !mask;
        }
        other.set_bridge(key.bridge());
        let (tags, own) = (usize::from(word::VLAN), key.words()[usize::from(word::VLAN)]);
        other.words_mut()[tags] = without_absent_tags(other.words()[tags]);
        if (other.words()[tags] ^ own) & mask.words()[tags] != 0 {
            other.words_mut()[tags] = own;
        }
        labels::copy_hidden_state(&mut other, &key, &mask);
        other.set_in_port(PortNo::new(port));
        if !other.agrees_with(&key, &mask) {
            other.set_in_port(key.in_port());
        }
        let agrees = visible(&other).agrees_with(&visible(&key), &mask);
        if agrees { other } else { key.clone() }
    })
}

/// Returns `tags` with absent tags set to zero.
/// A tag below an absent tag counts as absent.
const fn without_absent_tags(tags: u64) -> u64 {
    if tags & 0x1000 << 32 == 0 {
        0
    } else if tags & 0x1000 == 0 {
        tags & 0xffff_ffff_0000_0000
    } else {
        tags
    }
}

fn noise_word() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 3 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(0x1000 << 32 | 5)]
}

/// A flow-mod.
pub fn flow_mod() -> impl Strategy<Value = FlowMod> {
    let command = select(vec![
        FlowModCommand::Modify,
        FlowModCommand::ModifyStrict,
        FlowModCommand::Delete,
        FlowModCommand::DeleteStrict,
    ]);
    let cookie = (0u64..4, select(vec![0, 0, 0, 1, u64::MAX]));
    let out_port = prop_oneof![3 => Just(PortNo::ANY), 1 => (1u32..4).prop_map(PortNo::new)];
    let out_group = prop_oneof![4 => Just(RuleFilter::GROUP_ANY), 1 => 1u32..4];
    let outputs = (out_port, out_group);
    let changed = (add(), command, cookie, outputs, prop::bool::weighted(0.2)).prop_map(
        |(request, command, (cookie, cookie_mask), (out_port, out_group), all)| {
            let table = if all { TableSelector::All } else { request.table };
            let cookie = Cookie::new(cookie);
            FlowMod { command, cookie, cookie_mask, out_port, out_group, table, ..request }
        },
    );
    prop_oneof![3 => add(), 2 => changed]
}

/// A flow-mod that adds a rule.
pub fn add() -> impl Strategy<Value = FlowMod> {
    prop_oneof![
        14 => rule(),
        1 => rule().prop_map(labels::popping),
        2 => conjunction::clause(),
        2 => conjunction::answer(),
    ]
}

/// A table-miss rule: it has the lowest priority and matches all packets.
fn table_miss() -> impl Strategy<Value = FlowMod> {
    rule().prop_map(|request| FlowMod {
        matching: Match::any(),
        priority: Priority::default(),
        ..request
    })
}

/// A table-miss rule of `table`.
fn table_miss_of(table: TableId) -> impl Strategy<Value = FlowMod> {
    table_miss().prop_map(move |request| FlowMod { table: TableSelector::One(table), ..request })
}

/// Generates the addition of a rule.
fn rule() -> impl Strategy<Value = FlowMod> {
    let timeouts = (select(vec![0u64, 0, 2, 5]), select(vec![0u64, 0, 3, 7]));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let place = (table(), 0u16..4, matching());
    (place, 0u64..4, timeouts, flags, any::<Index>()).prop_flat_map(
        |((table, priority, matching), cookie, (idle, hard), (check_overlap, reset_counts), _)| {
            instructions(table).prop_map(move |instructions| FlowMod {
                command: FlowModCommand::Add,
                table: TableSelector::One(table),
                matching: matching.clone(),
                priority: Priority::new(priority),
                cookie: Cookie::new(cookie),
                cookie_mask: 0,
                idle_timeout: Duration::from_secs(idle),
                hard_timeout: Duration::from_secs(hard),
                importance: 0,
                flags: FlowFlags { check_overlap, reset_counts, ..FlowFlags::default() },
                out_port: PortNo::ANY,
                out_group: RuleFilter::GROUP_ANY,
                instructions,
            })
        },
    )
}

/// A match on up to three fields, whole or in part.
pub fn matching() -> impl Strategy<Value = Match> {
    let part = prop_oneof![4 => Just(u128::MAX), 1 => Just(0x1000), 1 => Just(0xffff_0000)];
    vec((select(MATCHED), any::<Index>(), part), 0..=3).prop_map(|parts| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        for ((field, values), index, part) in parts {
            let part = if field == FieldId::InPort { u128::MAX } else { part };
            key.set_field_masked(field, *index.get(values), part);
            mask.add_bits(field, part);
        }
        Match::new(&key, &mask)
    })
}

/// Instructions of a rule in a table.
pub fn instructions(table: TableId) -> impl Strategy<Value = Instructions> {
    let apply = vec(action(), 0..5);
    let write = prop_oneof![2 => Just(Vec::new()), 1 => vec(action(), 1..4)];
    let metadata = option::weighted(0.2, (0u64..3, select(vec![u64::MAX, 1, 3])));
    let goto = option::weighted(0.4, (table.number() + 1)..=4);
    let meter = option::weighted(0.15, groups::meter());
    let parts = (meter, apply, prop::bool::weighted(0.1), write, metadata, goto);
    parts.prop_map(|(meter, apply, clear, write, metadata, goto)| Instructions {
        meter,
        apply: apply.into(),
        clear,
        write: write.into(),
        metadata: metadata.map(|(value, mask)| (value & mask, mask)),
        goto: goto.filter(|table| *table < 4).and_then(TableId::new),
    })
}

/// An action; clones nest three deep.
pub fn action() -> impl Strategy<Value = Action> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            6 => inner.clone(),
            1 => vec(inner, 0..4).prop_map(|list| Action::Clone(list.into())),
        ]
    })
}

/// Generates an action without nested actions.
fn leaf() -> impl Strategy<Value = Action> {
    prop_oneof![8 => plain_action(), 1 => groups::action()]
}

/// An action that names neither groups nor meters.
fn plain_action() -> impl Strategy<Value = Action> {
    let output = (any_port(), select(vec![0u16, 128]));
    let output_field = select(vec![FieldId::Reg0, FieldId::Reg1, FieldId::InPort, FieldId::Xxreg0]);
    let resubmit = (option::weighted(0.3, any_port()), option::weighted(0.8, table()));
    prop_oneof![
        8 => output.prop_map(|(port, max_len)| Action::Output { port, max_len }),
        1 => output_field.prop_map(|field| Action::OutputField {
            source: Subfield::whole(field),
            max_len: 64,
        }),
        1 => (any_port(), 14u32..99)
            .prop_map(|(port, max_len)| Action::OutputTruncated { port, max_len }),
        1 => controller().prop_map(|asked| Action::Controller(Box::new(asked))),
        6 => set_field(),
        1 => (1u16..3).prop_map(Action::SetTpSrc),
        1 => (1u16..3).prop_map(Action::SetTpDst),
        2 => load(),
        4 => move_bits(),
        2 => select(vec![0x8100, 0x88a8]).prop_map(|ethertype| Action::PushVlan { ethertype }),
        2 => Just(Action::PopVlan),
        2 => vec(0u16..2, 0..=2)
            .prop_map(|ids| Action::DecTtl { controllers: ids.into() }),
        3 => resubmit.prop_map(|(port, table)| Action::Resubmit { port, table }),
        5 => labels::action(),
        1 => Just(Action::SetQueue(7)),
        1 => Just(Action::PopQueue { ends_enqueue: false }),
        1 => Just(Action::Note(Box::new([1, 2]))),
        1 => Just(Action::Exit),
        2 => learn::learn(),
        2 => learn::fin_timeout(),
    ]
}

/// Generates a `controller` action.
fn controller() -> impl Strategy<Value = ControllerAction> {
    let reason = select(vec![PacketInReason::Action, PacketInReason::InvalidTtl]);
    let meter = option::weighted(0.3, groups::meter());
    let pause = prop::bool::weighted(0.3);
    (reason, 0u16..2, meter, pause).prop_map(|(reason, controller_id, meter, pause)| {
        ControllerAction {
            meter,
            pause,
            max_len: 99,
            controller_id,
            reason,
            userdata: Box::new([7]),
        }
    })
}

/// Generates a `set_field` action with a full or partial mask.
fn set_field() -> impl Strategy<Value = Action> {
    let part = prop_oneof![4 => Just(u128::MAX), 1 => Just(0x10ff), 1 => Just(0x0f0f)];
    (select(WRITTEN), any::<Index>(), part).prop_map(|((field, values), index, part)| {
        let mask = part & field.value_max();
        Action::SetField { field, value: index.get(values) & mask, mask }
    })
}

/// Generates a `load` action.
fn load() -> impl Strategy<Value = Action> {
    (subfield(), 0u64..8).prop_map(|(target, value)| {
        let value = if target.width < 3 { value & 1 } else { value };
        Action::Load { target, value }
    })
}

/// Generates a `move` action between two subfields of the same width.
fn move_bits() -> impl Strategy<Value = Action> {
    (subfield(), subfield()).prop_map(|(source, target)| {
        let width = source.width.min(target.width);
        Action::Move { source: Subfield { width, ..source }, target: Subfield { width, ..target } }
    })
}

/// Generates a subfield.
fn subfield() -> impl Strategy<Value = Subfield> {
    let fields = select(WRITTEN).prop_map(|(field, _)| field);
    (fields, any::<Index>(), any::<Index>()).prop_map(|(field, offset, width)| {
        let offset = offset.index(usize::from(field.width()));
        let width = 1 + width.index((usize::from(field.width()) - offset).min(48));
        let small = |number: usize| u8::try_from(number).unwrap_or(0);
        Subfield { field, offset: small(offset), width: small(width) }
    })
}

/// Generates an output port: 1 to 6, a reserved port, or 77, which is absent.
fn any_port() -> impl Strategy<Value = PortNo> {
    let reserved = vec![
        PortNo::IN_PORT,
        PortNo::FLOOD,
        PortNo::NORMAL,
        PortNo::NORMAL,
        PortNo::ALL,
        PortNo::CONTROLLER,
        PortNo::LOCAL,
        PortNo::TABLE,
        PortNo::new(77),
    ];
    prop_oneof![3 => (1u32..=6).prop_map(PortNo::new), 1 => select(reserved)]
}

/// Generates the id of a table.
fn table() -> impl Strategy<Value = TableId> {
    (0u8..4).prop_filter_map("a table", TableId::new)
}

/// Tag control information of generated tags, with the present bit.
const TCIS: [u64; 3] = [0x1000, 0x1005, 0x3005];
/// The MAC addresses of generated packets and rules; the last is a group address.
const MACS: &[u128] = &[2 << 40 | 1, 2 << 40 | 1, 2 << 40 | 2, 2 << 40 | 2, 0xffff_ffff_ffff];
/// The IPv4 addresses of generated packets and rules.
const ADDRESSES: &[u128] = &[0x0a00_0001, 0x0a00_0002, 0x0a01_0001];
/// Values of registers and metadata.
const SMALL: &[u128] = &[0, 1, 2, 3];
/// Transport ports that rules match and packets have.
const PORTS: &[u128] = &[1, 2, 80];

/// Fields of packets, with their values.
const HEADERS: &[(FieldId, &[u128])] = &[
    (FieldId::EthType, &[0x0800, 0x0800, 0x0800, 0x0806, 0x88cc]),
    (FieldId::EthDst, MACS),
    (FieldId::EthSrc, MACS),
    (FieldId::Ipv4Src, ADDRESSES),
    (FieldId::Ipv4Dst, ADDRESSES),
    (FieldId::IpProto, &[6, 17]),
    (FieldId::IpDscp, &[0, 10, 28]),
    (FieldId::NwTtl, &[0, 1, 2, 64]),
    (FieldId::NwFrag, &[0, 0, 0, 1, 3]),
    (FieldId::TcpSrc, PORTS),
    (FieldId::TcpDst, PORTS),
    (FieldId::TcpFlags, &[0, 0x10, 0x11, 0x14]),
];

/// Fields that rules match, with values that packets have.
const MATCHED: &[(FieldId, &[u128])] = &[
    (FieldId::InPort, &[1, 2, 3, 4]),
    (FieldId::EthType, &[0x0800, 0x0806, 0x8847]),
    (FieldId::EthDst, MACS),
    (FieldId::VlanTci, &[0, 0x1000, 0x1005, 0x3005]),
    (FieldId::VlanVid, &[0, 0x1005]),
    (FieldId::Ipv4Src, ADDRESSES),
    (FieldId::Ipv4Dst, ADDRESSES),
    (FieldId::IpProto, &[6, 17]),
    (FieldId::IpDscp, &[10, 12]),
    (FieldId::NwTtl, &[1, 2, 63]),
    (FieldId::TcpDst, PORTS),
    (FieldId::MplsLabel, labels::LABELS),
    (FieldId::MplsBos, &[0, 1]),
    (FieldId::Reg0, SMALL),
    (FieldId::Reg1, SMALL),
    (FieldId::Metadata, SMALL),
];

/// Fields that actions write, with values.
const WRITTEN: &[(FieldId, &[u128])] = &[
    (FieldId::InPort, &[0, 1, 2, 4]),
    (FieldId::EthDst, MACS),
    (FieldId::EthSrc, MACS),
    (FieldId::VlanTci, &[0, 0x1000, 0x1005, 0x0005]),
    (FieldId::VlanVid, &[0, 0x1005, 0x1007]),
    (FieldId::VlanPcp, &[0, 5]),
    (FieldId::DlVlan, &[5, 7]),
    (FieldId::DlVlanPcp, &[0, 5]),
    (FieldId::Ipv4Src, ADDRESSES),
    (FieldId::Ipv4Dst, ADDRESSES),
    (FieldId::NwTtl, &[0, 1, 2]),
    (FieldId::IpDscp, &[0, 9, 12]),
    (FieldId::TcpSrc, PORTS),
    (FieldId::TcpDst, PORTS),
    (FieldId::UdpDst, PORTS),
    (FieldId::ArpTpa, ADDRESSES),
    (FieldId::MplsLabel, labels::LABELS),
    (FieldId::MplsTc, &[0, 3]),
    (FieldId::MplsTtl, &[1, 2, 9]),
    (FieldId::Reg0, SMALL),
    (FieldId::Reg1, SMALL),
    (FieldId::Xreg0, SMALL),
    (FieldId::Xxreg0, SMALL),
    (FieldId::Metadata, SMALL),
];
