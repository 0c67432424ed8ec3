//! The masks of the recorded packets: correctness and width.
//!
//! A mask is correct if every packet that is equal under the mask has the same result. The test
//! tries packets near the recorded packet: the other packets of the case, the same frame with one
//! bit flipped, and the same frame on another port.

use std::fmt;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    extract::{VlanLimit, extract},
    layout::word,
    text::{format_match, parse_match},
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, Modification, Pipeline, PortConfig, PortInfo, Time,
    Traversal, text::parse_rule,
};
use shunt_switch::{
    BridgeNames,
    config::{MirrorOptions, PortOptions},
};

use crate::{
    cabled_switch::PORTS,
    case::{Case, RecordedPacket},
};

const BRIDGE: BridgeId = BridgeId::new(1);
/// Key words that no header fills.
const HIDDEN_WORDS: usize = word::ETH_DST as usize;
/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;
/// The bits of the outer tag in that word.
const OUTER_TAG: u64 = 0xffff_ffff_0000_0000;
/// The bits of the inner tag in that word.
const INNER_TAG: u64 = 0x0000_0000_ffff_ffff;
/// The bits of the Ethernet types of both tags in that word.
const TPIDS: u64 = 0xffff_0000_ffff_0000;
/// Number of frame bytes with flipped bits.
const FLIPPED_BYTES: usize = 64;

/// The tables of a case, without a datapath.
pub(crate) struct Tables {
    pipeline: Pipeline,
    names: BridgeNames,
}

/// Counts of masks by width, compared with the masks of Open vSwitch.
#[derive(Default)]
pub(crate) struct Widths {
    equal: u32,
    /// Masks that match more packets than the masks of Open vSwitch.
    wider: u32,
    narrower: u32,
    /// Masks with additional bits and with missing bits.
    other: u32,
}

impl Tables {
    /// Creates tables with the rules of a case.
    pub(crate) fn new(case: &Case) -> Self {
        Self::try_new(case).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Creates tables with the rules of a case; an error names the refused rule.
    pub(crate) fn try_new(case: &Case) -> Result<Self, String> {
        let pipeline = Pipeline::new(1);
        let mirrors = case.mirrors.iter().map(MirrorOptions::mirror).collect();
        pipeline.add_bridge(BRIDGE, BridgeSettings { mirrors, ..BridgeSettings::default() });
        let ports = (1..=PORTS).map(|number| port(number, case)).collect();
        pipeline.set_ports(BRIDGE, ports).expect("the bridge is there");
        let names = BridgeNames::new(&pipeline, BRIDGE);
        let rule = |text: &String| parse_rule(FlowModCommand::Add, text, &names);
        let rules: Result<Vec<_>, _> = case.flows.iter().map(rule).collect();
        let rules = rules.map_err(|error| format!("{}: {error}", case.id))?;
        let rules = rules.into_iter().map(Modification::Flow);
        let all = case.objects()?.into_iter().chain(rules);
        let made = pipeline.modify(BRIDGE, all, Time::ZERO);
        made.map_err(|refused| format!("{}: {refused}", case.id))?;
        Ok(Self { pipeline, names })
    }

    /// Translates a packet with the tables of the case.
    pub(crate) fn translate(&self, packet: &RecordedPacket) -> Traversal {
        self.translate_key(&key(&packet.frame(), packet.in_port))
    }

    /// Returns a packet with equal masked bits and another result,
    /// if there is such a packet.
    ///
    /// The packet is near a recorded packet.
    pub(crate) fn find_mask_violation(
        &self,
        case: &Case,
        packet: &RecordedPacket,
    ) -> Option<String> {
        let traversal = self.translate(packet);
        let mut near = nearby_keys(case, packet);
        let astray = near.find(|key| {
            traversal.mask.agree(key, &FlowKey::from(&traversal.key))
                && !have_equal_results(&traversal, &self.translate_key(key))
        })?;
        Some(format_match(&Match::new(&astray, &full_mask()), &self.names))
    }

    /// Compares a mask with the mask that Open vSwitch recorded as a match.
    ///
    /// Returns the narrower masks.
    pub(crate) fn compare(
        &self,
        traversal: &Traversal,
        recorded: &str,
        widths: &mut Widths,
    ) -> Option<String> {
        let theirs = self.read_mask(recorded);
        let key = FlowKey::from(&traversal.key);
        let mut ours = comparable(&FlowMask::from(&traversal.mask), &key);
        if theirs.field(FieldId::NwFrag) != 0 {
            ours.add_field(FieldId::NwFrag);
        }
        match (ours.is_subset_of(&theirs), theirs.is_subset_of(&ours)) {
            (true, true) => widths.equal += 1,
            (true, false) => widths.wider += 1,
            (false, true) => widths.narrower += 1,
            (false, false) => widths.other += 1,
        }
        ours.remove(&theirs);
        let more = || format_match(&Match::new(&key, &ours), &self.names);
        (!ours.is_empty()).then(more)
    }

    fn read_mask(&self, recorded: &str) -> FlowMask {
        let no_field = ["recirc_id=", "skb_priority=", "skb_mark=", "packet_type="];
        // Labels after the first label cannot be matched.
        let labels = [("mpls_lse1=", FieldId::MplsLse1), ("mpls_lse2=", FieldId::MplsLse2)];
        let items = recorded.split(',').filter(|item| {
            let mut names = no_field.iter().copied().chain(labels.map(|(name, _)| name));
            !names.any(|name| item.starts_with(name))
        });
        let text = items.collect::<Vec<_>>().join(",");
        let matching = parse_match(&text, &self.names);
        let matching = matching.unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut mask = FlowMask::EMPTY;
        mask.add_sparse(matching.mask());
        for (name, field) in labels {
            if recorded.split(',').any(|item| item.starts_with(name)) {
                mask.add_field(field);
            }
        }
        mask
    }

    fn translate_key(&self, key: &FlowKey) -> Traversal {
        self.pipeline.translate(key, self.pipeline.version())
    }
}

impl fmt::Display for Widths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { equal, wider, narrower, other } = self;
        write!(f, "{equal} equal, {wider} wider, {narrower} narrower, {other} neither")
    }
}

