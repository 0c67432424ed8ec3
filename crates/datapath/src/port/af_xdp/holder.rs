//! The XDP program that another user has attached to a device.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_link.h`.

use std::ffi::c_uint;

use super::program::program_name;
use crate::port::{link::LinkMessage, netlink::attributes};

/// Attribute of a link: its XDP programs.
const IFLA_XDP: u16 = 43;
/// Attributes in `IFLA_XDP`: program of any mode, driver, network stack, device.
const PROGRAM_IDS: [u16; 4] = [4, 5, 6, 7];

/// Returns the name of the XDP program on a device; its number if it has no name.
pub(super) fn attached_program(device: c_uint) -> Option<String> {
    let id = program_id(LinkMessage::ask(device)?.find_attribute(IFLA_XDP)?)?;
    Some(program_name(id).unwrap_or_else(|| format!("number {id}")))
}

/// Returns the id of a program in the content of `IFLA_XDP`.
fn program_id(programs: &[u8]) -> Option<u32> {
    let ids = attributes(programs).filter(|(kind, _)| PROGRAM_IDS.contains(kind));
    ids.filter_map(|(_, value)| Some(u32::from_ne_bytes(*value.first_chunk()?))).find(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an attribute of a netlink message.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_program_of_a_link_is_found() {
        let ids = [attribute(1, &[2]), attribute(4, &7u32.to_ne_bytes())].concat();
        assert_eq!(program_id(&ids), Some(7));
        for length in 0..ids.len() {
            assert_eq!(program_id(&ids[..length]), None, "cut at {length}");
        }
    }
}
