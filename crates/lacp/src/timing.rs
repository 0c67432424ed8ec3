//! The time constants of the standard.
//!
//! Source: IEEE 802.1AX, LACP, timers.

use std::time::Duration;

/// Time between LACPDUs for a short timeout of the partner (`Fast_Periodic_Time`).
pub const FAST_PERIODIC_TIME: Duration = Duration::from_secs(1);

/// Time between LACPDUs for a long timeout of the partner (`Slow_Periodic_Time`).
pub const SLOW_PERIODIC_TIME: Duration = Duration::from_secs(30);

/// Time without an LACPDU after which information expires (`Short_Timeout_Time`).
pub const SHORT_TIMEOUT_TIME: Duration = Duration::from_secs(3);

/// Time without an LACPDU after which information expires (`Long_Timeout_Time`).
pub const LONG_TIMEOUT_TIME: Duration = Duration::from_secs(90);

/// Time that a member waits before it is attached (`Aggregate_Wait_Time`).
pub const AGGREGATE_WAIT_TIME: Duration = Duration::from_secs(2);
