//! Descriptions of the datapath actions of a traced packet, in the words of `ofproto/trace`.
//!
//! Different protocols use the same bits of a flow key. So the name of a field depends on the
//! packet's protocol at the time of the action.

use std::{collections::VecDeque, sync::Arc};

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, field::Access, prerequisite, text::format_value,
};
use shunt_pipeline::{
    Continuation, DatapathAction, DatapathPort, Meter, PuntReceiver, QueueId, SampleAction,
    SampleDirection,
};

use crate::{
    ports::{port::BridgePort, registry::BridgeRegistry},
    trace::packet::TracedPacket,
};

/// A packet that is recirculated.
pub(crate) struct TraceContinuation {
    /// The packet before the recirculation.
    pub(crate) packet: TracedPacket,
    /// The state with which the translation continues.
    pub(crate) continuation: Arc<Continuation>,
    /// The text that names the cause of the recirculation.
    pub(crate) reason: String,
}

/// A formatter for lists of actions.
pub(crate) struct Actions<'a> {
    bridges: &'a BridgeRegistry,
    /// The continuations that the trace follows later.
    ahead: &'a mut VecDeque<TraceContinuation>,
    /// The meters that the actions name.
    meters: Vec<Arc<Meter>>,
    /// Notes on packets that an output does not deliver.
    undelivered: Vec<String>,
}

impl<'a> Actions<'a> {
    /// Returns a formatter; it appends recirculated packets to `ahead`.
    pub(crate) const fn new(
        bridges: &'a BridgeRegistry,
        ahead: &'a mut VecDeque<TraceContinuation>,
    ) -> Self {
        Self { bridges, ahead, meters: Vec::new(), undelivered: Vec::new() }
    }

    /// Describes the actions of a packet or of a copy;
    /// copies are nested at most 64 deep.
    pub(crate) fn describe(
        &mut self,
        actions: &[DatapathAction],
        mut packet: TracedPacket,
    ) -> Vec<String> {
        let mut described = Vec::new();
        for action in actions {
            described.push(self.describe_one(action, &packet));
            if !packet.change(action) {
                described.push("drop(malformed)".to_owned());
                break;
            }
        }
        described
    }

    /// Returns the meters in the actions, and the outputs that their port would drop.
    pub(crate) fn finish(self) -> (Vec<Arc<Meter>>, Vec<String>) {
        (self.meters, self.undelivered)
    }

    /// Records an output that the device would refuse because of its MTU.
    ///
    /// The MTU does not include the Ethernet header and one 802.1Q tag.
    fn check_mtu(&mut self, port: DatapathPort, max_len: Option<u32>, packet: &TracedPacket) {
        let Some(port) = find_port(self.bridges, port) else { return };
        let mtu = port.open.as_ref().and_then(|open| open.mtu());
        let (Some(mtu), Some(length)) = (mtu, packet.length()) else { return };
        let length = max_len.map_or(length, |max| length.min(max as usize));
        let tag = if packet.has_customer_tag() { TAG } else { 0 };
        if length > mtu as usize + ETHERNET + tag {
            let (number, name) = (port.number, &port.settings.name);
            self.undelivered.push(format!(
                "output port {number} ({name}): frame of {length} bytes exceeds MTU {mtu}: dropped"
            ));
        }
    }

    /// Describes one action on a traced packet.
    fn describe_one(&mut self, action: &DatapathAction, packet: &TracedPacket) -> String {
        let cut = |len: &Option<u32>| len.map_or_else(String::new, |len| format!("trunc({len}),"));
        match action {
            DatapathAction::SetHeader(set) => format!("set({})", describe_set(set, &packet.key)),
            DatapathAction::PushVlan { tpid, tci } => {
                let (vid, pcp) = (tci & 0xfff, tci >> 13);
                format!("push_vlan(tpid={tpid:#06x},vid={vid},pcp={pcp})")
            }
            DatapathAction::PopVlan => "pop_vlan".to_owned(),
            DatapathAction::Output { port, queue, unless_ingress, max_len } => {
                let name = port_name(self.bridges, *port);
                self.check_mtu(*port, *max_len, packet);
                let unless = if *unless_ingress { "" } else { "!" };
                format!("{}{}{name}{unless}", set_queue(*queue), cut(max_len))
            }
            DatapathAction::Meter(meter) => {
                self.meters.push(Arc::clone(meter));
                format!("meter({})", meter.id)
            }
            DatapathAction::Copy(inner) => {
                format!("clone({})", self.describe(inner, packet.clone()).join(","))
            }
            DatapathAction::OutputIngress { queue, max_len } => {
                format!("{}{}in_port", set_queue(*queue), cut(max_len))
            }
            DatapathAction::Punt(punt) if punt.receiver != PuntReceiver::Controllers => {
                format!("userspace(slow_path({}))", slow_path(punt.receiver))
            }
            DatapathAction::Punt(punt) => {
                let pause = if punt.continuation.is_some() { ",pause" } else { "" };
                let (reason, max_len) = (punt.reason.name(), punt.max_len);
                format!("userspace(controller(reason={reason},max_len={max_len}{pause}))")
            }
            DatapathAction::PushMpls { lse, ethertype } => {
                let (label, tc, bos, ttl) = (lse >> 12, lse >> 9 & 7, lse >> 8 & 1, lse & 0xff);
                format!(
                    "push_mpls(label={label},tc={tc},ttl={ttl},bos={bos},eth_type={ethertype:#06x})"
                )
            }
            DatapathAction::PopMpls { ethertype } => format!("pop_mpls(eth_type={ethertype:#06x})"),
            DatapathAction::Recirculate(continuation) => {
                self.resume(
                    packet,
                    continuation,
                    "recirculated: the packet is parsed again".to_owned(),
                );
                format!("recirc({:#x})", continuation.id())
            }
            DatapathAction::CheckLength { length, larger, other } => {
                let limit = usize::from(*length);
                if packet.length().is_none_or(|own| own > limit) {
                    self.resume(packet, larger, format!("longer than {length} bytes"));
                }
                if packet.length().is_none_or(|own| own <= limit) {
                    self.resume(packet, other, format!("not longer than {length} bytes"));
                }
                let (larger, other) = (larger.id(), other.id());
                format!(
                    "check_pkt_len(size={length},gt(recirc({larger:#x})),le(recirc({other:#x})))"
                )
            }
            DatapathAction::Sample(request) => sample_text(&request.action),
        }
    }

