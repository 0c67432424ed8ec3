//! Packets as data: flow keys, masks, fields, header parsing and writing.
//!
//! A [`FlowKey`] holds all fields of one packet at one moment. A [`FlowMask`] holds the bits that a
//! decision depends on, and a [`Match`] the bits and values that a rule requires. [`field`] is the
//! table of all fields. [`extract`] parses frames into keys, and [`rewrite`] writes header fields
//! into frames. [`oxm`] and [`text`] parse and write matches. [`prerequisite`] decides which fields
//! a match may name and which a packet has.
//!
//! ```
//! use shunt_flow::{FieldId, FlowKey, PortNo, text};
//!
//! let web = text::parse_match("tcp,nw_dst=10.0.0.0/8,tp_dst=80", &text::NoPortNames)?;
//!
//! let mut key = FlowKey::ZERO;
//! key.set_in_port(PortNo::new(1));
//! key.set_field(FieldId::EthType, 0x0800);
//! key.set_field(FieldId::IpProto, 6);
//! key.set_field(FieldId::Ipv4Dst, 0x0a01_0203);
//! key.set_field(FieldId::TcpDst, 80);
//! assert!(web.matches(&key));
//!
//! key.set_field(FieldId::Ipv4Dst, 0x0b01_0203);
//! assert!(!web.matches(&key));
//! # Ok::<(), text::MatchError>(())
//! ```

mod bytes;
pub mod checksum;
mod draft;
pub mod extract;
pub mod field;
pub mod hash;
mod key;
mod layers;
pub mod layout;
mod mask;
pub mod masked_table;
pub mod oxm;
mod port;
pub mod prerequisite;
pub mod rewrite;
mod sparse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;

pub use field::FieldId;
pub use key::FlowKey;
pub use layers::Layers;
pub use mask::FlowMask;
pub use port::PortNo;
pub use sparse::{Match, SparseKey, SparseMask, WordMap};