/// Returns a mask in the form that Open vSwitch prints.
///
/// Open vSwitch always consults the ingress port and the EtherTypes, and so the presence of a VLAN
/// tag. Open vSwitch never prints registers and metadata, because these fields are zero in every
/// received packet.
fn comparable(mask: &FlowMask, key: &FlowKey) -> FlowMask {
    let mut mask = mask.clone();
    mask.words_mut()[..HIDDEN_WORDS].fill(0);
    mask.add_field(FieldId::InPort);
    mask.add_field(FieldId::EthType);
    for tag in [OUTER_TAG, INNER_TAG] {
        let is_there = key.words()[VLAN] & tag != 0;
        mask.words_mut()[VLAN] &= if is_there { !(tag & TPIDS) } else { !tag };
    }
    mask
}

fn port(number: u32, case: &Case) -> PortInfo {
    let name = format!("p{number}");
    let no_flood =
        case.port_mods.iter().any(|[port, change]| *port == name && change == "no-flood");
    let vlans = case.vlans.iter().find(|port| port.name == name);
    PortInfo {
        config: PortConfig { no_flood, ..PortConfig::default() },
        link_up: !case.down.contains(&number),
        mac: [0; 6],
        vlans: vlans.map(PortOptions::vlans).unwrap_or_default(),
        name,
        ..PortInfo::datapath(number)
    }
}

fn key(frame: &[u8], in_port: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    extract(frame, VlanLimit::One, &mut key);
    key.set_in_port(PortNo::new(in_port));
    key.set_bridge(u64::from(BRIDGE.number()));
    key
}

/// Returns the keys of packets near a recorded packet.
fn nearby_keys(case: &Case, packet: &RecordedPacket) -> impl Iterator<Item = FlowKey> {
    let (frame, in_port) = (packet.frame(), packet.in_port);
    let others = case.packets.iter().map(|other| key(&other.frame(), other.in_port));
    let same = key(&frame, in_port);
    let ports = (1..=PORTS).map(move |port| {
        let mut moved = same.clone();
        moved.set_in_port(PortNo::new(port));
        moved
    });
    let bits = 0..frame.len().min(FLIPPED_BYTES) * 8;
    let turned = bits.map(move |bit| {
        let mut frame = frame.clone();
        frame[bit / 8] ^= 0x80 >> (bit % 8);
        key(&frame, in_port)
    });
    others.chain(ports).chain(turned)
}

/// Returns whether both packets matched the same rules with the same result.
fn have_equal_results(one: &Traversal, other: &Traversal) -> bool {
    let rules = |traversal: &Traversal| {
        let rule =
            |visit: &shunt_pipeline::Visit| (visit.table, visit.rule.as_ref().map(|rule| rule.id));
        traversal.visits.iter().map(rule).collect::<Vec<_>>()
    };
    one.actions == other.actions && one.error == other.error && rules(one) == rules(other)
}

fn full_mask() -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    mask.words_mut().fill(u64::MAX);
    mask
}
