//! The status of LACP on bonds.

use serde::{Serialize, Serializer};
use shunt_lacp::{AggregatorStatus, LacpMemberStatus, MemberId};

use crate::ports::lacp::LacpActor;

/// The status of LACP on a bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondLacpStatus {
    /// Status of the LACP actor and of its members.
    pub aggregator: AggregatorStatus,
}

/// The status of LACP on a member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondMemberLacpStatus {
    /// Status of the member in the LACP actor.
    pub member: LacpMemberStatus,
    /// Received frames that were dropped because too many waited.
    pub refused: u64,
}

impl BondLacpStatus {
    /// Returns the status of an LACP actor.
    pub(crate) fn of(actor: &LacpActor) -> Self {
        Self { aggregator: actor.status() }
    }

    /// Returns whether any member of the bond has a partner.
    #[must_use]
    pub const fn is_negotiated(&self) -> bool {
        self.aggregator.lead.is_some()
    }

    /// Returns the name of the state, as Open vSwitch prints it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        if self.is_negotiated() { "negotiated" } else { "configured" }
    }

    /// Returns the status of a member, with the number of its refused frames.
    pub(crate) fn member(&self, id: MemberId, refused: u64) -> Option<BondMemberLacpStatus> {
        let own = self.aggregator.members.iter().find(|own| own.member == id);
        own.map(|member| BondMemberLacpStatus { member: *member, refused })
    }
}

impl BondMemberLacpStatus {
    /// Returns whether the last LACPDU of the partner is recent enough.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        matches!(self.member.receive, shunt_lacp::ReceiveState::Current)
    }
}

impl Serialize for BondLacpStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for BondMemberLacpStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The fields in the order of the output.
        #[derive(Serialize)]
        struct Fields {
            receive: String,
            mux: String,
            /// The reason why the member is not selected; `None` if it is.
            #[serde(skip_serializing_if = "Option::is_none")]
            unselected: Option<String>,
            /// The partner, as its system, key and port; `None` without a partner.
            partner: Option<String>,
        }
        let own = &self.member;
        let partner = own.partner;
        let has_partner = partner.system.mac != [0; 6];
        let fields = Fields {
            receive: own.receive.to_string(),
            mux: own.mux.to_string(),
            unselected: own.unselected.map(|reason| reason.to_string()),
            partner: has_partner
                .then(|| format!("{} key {} port {}", partner.system, partner.key, partner.port)),
        };
        fields.serialize(serializer)
    }
}
