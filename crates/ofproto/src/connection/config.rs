//! The configuration of a connection.

use std::{fmt::Display, sync::Arc, time::Duration};

use super::{BundleQuota, WarningRate};
use crate::wire::Codec;

/// The kind of peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A controller from the configuration of the bridge.
    Controller,
    /// A client of the management socket or of a passive listener.
    ///
    /// The client receives no event until it requests packets (`OFPT_SET_CONFIG` with
    /// `miss_send_len` above 0).
    Management,
}

impl ConnectionKind {
    /// Returns the initial `miss_send_len` (OpenFlow 1.3.5, 7.3.2).
    pub(super) const fn miss_send_len(self) -> u16 {
        match self {
            Self::Controller => 128,
            Self::Management => 0,
        }
    }
}

/// The configuration of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Name of the peer for log lines.
    pub peer: String,
    /// Name of the bridge for log lines; the server sets it.
    pub bridge: String,
    /// The kind of peer.
    pub kind: ConnectionKind,
    /// The OpenFlow versions that the bridge accepts, bit `n` for wire version `n`.
    ///
    /// Versions that the switch does not speak are ignored ([`Codec::versions`]).
    pub versions: u32,
    /// Idle time after which the peer is sent an echo request; zero disables the probe.
    ///
    /// The connection ends if no byte arrives within the same time after the request. Time in which
    /// the switch or the peer does not read from the connection does not count as idle time.
    pub inactivity_probe: Duration,
    /// Limits on the resources of one peer.
    pub limits: ConnectionLimits,
    /// Rate limit of warnings about the peer, shared by all of its connections.
    pub warnings: Arc<WarningRate>,
    /// Memory quota of the bundles, shared with other connections.
    pub bundle_quota: Arc<BundleQuota>,
}

impl ConnectionConfig {
    /// Inactivity probe of connections over a network (`inactivity_probe`).
    ///
    /// Unix sockets have no inactivity probe, because the kernel reports each peer that vanishes.
    pub const INACTIVITY_PROBE: Duration = Duration::from_secs(5);

    /// Creates a configuration with the defaults of Open vSwitch.
    ///
    /// A management client has no inactivity probe.
    #[must_use]
    pub fn new(peer: impl Into<String>, kind: ConnectionKind) -> Self {
        let inactivity_probe = match kind {
            ConnectionKind::Controller => Self::INACTIVITY_PROBE,
            ConnectionKind::Management => Duration::ZERO,
        };
        Self {
            peer: peer.into(),
            bridge: String::new(),
            kind,
            versions: Codec::versions(),
            inactivity_probe,
            limits: ConnectionLimits::default(),
            warnings: Arc::default(),
            bundle_quota: Arc::default(),
        }
    }

    /// Logs that something for the peer cannot be encoded; `loss` has its effect.
    pub(super) fn log_unencoded(&self, error: &dyn Display, loss: &str) {
        let (peer, bridge) = (&*self.peer, &*self.bridge);
        tracing::error!(peer, %error, "bridge {bridge}: {loss}");
    }
}

/// Limits on the resources of one peer.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Number of unsent bytes above which no further request is handled.
    pub replies_max: usize,
    /// Number of unsent bytes above which packet-ins are dropped.
    ///
    /// Events that must not be lost wait while more bytes are unsent.
    ///
    /// The number must be less than `replies_max`.
    pub events_max: usize,
    /// Number of rule changes that wait for flow monitors at which these are paused.
    ///
    /// The changes of one version of the tables may exceed the number.
    pub monitored_changes_max: usize,
    /// Time after which a peer that does not read is disconnected.
    ///
    /// Within this time the peer must read 64 KiB, or all bytes that waited when the time began.
    pub stall_timeout: Duration,
    /// Time within which a peer must send its hello.
    pub hello_timeout: Duration,
    /// Maximum number of open bundles.
    pub bundles_max: usize,
    /// Maximum number of messages in all open bundles together.
    pub bundle_messages_max: usize,
    /// Maximum number of bytes of the messages in all open bundles, as received.
    pub bundle_bytes_max: usize,
    /// Time after which a bundle without new messages is removed.
    pub bundle_timeout: Duration,
    /// Maximum number of incomplete multipart requests.
    pub assemblies_max: usize,
    /// Maximum number of bytes of a multipart request that spans several messages.
    pub assembly_len_max: usize,
    /// Time within which the next part of a multipart request must arrive.
    pub assembly_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            replies_max: 1 << 20,
            events_max: 1 << 18,
            monitored_changes_max: 1 << 14,
            stall_timeout: Duration::from_secs(30),
            hello_timeout: Duration::from_secs(10),
            bundles_max: 64,
            bundle_messages_max: 1 << 20,
            bundle_bytes_max: 1 << 26,
            bundle_timeout: Duration::from_secs(10),
            assemblies_max: 8,
            assembly_len_max: 1 << 20,
            assembly_timeout: Duration::from_secs(1),
        }
    }
}
