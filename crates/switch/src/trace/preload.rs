//! Forecasts of the flows that an operator preloads or an orchestrator announces.

use std::time::Duration;

use shunt_flow::{FieldId, FlowMask, SparseKey, SparseMask, extract::VlanLimit};
use shunt_foresight::{Confidence, Forecast, ForecastSource};
use shunt_pipeline::BridgeId;

use crate::{
    ports::names::BridgeNames,
    trace::{error::TraceError, flow::read_flow},
};

/// The bridge of announced flows, and the time of the announcement.
pub(crate) struct Announcement<'a> {
    pub(crate) bridge: &'a str,
    /// The number of the bridge.
    pub(crate) id: BridgeId,
    /// The names of the bridge's ports.
    pub(crate) names: &'a BridgeNames,
    /// Maximum number of VLAN tags that are parsed.
    pub(crate) vlan_limit: VlanLimit,
    /// The origin, the time and the validity of the announcement.
    pub(crate) announced: AnnouncedTime,
}

/// The origin of announced flows, the time of the announcement, and its validity.
#[derive(Clone, Copy)]
pub(crate) struct AnnouncedTime {
    /// The origin of the announced flows.
    pub(crate) source: ForecastSource,
    /// Time of the announcement.
    pub(crate) now: Duration,
    /// Time after which the flows are no longer expected.
    pub(crate) valid: Duration,
}

/// The TTL of a flow that is given without a TTL.
const TTL: u128 = 64;

impl Announcement<'_> {
    /// Returns the forecast of a flow in the syntax of a trace.
    ///
    /// Fields that the text omits are zero, except for a TTL of 64. Bits outside a mask are
    /// unknown.
    pub(crate) fn forecast(&self, text: &str) -> Result<Forecast, TraceError> {
        let flow = read_flow(text, self.names);
        let flow = flow.map_err(|error| error.of_bridge(self.bridge, self.names))?;
        if flow.in_port.is_none() {
            return Err(TraceError::NoIngress);
        }
        let known = known_bits(&flow.unknown);
        let mut key = flow.packet(self.id, self.vlan_limit).key;
        let is_ip = [0x0800, 0x86dd].contains(&key.eth_type());
        if is_ip && key.field(FieldId::NwTtl) == 0 {
            key.set_field(FieldId::NwTtl, TTL);
        }
        let AnnouncedTime { source, now, valid } = self.announced;
        Ok(Forecast {
            key: SparseKey::from(&key),
            known,
            confidence: Confidence::MAX,
            made: now,
            valid_until: now.saturating_add(valid),
            source,
        })
    }
}

/// Returns the mask of all known bits; `None`: all bits are known.
fn known_bits(unknown: &[(FieldId, u128)]) -> Option<SparseMask> {
    if unknown.is_empty() {
        return None;
    }
    let mut known = FlowMask::EMPTY;
    known.words_mut().fill(u64::MAX);
    unknown.iter().for_each(|(field, bits)| known.remove_bits(*field, *bits));
    Some(SparseMask::from(&known))
}
