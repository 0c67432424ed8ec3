//! Matches as text, in the syntax of `ovs-ofctl(8)`.
//!
//! `tcp,in_port=1,nw_dst=10.0.0.0/8,tp_dst=80` is a list of items `name=value` or `name`, in any
//! order. Items are fields by the names of `ovs-fields(7)`, or shorthands such as `tcp`.
//! [`parse_match`] parses a whole match. [`MatchBuilder`] parses one item after another, for
//! parsers of rules, which have other items in the same list. [`format_match`] writes a match as
//! Open vSwitch prints it; [`format_key`] writes the fields of a packet in the same style.
//!
//! A name may also mean another field with the same bits, if the protocol of the match decides
//! which field is meant: `arp,nw_src=10.0.0.1` is `arp_spa`, and `icmp,tp_src=8` is `icmp_type`.
//!
//! Shunt refuses four things that `ovs-ofctl` 3.1 changes silently:
//!
//! - a field without its prerequisite (dropped there),
//! - a value that is too large for its field (truncated),
//! - an item that contradicts an earlier one (the later wins),
//! - a name without a value (matches anything).
//!
//! Shunt prints the GTP-U flags under the names that [`parse_match`] accepts.
//!
//! ```
//! use shunt_flow::text::{NoPortNames, format_match, parse_match};
//!
//! let matching = parse_match("nw_dst=10.1.2.3/8,tcp,tp_dst=80,in_port=LOCAL", &NoPortNames)?;
//! let text = format_match(&matching, &NoPortNames);
//! assert_eq!(text, "tcp,in_port=LOCAL,nw_dst=10.0.0.0/8,tp_dst=80");
//!
//! let error = parse_match("tcp,nw_dts=10.1.2.3", &NoPortNames).unwrap_err();
//! assert_eq!(error.to_string(), "unknown field `nw_dts`: is it `nw_dst`?");
//! # Ok::<(), shunt_flow::text::MatchError>(())
//! ```

mod builder;
mod error;
mod flags;
mod format;
mod items;
mod ports;
mod protocol;
#[cfg(test)]
mod tests;
mod value;

pub use builder::{MatchBuilder, parse_match};
pub use error::{MatchError, nearest_of};
pub use format::{format_key, format_match};
pub use items::items;
pub use ports::{NoPortNames, PortNames, format_port, parse_port};
pub use value::{format_value, hex, integer, parse_value};
