//! The status of mirrors.

use std::sync::Arc;

use serde::Serialize;
use shunt_pipeline::{OutputCounter, PacketTotals, Pipeline};

use crate::{config::MirrorOptions, ports::registry::BridgeState};

/// The status of a mirror: options, counters, and the reason of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MirrorStatus {
    /// Options of the mirror.
    #[serde(flatten)]
    pub options: MirrorOptions,
    /// Number of packets that were copied.
    pub tx_packets: u64,
    /// Bytes of the copied packets, before they were truncated.
    pub tx_bytes: u64,
    /// Reason why the mirror copies no packets, or fewer than configured.
    pub problem: Option<String>,
}

impl MirrorStatus {
    /// Returns the status of the mirrors of a bridge.
    pub(crate) fn of_bridge(bridge: &BridgeState, pipeline: &Pipeline) -> Vec<Self> {
        let mirrors = &bridge.settings.mirrors;
        if mirrors.is_empty() {
            return Vec::new();
        }
        let counters = pipeline.mirror_counters(bridge.id);
        let status = |options: &MirrorOptions| {
            let counter = counters.iter().find(|counter| counter.name() == options.name);
            let totals = counter.map(Arc::as_ref).map(OutputCounter::totals);
            let PacketTotals { packets, bytes } = totals.unwrap_or_default();
            Self {
                options: options.clone(),
                tx_packets: packets,
                tx_bytes: bytes,
                problem: bridge.mirror_problem(options),
            }
        };
        mirrors.iter().map(status).collect()
    }
}
