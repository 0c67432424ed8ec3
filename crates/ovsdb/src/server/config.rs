//! Settings of a server.

use std::time::{Duration, Instant, SystemTime};

/// Settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// Limits on the memory and objects that clients may use.
    pub limits: ServerLimits,
    /// The source of times.
    pub clock: ServerClock,
    /// Random bytes that determine the UUIDs of rows; they must differ for each start.
    ///
    /// Without a seed the operating system provides the random bytes.
    pub seed: Option<[u8; 20]>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { limits: ServerLimits::default(), clock: ServerClock::SYSTEM, seed: None }
    }
}

/// Limits on the memory and objects that clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum length of one message from a client, in bytes.
    pub message_bytes: usize,
    /// Maximum number of bytes of incomplete messages of all clients together.
    /// The first 64 KiB of each client do not count.
    pub partial_bytes: usize,
    /// Maximum number of bytes of replies and updates that wait for one client.
    ///
    /// A longer message may wait if no other message waits.
    pub queued_bytes: usize,
    /// Maximum number of connected clients.
    ///
    /// An eighth of them has room for clients of Unix sockets only.
    pub clients: usize,
    /// Maximum number of transactions of one client that wait for a change.
    pub blocked: usize,
    /// Maximum bytes of the transactions of one client that wait for a change.
    pub blocked_bytes: usize,
    /// Maximum number of monitors of one client.
    pub monitors: usize,
    /// Maximum number of locks that one client owns or waits for.
    pub locks: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            message_bytes: 8 << 20,
            partial_bytes: 64 << 20,
            queued_bytes: 16 << 20,
            clients: 1024,
            blocked: 64,
            blocked_bytes: 1 << 20,
            monitors: 64,
            locks: 64,
        }
    }
}

impl ServerLimits {
    /// Returns the maximum number of clients of TCP ports.
    pub(super) const fn remote_clients(&self) -> usize {
        self.clients.saturating_sub(self.clients / 8)
    }
}

/// The source of times, which tests replace.
#[derive(Clone, Copy, Debug)]
pub struct ServerClock {
    /// Returns the time since any fixed moment; it never goes back.
    pub monotonic: fn() -> Duration,
    /// Returns the time since 1970, for the dates in a log.
    pub date: fn() -> Duration,
}

impl ServerClock {
    /// The clocks of the system.
    pub const SYSTEM: Self = Self { monotonic, date };
}

/// Returns the time since a fixed point.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
fn monotonic() -> Duration {
    /// The time of the first call.
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// Returns the time since 1970.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
fn date() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
