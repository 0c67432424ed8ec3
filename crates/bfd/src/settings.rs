//! Settings of a session, with the names and defaults of Open vSwitch.

use std::{num::NonZeroU8, time::Duration};

/// The settings of a session.
///
/// Intervals have whole microseconds. Intervals above 4294 seconds do not fit a packet, and are
/// shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfdSettings {
    /// Minimum time between two sent packets while the session is up (`min_tx`).
    pub min_tx: Duration,
    /// Minimum time between two packets that this end can receive (`min_rx`).
    pub min_rx: Duration,
    /// Value of `min_rx` while few packets arrive (`decay_min_rx`).
    ///
    /// The interval while idle has no effect unless it is greater than `min_rx`.
    pub decay_min_rx: Option<Duration>,
    /// Number of packets in a row that the other end may miss (`mult`).
    pub multiplier: NonZeroU8,
    /// True to state that the path behind this end has failed (`cpath_down`).
    pub cpath_down: bool,
    /// True if received packets of any kind keep the path in use (`forwarding_if_rx`).
    pub forwarding_if_rx: bool,
}

impl BfdSettings {
    /// Returns `decay_min_rx`, if it has an effect.
    pub(crate) fn decay(&self) -> Option<Duration> {
        self.decay_min_rx.filter(|own| !own.is_zero() && *own >= self.min_rx)
    }
}

impl Default for BfdSettings {
    /// Returns the default values of Open vSwitch.
    fn default() -> Self {
        Self {
            min_tx: Duration::from_millis(100),
            min_rx: Duration::from_secs(1),
            decay_min_rx: None,
            multiplier: NonZeroU8::MIN.saturating_add(2),
            cpath_down: false,
            forwarding_if_rx: false,
        }
    }
}
