//! The status of the BFD session of a port.

use std::time::Duration;

use serde::{Serialize, Serializer};
use shunt_bfd::BfdStatus;

/// The status of the BFD session of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdPortStatus {
    /// Status of the session.
    pub session: BfdStatus,
    /// Time at which the status was read; the times in `session` use the same clock.
    pub now: Duration,
}

impl Serialize for BfdPortStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The fields in the order of the output.
        #[derive(Serialize)]
        struct Fields {
            state: &'static str,
            forwarding: bool,
            diagnostic: &'static str,
            remote_state: &'static str,
            remote_diagnostic: &'static str,
            flap_count: u64,
            /// Milliseconds between two sent packets; `None` if none are sent periodically.
            tx_interval_ms: Option<u64>,
            /// Greatest number of milliseconds between two packets of the other end.
            rx_interval_ms: u64,
            tx_packets: u64,
            rx_packets: u64,
            rx_bad_packets: u64,
        }
        let own = &self.session;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let fields = Fields {
            state: own.state.name(),
            forwarding: own.forwarding,
            diagnostic: own.diagnostic.text(),
            remote_state: own.remote.state.name(),
            remote_diagnostic: own.remote.diagnostic.text(),
            flap_count: own.flap_count,
            tx_interval_ms: own.tx_interval.map(ms),
            rx_interval_ms: ms(own.rx_interval),
            tx_packets: own.counters.tx_packets,
            rx_packets: own.counters.rx_packets,
            rx_bad_packets: own.counters.rx_bad_packets,
        };
        fields.serialize(serializer)
    }
}
