//! The status of an aggregator, for operators and programs.

use std::fmt;

use crate::{
    aggregator::MemberId,
    machines::{mux::MuxState, receive::ReceiveState},
    selection::Unselected,
    settings::AggregatorSettings,
    wire::info::LacpInfo,
};

/// The status of an aggregator: the content of `lacp/show` and `lacp/show-stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatorStatus {
    /// Settings of the aggregator.
    pub settings: AggregatorSettings,
    /// The lead member, with the partner of the aggregator; `None` without a partner.
    pub lead: Option<MemberId>,
    /// The members, by ascending id.
    pub members: Vec<LacpMemberStatus>,
}

/// The status of a member of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacpMemberStatus {
    /// Id of the member.
    pub member: MemberId,
    /// State of the receive machine.
    pub receive: ReceiveState,
    /// State of the mux machine.
    pub mux: MuxState,
    /// The reason why the member is not selected; `None` if it is selected.
    pub unselected: Option<Unselected>,
    /// Information about this end of the link.
    pub actor: LacpInfo,
    /// Information about the other end of the link, from its last LACPDU.
    pub partner: LacpInfo,
    /// Counters of the member.
    pub counters: LacpCounters,
}

/// The counters of a member, since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpCounters {
    /// LACPDUs that were sent.
    pub tx_pdus: u64,
    /// LACPDUs that were received.
    pub rx_pdus: u64,
    /// Received LACPDUs and marker PDUs that are malformed.
    pub rx_bad_pdus: u64,
    /// Marker requests that the member received.
    pub rx_marker_requests: u64,
    /// Marker responses that were sent.
    pub tx_marker_responses: u64,
    /// Number of times that the partner did not send an LACPDU in time.
    pub expired: u64,
    /// Number of times that default values replaced the partner information.
    pub defaulted: u64,
    /// Changes of the link, up or down.
    pub carrier_changes: u64,
}

/// A state change of a member, for the log.
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
    /// Information about the other end of the link, if an LACPDU of it has not expired.
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
