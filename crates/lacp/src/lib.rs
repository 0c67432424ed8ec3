//! LACP, the Link Aggregation Control Protocol: which links of a bond may carry frames.
//!
//! Two systems send each other LACPDUs on each link between them. So both learn which links lead to the
//! same partner, and use only those. A link that loses frames in one direction, or that is plugged into
//! the wrong switch, carries nothing although its carrier is there.
//!
//! - An [`Aggregator`] is the actor of one bond. It has no sockets, threads or clock: links, frames and
//!   the time go in, frames and states come out.
//! - [`Aggregator::mux`] returns if a member may receive and send. A member sends only while the LACPDUs
//!   of its partner state that it receives.
//! - Settings and defaults are those of Open vSwitch, and so is the choice of the partner. The bond has
//!   one aggregator, and its member with the lowest priority decides.
//! - [`SlowFrame`] parses and emits frames. Nothing of a received frame is trusted: it is refused with
//!   a [`PduError`], or replaces the information about one partner.
//! - Marker requests are answered, at most five per second.
//!
//! ```
//! use std::{num::NonZeroU16, time::Duration};
//!
//! use shunt_lacp::{
//!     Aggregator, AggregatorSettings, LacpMode, LacpTime, MemberId, MemberSettings, MuxState,
//!     SystemId,
//! };
//!
//! let switch = |mac: [u8; 6], mode| {
//!     let mut aggregator = Aggregator::new(AggregatorSettings {
//!         mode,
//!         time: LacpTime::Fast,
//!         system: SystemId { priority: AggregatorSettings::SYSTEM_PRIORITY, mac },
//!         key: NonZeroU16::MIN,
//!         fallback_ab: false,
//!     });
//!     let port = MemberSettings {
//!         mac,
//!         port: NonZeroU16::MIN,
//!         port_priority: MemberSettings::PORT_PRIORITY,
//!         key: None,
//!     };
//!     aggregator.set_member(MemberId(1), port, Duration::ZERO);
//!     aggregator.on_link(MemberId(1), true, Duration::ZERO);
//!     aggregator
//! };
//! let mut one = switch([2, 0, 0, 0, 0, 1], LacpMode::Active);
//! let mut other = switch([2, 0, 0, 0, 0, 2], LacpMode::Passive);
//!
//! // A cable between the two, for three seconds.
//! for now in (0..3000).step_by(100).map(Duration::from_millis) {
//!     for (_, frame) in one.poll(now).frames {
//!         other.on_frame(MemberId(1), &frame, now)?;
//!     }
//!     for (_, frame) in other.poll(now).frames {
//!         one.on_frame(MemberId(1), &frame, now)?;
//!     }
//! }
//! assert_eq!(one.mux(MemberId(1)), MuxState::CollectingDistributing);
//! assert_eq!(other.mux(MemberId(1)), MuxState::CollectingDistributing);
//! assert_eq!(one.status().members[0].partner.system.mac, [2, 0, 0, 0, 0, 2]);
//! # Ok::<(), shunt_lacp::PduError>(())
//! ```
//!
//! Source: IEEE 802.1AX, Link Aggregation Control Protocol and Marker protocol.
//! Churn detection and version 2 of the protocol are left out.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod aggregator;
mod error;
mod machines;
mod member;
mod selection;
mod settings;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timing;
mod wire;

pub use aggregator::{Aggregator, LacpOutput, MemberId};
pub use error::PduError;
pub use machines::{mux::MuxState, receive::ReceiveState};
pub use selection::Unselected;
pub use settings::{AggregatorSettings, LacpMode, LacpTime, MemberSettings};
pub use status::{AggregatorStatus, LacpCounters, LacpEvent, LacpMemberStatus};
pub use wire::{
    frame::{FRAME_BYTES, SLOW_PROTOCOLS_ADDRESS, SLOW_PROTOCOLS_TYPE, SlowFrame},
    info::{LacpInfo, LacpState, SystemId},
    lacpdu::Lacpdu,
    marker::Marker,
};
