//! Text for the decisions of multicast snooping.

use shunt_flow::PortNo;
use shunt_pipeline::{MulticastDecision, MulticastFloodReason, MulticastOutputReason};

/// Returns a decision as text. `named` returns the number and the name of a port.
pub(super) fn multicast(decision: MulticastDecision, named: impl Fn(PortNo) -> String) -> String {
    match decision {
        MulticastDecision::Flood { vlan, reason } => {
            format!("NORMAL: {}: flooded in VLAN {vlan}", flood_text(reason))
        }
        MulticastDecision::Report { vlan } => format!(
            "NORMAL: a report or leave of IGMP or MLD, for multicast snooping and routers in VLAN {vlan}"
        ),
        MulticastDecision::Group { group, vlan } => {
            format!("NORMAL: hosts have reported multicast group {group} in VLAN {vlan}")
        }
        MulticastDecision::Unregistered { group, vlan } => format!(
            "NORMAL: no host has reported multicast group {group} in VLAN {vlan}, and it is not flooded"
        ),
        MulticastDecision::Output { port, reason } => {
            format!("NORMAL: sent to {}: {}", named(port), output_text(reason))
        }
        MulticastDecision::WithoutReceiver => {
            "NORMAL: no other port wants the multicast packet: not sent".to_owned()
        }
    }
}

/// Returns the text for the reason why a packet is flooded.
const fn flood_text(reason: MulticastFloodReason) -> &'static str {
    match reason {
        MulticastFloodReason::Query => "a query of IGMP or MLD, which multicast snooping reads",
        MulticastFloodReason::OtherIgmp => "a message of IGMP that is neither a query nor a report",
        MulticastFloodReason::LinkLocal => "the destination is a link-local multicast address",
        MulticastFloodReason::Unregistered => "no host has reported the multicast group",
    }
}

/// Returns the text for the reason why a packet is sent to a port.
const fn output_text(reason: MulticastOutputReason) -> &'static str {
    match reason {
        MulticastOutputReason::Member => "a host at the port has reported the group",
        MulticastOutputReason::Router => "a multicast router was found",
        MulticastOutputReason::Flooded => "the port gets all groups by mcast_snooping_flood",
        MulticastOutputReason::FloodedReports => {
            "the port gets all reports by mcast_snooping_flood_reports"
        }
    }
}
