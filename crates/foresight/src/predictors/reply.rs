//! The predictor `Reply`: forecasts the reverse direction of each new flow.

use std::time::Duration;

use shunt_flow::{FieldId, FlowKey, SparseKey};

use super::due::DueForecasts;
use crate::{
    event::{FlowEvent, NewFlow},
    forecast::{Confidence, Forecast, ForecastSource},
    predictor::Predictor,
};

/// Forecasts the reply to each new flow.
///
/// The forecast has the headers of the packet that left, with source and destination swapped. So it
/// includes the rewrites of the tables. The predictor does not remember past flows.
#[derive(Debug)]
pub struct Reply {
    /// The forecasts to return.
    due: DueForecasts,
    /// Time for which a forecast is valid.
    validity: Duration,
}

/// Maximum number of forecasts that wait to be taken.
const CAPACITY: usize = 1024;

/// Time within which a reply is expected.
const VALIDITY: Duration = Duration::from_secs(5);

/// The numbers of IP protocols (IANA).
const ICMP: u128 = 1;
const TCP: u128 = 6;
const UDP: u128 = 17;
const ICMPV6: u128 = 58;
const SCTP: u128 = 132;

/// TCP flags (RFC 9293, 3.1).
const SYN: u128 = 2;
const ACK: u128 = 16;

/// The Ethernet types of IPv4 and IPv6.
const IPV4: u128 = 0x0800;
const IPV6: u128 = 0x86dd;

/// The group bit of an Ethernet address (IEEE 802).
const GROUP_BIT: u128 = 1 << 40;

impl Default for Reply {
    fn default() -> Self {
        Self { due: DueForecasts::new(CAPACITY), validity: VALIDITY }
    }
}

impl Predictor for Reply {
    fn source(&self) -> ForecastSource {
        ForecastSource::Reply
    }

    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        let FlowEvent::Started(NewFlow { egress: Some(egress), forecast, .. }) = event else {
            return;
        };
        // The reply to a reply that was forecast is the flow that caused the forecast.
        if *forecast == Some(ForecastSource::Reply) {
            return;
        }
        let Some(key) = reply_key(egress) else { return };
        self.due.push(Forecast {
            key: SparseKey::from(&key),
            known: None,
            confidence: Confidence::of_percent(90),
            made: now,
            valid_until: now + self.validity,
            source: ForecastSource::Reply,
        });
    }

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        self.due.take(now, budget, forecasts);
    }

    fn next_due(&self) -> Option<Duration> {
        self.due.next_due()
    }

    fn confidence(&self, _now: Duration) -> Option<Confidence> {
        self.due.confidence()
    }

    fn len(&self) -> usize {
        self.due.len()
    }

    fn capacity(&self) -> usize {
        self.due.capacity()
    }
}

/// Returns the key of the reply to a packet that left with the key `sent`.
///
/// The ingress port of `sent` must be the port by which the packet left. The result is `None` for
/// packets without a reply of a known form. Fragments, packets that are not unicast, and packets
/// that are no request of TCP, UDP, SCTP or ICMP echo have no known reply.
#[must_use]
pub fn reply_key(sent: &FlowKey) -> Option<FlowKey> {
    let is_unicast = |field| sent.field(field) & GROUP_BIT == 0;
    if sent.field(FieldId::NwFrag) != 0
        || !is_unicast(FieldId::EthSrc)
        || !is_unicast(FieldId::EthDst)
    {
        return None;
    }
    let mut reply = sent.clone();
    swap(&mut reply, FieldId::EthSrc, FieldId::EthDst);
    match sent.field(FieldId::EthType) {
        IPV4 => swap(&mut reply, FieldId::Ipv4Src, FieldId::Ipv4Dst),
        IPV6 => swap(&mut reply, FieldId::Ipv6Src, FieldId::Ipv6Dst),
        _ => return None,
    }
    match sent.field(FieldId::IpProto) {
        TCP => {
            swap(&mut reply, FieldId::TcpSrc, FieldId::TcpDst);
            let is_opening = sent.field(FieldId::TcpFlags) & (SYN | ACK) == SYN;
            reply.set_field(FieldId::TcpFlags, if is_opening { SYN | ACK } else { ACK });
        }
        UDP => swap(&mut reply, FieldId::UdpSrc, FieldId::UdpDst),
        SCTP => swap(&mut reply, FieldId::SctpSrc, FieldId::SctpDst),
        ICMP => reply.set_field(FieldId::IcmpType, echo_reply(sent, FieldId::IcmpType, [8, 0])?),
        ICMPV6 => {
            let kind = echo_reply(sent, FieldId::Icmpv6Type, [128, 129])?;
            reply.set_field(FieldId::Icmpv6Type, kind);
        }
        _ => return None,
    }
    Some(reply)
}

/// Swaps the values of two fields.
fn swap(key: &mut FlowKey, one: FieldId, other: FieldId) {
    let (first, second) = (key.field(one), key.field(other));
    key.set_field(one, second);
    key.set_field(other, first);
}

/// Returns the ICMP type of the reply to an echo request; `None` for other packets.
fn echo_reply(sent: &FlowKey, field: FieldId, [request, reply]: [u128; 2]) -> Option<u128> {
    (sent.field(field) == request).then_some(reply)
}
