//! OXM and NXM: match fields as type, length and value on the wire.
//!
//! A match is a sequence of entries (OpenFlow 1.3.5, 7.2.3.2). An entry is a header of 32 bits and
//! the value in network order; in experimenter classes the experimenter's id is between header and
//! value. A mask of the same length follows if the header has its mask bit set. NXM is the older
//! form with the same shape.
//!
//! ```text
//!  31            16 15        9  8  7       0
//! +----------------+-----------+--+---------+------------------+-------+------+
//! | class          | field     |M | length  | (experimenter id)| value | mask |
//! +----------------+-----------+--+---------+------------------+-------+------+
//! ```
//!
//! Encoding follows the order in which Open vSwitch emits fields and prefers the numbers that an
//! OpenFlow 1.3 client knows. Decoding accepts every number of the field table and checks what it
//! reads in the order of Open vSwitch, so that a broken entry gets the same error code.
//!
//! Tunnel options are encoded with 32 bits, and not decoded: without a table that binds options,
//! their numbers have no meaning.
//!
//! `in_phy_port`, `pbb_isid`, `pbb_uca` and `ipv6_exthdr` have no wire number in Shunt, as in Open
//! vSwitch: `ovs-ofctl` cannot read a reply that contains one of these fields.
//!
//! Where Shunt departs from Open vSwitch 3.1:
//!
//! - A tag control mask that `vlan_vid` and `vlan_pcp` cannot express is emitted as
//!   `NXM_OF_VLAN_TCI`, where Open vSwitch drops the bits.
//! - A field that loses its prerequisite to a later entry (ports, then `nw_frag=later`) is refused.
//!
//! ```
//! use shunt_flow::{FieldId, oxm};
//!
//! // eth_type=0x0800, ipv4_dst=10.0.0.0/8
//! let wire = [
//!     0x80, 0x00, 0x0a, 0x02, 0x08, 0x00, //
//!     0x80, 0x00, 0x19, 0x08, 10, 0, 0, 0, 255, 0, 0, 0,
//! ];
//! let matching = oxm::decode_match(&wire)?;
//! assert_eq!(matching.key().field(FieldId::Ipv4Dst), 0x0a00_0000);
//!
//! let mut out = Vec::new();
//! oxm::encode_match(&matching, &mut out);
//! assert_eq!(out, wire);
//! # Ok::<(), oxm::OxmError>(())
//! ```

mod decode;
mod encode;
mod error;
mod header;
#[cfg(test)]
mod tests;

pub use decode::{OxmField, decode_field, decode_match};
pub use encode::{encode_field, encode_match, encode_nxm_match, encode_nxm_value};
pub use error::OxmError;
pub use header::{OxmHeader, find_header, header};
