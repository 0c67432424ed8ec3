//! BFD, Bidirectional Forwarding Detection: detects if packets pass between two systems, in both
//! directions.
//!
//! Two systems send each other control packets at intervals that they negotiate. A system that
//! misses several packets in a row declares the session down, and states this in its own packets.
//! So both ends detect a failed path in less than a second, even if it fails in one direction only.
//! BFD does not depend on the carrier of the link.
//!
//! - A [`BfdSession`] is one end of a session. A session has no sockets, threads or clock: the
//!   caller passes packets and the time, and gets packets and states.
//! - [`BfdSession::is_forwarding`] returns whether the path may be used. The rules, the settings
//!   and the defaults are the same as in Open vSwitch.
//! - [`ControlPacket`] is the message, and [`BfdAddresses`] puts it into an Ethernet frame. No
//!   field of a received frame is trusted: the frame is refused with a [`BfdError`], or has the
//!   effect that the RFC defines.
//! - Intervals change by a Poll Sequence, so neither end expires during a change.
//!
//! ```
//! use std::{num::NonZeroU32, time::Duration};
//!
//! use shunt_bfd::{BfdDiagnostic, BfdSession, BfdSettings, BfdState};
//!
//! let end = |discriminator| {
//!     let discriminator = NonZeroU32::new(discriminator).expect("a constant");
//!     BfdSession::new(BfdSettings::default(), discriminator, 7, Duration::ZERO)
//! };
//! let (mut one, mut other) = (end(1), end(2));
//!
//! // A cable between the two ends, for four seconds.
//! for now in (0..4000).step_by(10).map(Duration::from_millis) {
//!     if let Some(packet) = one.poll(0, now).packet {
//!         other.on_packet(&packet, now)?;
//!     }
//!     if let Some(packet) = other.poll(0, now).packet {
//!         one.on_packet(&packet, now)?;
//!     }
//! }
//! assert_eq!([one.state(), other.state()], [BfdState::Up; 2]);
//!
//! // The cable breaks.
//! one.poll(0, Duration::from_secs(10));
//! assert_eq!(one.state(), BfdState::Down);
//! assert_eq!(one.diagnostic(), BfdDiagnostic::TIME_EXPIRED);
//! # Ok::<(), shunt_bfd::BfdError>(())
//! ```
//!
//! Source: RFC 5880 (BFD), RFC 5881 (one hop over IPv4). The crate implements the asynchronous
//! mode. Packets with authentication are refused. As in Open vSwitch, the Echo function and an own
//! Demand mode are not implemented.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod activity;
mod decay;
mod error;
mod intervals;
mod jitter;
mod remote;
mod session;
mod settings;
mod state;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transmit;
mod wire;

pub use error::BfdError;
pub use session::{BfdOutput, BfdSession};
pub use settings::BfdSettings;
pub use state::{BfdDiagnostic, BfdState};
pub use status::{BfdCounters, BfdEvent, BfdRemoteStatus, BfdStatus};
pub use wire::{
    flags::BfdFlags,
    frame::{BFD_PORT, BfdAddresses, FRAME_BYTES, parse_frame},
    packet::{ControlPacket, PACKET_BYTES},
};
