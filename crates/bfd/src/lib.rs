//! BFD, Bidirectional Forwarding Detection: whether packets pass between two systems, in both directions.
//!
//! Two systems send each other control packets at intervals that they negotiate. A system that misses
//! some of them in a row declares the session down, and states that in its own packets. So both ends
//! notice a path that fails, even in one direction, in less than a second. No carrier is needed.
//!
//! - A [`BfdSession`] is one end. It has no sockets, threads or clock: packets and the time go in, packets
//!   and states come out.
//! - [`BfdSession::is_forwarding`] returns whether the path may be used. Its rules, the settings and their
//!   defaults are those of Open vSwitch.
//! - [`ControlPacket`] is the message, and [`BfdAddresses`] puts it into an Ethernet frame. Nothing of a
//!   received frame is trusted: it is refused with a [`BfdError`], or has the effect that the RFC states.
//! - Intervals change by a Poll Sequence, without a moment in which either end misses a packet.
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
//! // A cable between the two, for four seconds.
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
//! Source: RFC 5880 (BFD), RFC 5881 (one hop over IPv4). The asynchronous mode is there. Authentication is
//! refused, and the Echo function and an own Demand mode are left out, as in Open vSwitch.

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
