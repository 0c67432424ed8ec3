//! Text for decisions that rules do not show: decisions of port settings, groups, and `NORMAL`.

use shunt_flow::{PortNo, text::PortNames};
use shunt_pipeline::{
    BondHash, Mirror, MirrorOutput, NotedDecision, Pipeline, TranslationNote, VlanMode,
};

use super::multicast::multicast;
use crate::ports::names::BridgeNames;

/// Returns the decisions of one visit; `None`: the decisions outside visits.
pub(crate) fn decisions_of(
    notes: &[TranslationNote],
    visit: Option<usize>,
    pipeline: &Pipeline,
) -> Vec<String> {
    let own = notes.iter().filter(|note| note.visit == visit);
    own.filter_map(|note| text(note.decision, &BridgeNames::new(pipeline, note.bridge))).collect()
}

/// Returns a decision as text.
///
/// `None` if another line of the trace shows it.
fn text(decision: NotedDecision, names: &BridgeNames) -> Option<String> {
    let port = |number: PortNo| port_text(number, names);
    let bond = |number: PortNo| names.bond(number);
    Some(match decision {
        NotedDecision::IngressPortDisabled(own) => {
            format!("{}: a controller disabled receiving, dropped", port(own))
        }
        NotedDecision::MirrorOutputPort(own) => {
            format!("{}: reserved for the copies of a mirror, dropped", port(own))
        }
        NotedDecision::LacpFrame(own) => for_lacp(&port(own), &bond(own)?),
        NotedDecision::BfdPacket(own) => for_bfd(&port(own)),
        NotedDecision::FailOpen => FAIL_OPEN.to_owned(),
        NotedDecision::Mirrored { mirror } => mirrored_text(names.mirror(mirror)?),
        NotedDecision::CopyNotSent { mirror, port: own } => {
            not_copied(names.mirror(mirror)?, &port(own))
        }
        NotedDecision::OutputPortDisabled(own) => {
            format!("{}: a controller disabled sending, not sent", port(own))
        }
        // The list of actions already shows a port that does not exist.
        NotedDecision::OutputPortMissing(own) if !names.has(own) => return None,
        NotedDecision::OutputPortMissing(own) => {
            format!("{}: no device or peer, not sent", port(own))
        }
        NotedDecision::Hairpin(own) => format!("{} is the ingress port, not sent", port(own)),
        NotedDecision::PacketInDisabled(own) => {
            format!("{}: a controller disabled packet-ins, not sent to controllers", port(own))
        }
        NotedDecision::TtlExpired => "the TTL is used up: later actions are skipped".to_owned(),
        NotedDecision::NoLiveBucket(group) => {
            format!("group {group}: it does not exist, or has no live bucket")
        }
        NotedDecision::UnknownIngressPort(own) => {
            format!("NORMAL: the bridge has no port {own}, dropped")
        }
        NotedDecision::VlanNotAllowed { port: own, vlan, mode } => {
            vlan_not_allowed(&port(own), vlan, mode)
        }
        NotedDecision::ServiceVlan { port: own, vlan, service } => {
            service_vlan(&port(own), vlan, service)
        }
        NotedDecision::BondMemberInactive(own) => {
            inactive(&port(own), &bond(own)?, names.is_unused_by_lacp(own))
        }
        NotedDecision::BondWithoutMember(own) => {
            format!("NORMAL: {} has no active member: not sent", bond(own)?)
        }
        NotedDecision::BondMemberChosen(own) => {
            sends(&port(own), &bond(own)?, names.bond_hash(own))
        }
        NotedDecision::BondLoop { port: own, learned } => looped_text(&bond(own)?, &port(learned)),
        NotedDecision::BothPortsProtected(own) => {
            format!("NORMAL: the ingress port and {} are protected: not sent", port(own))
        }
        NotedDecision::UnparsedVlanTag => UNPARSED_VLAN_TAG.to_owned(),
        NotedDecision::ReservedDestination(address) => reserved_destination(address),
        NotedDecision::SourceIsDestination(address) => source_is_destination(address),
        NotedDecision::LearnedOnIngressPort { port: own, vlan } => {
            learned_on_ingress(&port(own), bond(own), vlan)
        }
        NotedDecision::Learned { port: own, vlan } => {
            format!("NORMAL: the destination was learned on {} in VLAN {vlan}", port(own))
        }
        NotedDecision::Flood { vlan, is_group } => {
            let is = if is_group { "a group address" } else { "unknown" };
            format!("NORMAL: the destination is {is}: flooded in VLAN {vlan}")
        }
        NotedDecision::Multicast(own) => multicast(own, port),
    })
}

/// The text for a packet of a bridge that fails open.
const FAIL_OPEN: &str = "no controller is reachable: forwarded by NORMAL, without the tables";

