//! The XDP program that another user has attached to a device.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_link.h`.

use std::{ffi::c_uint, os::fd::AsRawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::program::program_name;

/// Attribute of a link: its XDP programs.
const IFLA_XDP: u16 = 43;
/// Attributes of these: the programs of any mode, driver, network stack and device.
const PROGRAM_IDS: [u16; 4] = [4, 5, 6, 7];
/// Flag of an attribute that has attributes.
const NESTED: u16 = 0x8000;

/// Length of the headers in front of the attributes: `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 16 + 16;

/// Returns the name of the program on a device; its number if it has none.
pub(super) fn attached_program(device: c_uint) -> Option<String> {
    let id = program_id(&link_message(device)?)?;
    Some(program_name(id).unwrap_or_else(|| format!("number {id}")))
}

/// Asks the kernel about a link.
fn link_message(device: c_uint) -> Option<Vec<u8>> {
    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).ok()?;
    let mut request = Vec::with_capacity(HEADERS);
    // Length, type, flags, sequence number, sender.
    request.extend(u32::try_from(HEADERS).ok()?.to_ne_bytes());
    request.extend(libc::RTM_GETLINK.to_ne_bytes());
    request.extend(u16::try_from(libc::NLM_F_REQUEST).ok()?.to_ne_bytes());
    request.extend([0; 8]);
    // Family, type, index, flags, mask.
    request.extend([0; 4]);
    request.extend(device.to_ne_bytes());
    request.extend([0; 8]);
    send(socket.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut answer = vec![0; 1 << 16];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
    answer.truncate(length);
    Some(answer)
}

/// Finds the id of a program in the answer about a link.
fn program_id(answer: &[u8]) -> Option<u32> {
    let xdp = attributes(answer.get(HEADERS..)?).find(|(kind, _)| *kind == IFLA_XDP)?.1;
    let ids = attributes(xdp).filter(|(kind, _)| PROGRAM_IDS.contains(kind));
    ids.filter_map(|(_, value)| Some(u32::from_ne_bytes(*value.first_chunk()?))).find(|id| *id != 0)
}

/// Returns the attributes in a message: type and value, until the first broken one.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, d], _) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let kind = u16::from_ne_bytes([*c, *d]) & !NESTED;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let link = [attribute(3, b"eth0\0"), attribute(IFLA_XDP | NESTED, &ids)].concat();
        let answer = [vec![0; HEADERS], link].concat();
        assert_eq!(program_id(&answer), Some(7));
        for length in 0..answer.len() {
            assert_eq!(program_id(&answer[..length]), None, "cut at {length}");
        }
    }
}
