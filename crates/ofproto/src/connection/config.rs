//! Settings of a connection.

use std::{sync::Arc, time::Duration};

use super::{BundleSpace, WarningRate};

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A controller that the bridge is configured to follow.
    Controller,
    /// A client of the management socket or of a passive listener: it hears of nothing until it
    /// asks for packets (`OFPT_SET_CONFIG` with `miss_send_len` above 0), and is never probed.
    Management,
}

impl ConnectionKind {
    /// `miss_send_len` before anybody set it (OpenFlow 1.3.5, 7.3.2).
    pub(super) const fn miss_send_len(self) -> u16 {
        match self {
            Self::Controller => 128,
            Self::Management => 0,
        }
    }
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The other end, for logs.
    pub peer: String,
    /// Who it is.
    pub kind: ConnectionKind,
    /// Silence after which a controller is asked for an echo, and after which, asked, it is given
    /// up; zero: never.
    pub inactivity_probe: Duration,
    /// Bounds on what one peer can cost.
    pub limits: Limits,
    /// How much may be logged about the peer; shared by all of its connections.
    pub warnings: Arc<WarningRate>,
    /// What its bundles may take, together with those of others.
    pub bundle_space: Arc<BundleSpace>,
}

impl ConnectionConfig {
    /// The settings that Open vSwitch has by default.
    #[must_use]
    pub fn new(peer: impl Into<String>, kind: ConnectionKind) -> Self {
        let inactivity_probe = match kind {
            ConnectionKind::Controller => Duration::from_secs(5),
            ConnectionKind::Management => Duration::ZERO,
        };
        Self {
            peer: peer.into(),
            kind,
            inactivity_probe,
            limits: Limits::default(),
            warnings: Arc::default(),
            bundle_space: Arc::default(),
        }
    }
}

/// Bounds on what one peer can cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes waiting to be sent beyond which no further request is looked at.
    pub replies_max: usize,
    /// Bytes waiting to be sent beyond which packet-ins are dropped, and what the peer must not miss
    /// waits. Less than `replies_max`.
    pub events_max: usize,
    /// Time after which a peer that takes next to nothing of what waits for it is given up: neither
    /// all that waited at first, nor 64 KiB of it.
    pub stall_timeout: Duration,
    /// Time within which a peer must say hello.
    pub hello_timeout: Duration,
    /// Bundles that are open at a time.
    pub bundles_max: usize,
    /// Messages in all open bundles together.
    pub bundle_messages_max: usize,
    /// Bytes of these messages, as they came.
    pub bundle_bytes_max: usize,
    /// Time after which a bundle that nothing was added to is forgotten.
    pub bundle_timeout: Duration,
    /// Multipart requests that are half here.
    pub assemblies_max: usize,
    /// Bytes of a multipart request in parts.
    pub assembly_len_max: usize,
    /// Time within which the next part of a multipart request must come.
    pub assembly_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            replies_max: 1 << 20,
            events_max: 1 << 18,
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