/// The text for a packet with too many VLAN tags.
const UNPARSED_VLAN_TAG: &str = "NORMAL: the packet has a VLAN tag that was not parsed: dropped";

/// Returns the text for a packet to an address that bridges do not forward.
fn reserved_destination(address: [u8; 6]) -> String {
    let mac = mac(address);
    format!("NORMAL: destination {mac} is reserved, bridges do not forward it: dropped")
}

/// Returns the text for a packet with equal source and destination addresses.
fn source_is_destination(address: [u8; 6]) -> String {
    let mac = mac(address);
    let advice = match address {
        [0, 0, 0, 0, 0, 0] => " (a trace without dl_src and dl_dst has zeros: give both)",
        _ => "",
    };
    format!("NORMAL: source and destination are both {mac}: dropped{advice}")
}

/// Returns the text for a VLAN that a port does not accept.
fn vlan_not_allowed(port: &str, vlan: u16, mode: VlanMode) -> String {
    let frame = if vlan == 0 { "untagged".to_owned() } else { format!("tagged with VLAN {vlan}") };
    let accepts = match mode {
        VlanMode::Access(own) => format!("is an access port of VLAN {own}"),
        VlanMode::Trunk | VlanMode::NativeTagged(_) | VlanMode::NativeUntagged(_) => {
            format!("does not carry VLAN {vlan}")
        }
        VlanMode::Dot1qTunnel(own) => {
            format!("is a dot1q-tunnel port of VLAN {own} without customer VLAN {vlan}")
        }
    };
    format!("NORMAL: the packet is {frame}, and {port} {accepts}: dropped")
}

/// Returns the text for a packet that enters the service VLAN of its port.
fn service_vlan(port: &str, vlan: u16, service: u16) -> String {
    let packet = match vlan {
        0 => "a packet without a customer VLAN".to_owned(),
        _ => format!("a packet of customer VLAN {vlan}"),
    };
    format!("NORMAL: {packet} from dot1q-tunnel {port} is in service VLAN {service}")
}

/// Returns the text for a destination learned at the ingress port, or at its bond.
fn learned_on_ingress(port: &str, bond: Option<String>, vlan: u16) -> String {
    let ingress = match bond {
        Some(bond) => format!("a member of {bond}, on which the packet arrived"),
        None => "the ingress port".to_owned(),
    };
    format!("NORMAL: the destination was learned on {port}, {ingress}, in VLAN {vlan}: dropped")
}

/// Returns the text for a frame that is passed to the LACP actor of a bond.
fn for_lacp(port: &str, bond: &str) -> String {
    format!("{port}: a frame of slow protocols, for LACP of {bond} alone")
}

/// Returns the text for a packet that is passed to a BFD session.
fn for_bfd(port: &str) -> String {
    format!("{port}: a packet of BFD, for the session of the port alone")
}

/// Returns the text for a packet that a member of a bond does not receive.
fn inactive(port: &str, bond: &str, is_unused_by_lacp: bool) -> String {
    match is_unused_by_lacp {
        true => format!("NORMAL: the LACP partner of {bond} does not use {port}: dropped"),
        false => format!("NORMAL: {port} is not the active member of {bond}: dropped"),
    }
}

/// Returns the text for the member of a bond that sends a packet.
fn sends(port: &str, bond: &str, hash: Option<BondHash>) -> String {
    let fields = match hash {
        None => return format!("NORMAL: {port} is the active member of {bond}"),
        Some(BondHash::Source) => "source address and VLAN choose it",
        Some(BondHash::Connection) => "the addresses and ports of the connection choose it",
    };
    format!("NORMAL: {port} sends for {bond}: {fields}")
}

/// Returns the text for a packet of the switch that came back on a bond.
fn looped_text(bond: &str, learned: &str) -> String {
    format!(
        "NORMAL: the source was learned on {learned}, so the packet came back on {bond}: dropped"
    )
}

/// Returns the text for a copy of a mirror.
fn mirrored_text(Mirror { name, output, .. }: &Mirror) -> String {
    match output {
        MirrorOutput::Port(port) => format!("mirror {name}: copied to port {port}"),
        MirrorOutput::Vlan(vlan) => format!("mirror {name}: copied to VLAN {vlan}"),
    }
}

/// Returns the text for a copy that a port cannot send.
fn not_copied(Mirror { name, .. }: &Mirror, port: &str) -> String {
    format!("mirror {name}: no copy to {port}, which is disabled or has no device")
}

/// Returns a MAC address as text.
fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the number and the name of a port as text.
fn port_text(number: PortNo, names: &BridgeNames) -> String {
    match names.name(number) {
        Some(name) => format!("port {number} ({name})"),
        None => format!("port {number}"),
    }
}
