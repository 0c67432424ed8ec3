//! Selection: which members are aggregated with each other.
//!
//! A bond has one aggregator, as in Open vSwitch. The partner of the *lead* member is the partner
//! of the bond. The selected members have the same own key, partner system and partner key as the
//! lead.
//!
//! The two ends of the bond must choose the same lead. So only the port priorities of the system
//! with the lower identifier are compared. Members with current information have precedence over
//! members with expired information. Source: IEEE 802.1AX, LACP, selection logic;
//! `ovs-vswitchd.conf.db(5)`, "LACP Configuration".

use std::fmt;

use crate::{
    machines::receive::{ReceiveMachine, ReceiveState},
    wire::info::{LacpInfo, LacpState, SystemId},
};

/// The reason why a member is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// The member belongs to the same aggregation as the lead.
    Aggregation(Aggregation),
    /// No member has a partner, and the settings enable members without a partner.
    Fallback,
}

/// The identity of an aggregation (`LAG_ID`), equal for all its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aggregation {
    /// Key of this end.
    pub(crate) key: u16,
    /// System of the partner.
    pub(crate) partner: SystemId,
    /// Key of the partner.
    pub(crate) partner_key: u16,
    /// Port of the partner, if the partner does not permit aggregation of its link.
    pub(crate) individual: Option<u16>,
}

/// The reason why a member is not selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unselected {
    /// The link of the member is down.
    LinkDown,
    /// No partner has sent LACPDUs.
    NoPartner,
    /// The partner has the system identifier of this end.
    ///
    /// The link leads back to this system, or two systems have the same identifier.
    OwnSystem,
    /// The own key of the member differs from the own key of the lead.
    OtherKey,
    /// The partner of the member differs from the partner of the lead.
    OtherPartner,
}

impl Aggregation {
    /// Returns the aggregation that a link with these two ends belongs to.
    pub(crate) fn of(actor: &LacpInfo, partner: &LacpInfo) -> Self {
        let is_individual = !partner.state.contains(LacpState::AGGREGATION);
        Self {
            key: actor.key,
            partner: partner.system,
            partner_key: partner.key,
            individual: is_individual.then_some(partner.port),
        }
    }
}

/// The rank of a member in the choice of the lead: the lowest rank is the lead.
///
/// Two members of a bond never have the same rank, because ports of a system have different
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeadRank {
    is_expired: bool,
    priority: u16,
    port: u16,
}

impl LeadRank {
    /// Returns the rank of a member, or the reason why it cannot be the lead.
    pub(crate) fn of(actor: &LacpInfo, receive: &ReceiveMachine) -> Result<Self, Unselected> {
        if receive.state() == ReceiveState::PortDisabled {
            return Err(Unselected::LinkDown);
        }
        if !receive.has_partner() {
            return Err(Unselected::NoPartner);
        }
        let partner = receive.partner();
        if actor.system == partner.system {
            return Err(Unselected::OwnSystem);
        }
        let decides = if actor.system < partner.system { actor } else { partner };
        let is_expired = receive.state() == ReceiveState::Expired;
        Ok(Self { is_expired, priority: decides.port_priority, port: decides.port })
    }
}

/// Returns whether a member is selected, given the aggregation of the lead.
pub(crate) fn select(
    actor: &LacpInfo,
    receive: &ReceiveMachine,
    lead: Option<Aggregation>,
    fallback_ab: bool,
) -> Result<Selected, Unselected> {
    match LeadRank::of(actor, receive) {
        Err(Unselected::NoPartner)
            if fallback_ab && lead.is_none() && receive.state() == ReceiveState::Defaulted =>
        {
            Ok(Selected::Fallback)
        }
        Err(reason) => Err(reason),
        Ok(_) => {
            let own = Aggregation::of(actor, receive.partner());
            match lead {
                Some(lead) if lead == own => Ok(Selected::Aggregation(own)),
                Some(lead) if lead.key != own.key => Err(Unselected::OtherKey),
                Some(_) | None => Err(Unselected::OtherPartner),
            }
        }
    }
}

impl fmt::Display for Unselected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkDown => "the link is down",
            Self::NoPartner => "no partner has sent LACPDUs",
            Self::OwnSystem => {
                "the partner has the system id of this bond: \
                 the link leads back here, or two switches have the same lacp-system-id"
            }
            Self::OtherKey => "another member with another lacp-aggregation-key is preferred",
            Self::OtherPartner => {
                "another member has a partner with another system id or key, and is preferred"
            }
        })
    }
}