    /// Adds a recirculated packet to the packets that are traced next.
    fn resume(&mut self, packet: &TracedPacket, continuation: &Arc<Continuation>, reason: String) {
        let (packet, continuation) = (packet.clone(), Arc::clone(continuation));
        self.ahead.push_back(TraceContinuation { packet, continuation, reason });
    }
}

/// Returns the word for the receiver of a punt in the control plane.
pub(crate) const fn slow_path(receiver: PuntReceiver) -> &'static str {
    match receiver {
        PuntReceiver::Controllers => "controller",
        PuntReceiver::Lacp(_) => "lacp",
        PuntReceiver::Bfd(_) => "bfd",
        // Open vSwitch prints `action` for IGMP and MLD messages.
        PuntReceiver::Multicast { .. } => "action",
    }
}

/// Describes the fields that a header change writes.
///
/// A wide field is printed only if no narrower field covers the change.
fn describe_set(set: &Match, packet: &FlowKey) -> String {
    let (key, mut rest) = (set.key(), FlowMask::from(set.mask()));
    let mut parts = Vec::new();
    for field in FieldId::all() {
        let bits = rest.field(field);
        let is_written = bits != 0 && field.info().access == Access::ReadWrite;
        if is_written && prerequisite::consult(field, packet, &mut FlowMask::EMPTY.clone()) {
            rest.remove_bits(field, bits);
            let value = format_value(field, key.field(field) & bits, bits);
            parts.push(format!("{}={value}", field.name()));
        }
    }
    parts.join(",")
}

/// Returns the name of a datapath port.
fn port_name(bridges: &BridgeRegistry, datapath: DatapathPort) -> String {
    let found = find_port(bridges, datapath);
    found.map_or_else(|| datapath.to_string(), |port| port.settings.name.clone())
}

/// Returns the port of a bridge with a datapath number.
fn find_port(bridges: &BridgeRegistry, datapath: DatapathPort) -> Option<&BridgePort> {
    let mut ports = bridges.iter().flat_map(|bridge| bridge.ports.values());
    ports.find(|port| port.datapath == Some(datapath))
}

/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;
/// Length of a VLAN tag in bytes.
const TAG: usize = 4;

/// Returns the text of the action that sets an egress queue;
/// empty for the default queue.
fn set_queue(queue: QueueId) -> String {
    if queue == QueueId::DEFAULT { String::new() } else { format!("set_queue({queue}),") }
}

/// Returns a sample action as `ovs-appctl dpctl/dump-flows` prints it.
pub(crate) fn sample_text(action: &SampleAction) -> String {
    let percent = f64::from(action.probability) / f64::from(u16::MAX) * 100.0;
    let port = action.sampling_port.map(|port| format!(",sampling_port={}", port.number()));
    let direction = match action.direction {
        None => "",
        Some(SampleDirection::Ingress) => ",ingress",
        Some(SampleDirection::Egress) => ",egress",
    };
    let always = format!(
        "userspace(pid=0,flow_sample(probability={},collector_set_id={},obs_domain_id={},\
         obs_point_id={}{}{direction}))",
        action.probability,
        action.collector_set_id,
        action.observation_domain_id,
        action.observation_point_id,
        port.unwrap_or_default()
    );
    match action.probability {
        u16::MAX => always,
        _ => format!("sample(sample={percent:.1}%,actions({always}))"),
    }
}
