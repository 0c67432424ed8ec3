//! LACP, the Link Aggregation Control Protocol: which links of a bond may carry frames.
//!
//! Two systems exchange LACPDUs on each link between them. So both learn which links lead to the
//! same partner, and use only these links. A link that loses frames in one direction, or that is
//! connected to the wrong switch, carries no frames although its carrier is up.
//!
//! - An [`Aggregator`] is the LACP actor of one bond. An aggregator has no sockets, threads or
//!   clock: the caller passes links, frames and the time, and gets frames and states.
//! - [`Aggregator::mux`] returns whether a member may receive and send. A member sends only while
//!   the LACPDUs of its partner state that the partner receives.
//! - Settings, defaults, and the choice of the partner are the same as in Open vSwitch. The bond
//!   has one aggregator, and the partner of the member with the lowest priority is its partner.
//! - [`SlowFrame`] parses and emits frames. No field of a received frame is trusted: the frame is
//!   refused with a [`PduError`], or replaces the information about one partner.
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
//! // A cable between the two switches, for three seconds.
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
//! Source: IEEE 802.1AX, Link Aggregation Control Protocol and Marker protocol. Churn detection and
//! version 2 of the protocol are not implemented.

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
