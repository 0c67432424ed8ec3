//! The log of changes that a peer makes, at level debug.

use tracing::Level;

use super::Connection;
use crate::{Host, wire::header::Header};

/// Returns whether the log has level debug; texts of changes are built only then.
pub(super) fn is_enabled() -> bool {
    tracing::enabled!(Level::DEBUG)
}

impl Connection {
    /// Logs a request that has changed a rule, group, meter or port; ignores others.
    pub(super) fn log_change<H: Host>(&self, frame: &[u8], host: &H) {
        let is_change =
            Header::parse(frame).is_some_and(|header| self.codec.is_lasting_change(&header, frame));
        if is_change && is_enabled() {
            let (peer, bridge) = (&*self.config.peer, host.description().datapath);
            tracing::debug!(peer, "bridge {bridge}: {}", self.codec.describe(frame));
        }
    }
}
