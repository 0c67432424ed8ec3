//! The state of an aggregator, for people and programs that watch it.

use std::fmt;

use crate::{
    aggregator::MemberId,
    machines::{mux::MuxState, receive::ReceiveState},
    selection::Unselected,
    settings::AggregatorSettings,
    wire::info::LacpInfo,
};

/// The state of an aggregator: the content of `lacp/show` and `lacp/show-stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatorStatus {
    /// Settings of the aggregator.
    pub settings: AggregatorSettings,
    /// The member with the partner of the aggregator; none without a partner.
    pub lead: Option<MemberId>,
    /// The members, by ascending id.
    pub members: Vec<LacpMemberStatus>,
}

/// The state of a member of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacpMemberStatus {
    /// Id of the member.
    pub member: MemberId,
    /// State of the receive machine.
    pub receive: ReceiveState,
    /// State of the mux machine.
    pub mux: MuxState,
    /// The reason why the member is not selected; none if it is.
    pub unselected: Option<Unselected>,
    /// Own end of the link.
    pub actor: LacpInfo,
    /// Other end of the link, as its last LACPDU describes it.
    pub partner: LacpInfo,
    /// Events of the member.
    pub counters: LacpCounters,
}

/// The numbers of events of a member, since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpCounters {
    /// LACPDUs that were sent.
    pub tx_pdus: u64,
    /// LACPDUs that were received.
    pub rx_pdus: u64,
    /// Received LACPDUs and marker PDUs that are malformed.
    pub rx_bad_pdus: u64,
    /// Received marker requests.
    pub rx_marker_requests: u64,
    /// Marker responses that were sent.
    pub tx_marker_responses: u64,
    /// Partners that did not send a LACPDU in time.
    pub expired: u64,
    /// Partners that were replaced by defaults.
    pub defaulted: u64,
    /// Changes of the link, up or down.
    pub carrier_changes: u64,
}

/// A change of a member, for the log.
///
/// ```
/// use shunt_lacp::{LacpEvent, LacpInfo, MemberId, MuxState, ReceiveState};
///
/// let event = LacpEvent {
///     member: MemberId(1),
///     receive: ReceiveState::Current,
///     mux: MuxState::Attached,
///     partner: Some(LacpInfo { key: 7, port: 3, ..LacpInfo::default() }),
/// };
/// let text = "current attached, partner 00:00:00:00:00:00 priority 0 key 7 port 3";
/// assert_eq!(event.to_string(), text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacpEvent {
    /// Id of the member.
    pub member: MemberId,
    /// New state of the receive machine.
    pub receive: ReceiveState,
    /// New state of the mux machine.
    pub mux: MuxState,
    /// Other end of the link, if it has sent a LACPDU that is not forgotten.
    pub partner: Option<LacpInfo>,
}

impl fmt::Display for LacpEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member: _, receive, mux, partner } = self;
        write!(f, "{receive} {mux}")?;
        if let Some(LacpInfo { system, key, port, .. }) = partner {
            write!(f, ", partner {system} key {key} port {port}")?;
        }
        Ok(())
    }
}
