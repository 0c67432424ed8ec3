//! Actions of a cache entry in the syntax of Open vSwitch's datapath.

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_pipeline::{DatapathAction, DatapathPort, PacketInReason, Punt, PuntReceiver, QueueId};

use super::{
    fields::{MaskedFields, hex},
    key::{arp, ethernet, mpls, network, transport},
    numbering::DatapathPorts,
};
use crate::trace::actions::{sample_text, slow_path};

/// A writer of the actions of one entry.
pub(super) struct ActionWriter<'a> {
    pub(super) ports: &'a DatapathPorts,
    /// Ingress port, if the entry matches it.
    pub(super) ingress: Option<DatapathPort>,
}

impl ActionWriter<'_> {
    /// Returns the actions as text; `drop` if there are none.
    /// `key` is the packet before the actions.
    pub(super) fn text(&self, actions: &[DatapathAction], key: &FlowKey) -> String {
        let text = self.list(actions, key.clone());
        if text.is_empty() { "drop".to_owned() } else { text }
    }

    /// Writes the actions of a packet or of a copy; copies are nested at most 64 deep.
    fn list(&self, actions: &[DatapathAction], mut key: FlowKey) -> String {
        let mut parts = Vec::new();
        let mut queue = QueueId::DEFAULT;
        for action in actions {
            if let DatapathAction::Output { queue: next, .. }
            | DatapathAction::OutputIngress { queue: next, .. } = action
                && *next != queue
            {
                parts.push(format!("set(skb_priority({:#x}))", skb_priority(*next)));
                queue = *next;
            }
            self.write(action, &key, &mut parts);
            action.change_key(&mut key);
        }
        parts.join(",")
    }

    /// Appends the text of an action.
    fn write(&self, action: &DatapathAction, key: &FlowKey, parts: &mut Vec<String>) {
        match action {
            DatapathAction::SetHeader(set) => write_set(set, key, parts),
            DatapathAction::PushVlan { tpid, tci } => parts.push(push_vlan(*tpid, *tci)),
            DatapathAction::PopVlan => parts.push("pop_vlan".to_owned()),
            DatapathAction::Output { port, unless_ingress, max_len, .. } => {
                if !(*unless_ingress && self.ingress == Some(*port)) {
                    parts.extend(max_len.map(|length| format!("trunc({length})")));
                    parts.push(self.ports.text(*port));
                }
            }
            DatapathAction::OutputIngress { max_len, .. } => {
                parts.extend(max_len.map(|length| format!("trunc({length})")));
                let port = self.ingress.map(|port| self.ports.text(port));
                parts.push(port.unwrap_or_else(|| "in_port".to_owned()));
            }
            DatapathAction::Meter(meter) => parts.push(format!("meter({})", meter.id)),
            DatapathAction::Copy(inner) => {
                parts.push(format!("clone({})", self.list(inner, key.clone())));
            }
            DatapathAction::Punt(punt) => parts.push(userspace(punt)),
            DatapathAction::PushMpls { lse, ethertype } => {
                let (label, tc, bos, ttl) = (lse >> 12, lse >> 9 & 7, lse >> 8 & 1, lse & 0xff);
                parts.push(format!(
                    "push_mpls(label={label},tc={tc},ttl={ttl},bos={bos},eth_type={ethertype:#x})"
                ));
            }
            DatapathAction::PopMpls { ethertype } => {
                parts.push(format!("pop_mpls(eth_type={ethertype:#x})"));
            }
            DatapathAction::Recirculate(continuation) => parts.push(recirc(continuation.id())),
            DatapathAction::CheckLength { length, larger, other } => {
                let (larger, other) = (recirc(larger.id()), recirc(other.id()));
                parts.push(format!("check_pkt_len(size={length},gt({larger}),le({other}))"));
            }
            DatapathAction::Sample(request) => parts.push(sample_text(&request.action)),
        }
    }
}

/// Returns the `skb_priority` of packets in an egress queue.
///
/// The priority is the number of a Linux traffic class: 1:2 for queue 1.
const fn skb_priority(queue: QueueId) -> u32 {
    match queue {
        QueueId::DEFAULT => 0,
        queue => 0x1_0000 | queue.number().wrapping_add(1) & 0xffff,
    }
}

/// Writes `recirc(ID)`.
pub(super) fn recirc(id: u32) -> String {
    format!("recirc({})", hex(id.into()))
}

/// Formats the action that adds a VLAN tag.
fn push_vlan(tpid: u16, tci: u16) -> String {
    let (vid, pcp) = (tci & 0xfff, tci >> 13);
    match tpid {
        0x8100 => format!("push_vlan(vid={vid},pcp={pcp})"),
        _ => format!("push_vlan(tpid={tpid:#06x},vid={vid},pcp={pcp})"),
    }
}

/// Writes the `userspace` action of a punt.
fn userspace(punt: &Punt) -> String {
    if punt.receiver != PuntReceiver::Controllers {
        return format!("userspace(pid=0,slow_path({}))", slow_path(punt.receiver));
    }
    // OpenFlow 1.4 numbers the packet-in reasons in the order of `ALL`.
    let reason = PacketInReason::ALL.iter().position(|own| *own == punt.reason).unwrap_or_default();
    let continuation = u8::from(punt.continuation.is_some());
    let recirc_id = punt.continuation.as_ref().map_or(0, |continuation| continuation.id());
    format!(
        "userspace(pid=0,controller(reason={reason},dont_send=0,continuation={continuation},\
         recirc_id={recirc_id},rule_cookie={},controller_id={},max_len={}))",
        hex(punt.cookie.number().into()),
        punt.controller_id,
        punt.max_len
    )
}

/// Writes a change of headers: one `set` for each header.
///
/// A change of the VLAN tag is written as `pop_vlan` and `push_vlan`.
fn write_set(set: &Match, packet: &FlowKey, parts: &mut Vec<String>) {
    let (mut key, mask) = (set.key(), FlowMask::from(set.mask()));
    // The protocols of the packet decide the names of the fields.
    for field in [FieldId::EthType, FieldId::IpProto] {
        key.set_field(field, packet.field(field));
    }
    let fields = MaskedFields { key: &key, mask: &mask, with_wildcards: false };
    let tci = FieldId::VlanTci;
    if mask.field(tci) != 0 {
        let tag = packet.field(tci) & !mask.field(tci) | key.field(tci) & mask.field(tci);
        let tag = u16::try_from(tag).unwrap_or_default();
        let tpid = u16::try_from(packet.field(FieldId::VlanTpid)).unwrap_or_default();
        parts.extend(["pop_vlan".to_owned(), push_vlan(tpid, tag)]);
    }
    let is_arp = packet.field(FieldId::EthType) == 0x0806;
    let network = if is_arp { arp(fields) } else { network(fields, None) };
    let mut with_proto = mask.clone();
    with_proto.add_bits(FieldId::IpProto, 0xff);
    let transport_fields = MaskedFields { mask: &with_proto, ..fields };
    let is_mpls = matches!(packet.field(FieldId::EthType), 0x8847 | 0x8848);
    let label = if is_mpls { mpls(fields) } else { None };
    let network = if is_mpls { None } else { network };
    let transport = if is_arp || is_mpls { None } else { transport(transport_fields) };
    let headers = [ethernet(fields), label, network, transport];
    parts.extend(headers.into_iter().flatten().map(|header| format!("set({header})")));
}
