//! Attributes of network devices, as the kernel reports them over netlink.
//!
//! The answers are about the network namespace of the calling thread, other than those of `/sys`.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_link.h`.

use std::{ffi::c_uint, os::fd::AsRawFd};

use nix::{
    net::if_::if_indextoname,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket},
};

/// Attribute of a link: the bridge, bond or team that has it as a member.
const IFLA_MASTER: u16 = 10;
/// Attribute of a link: 1 if it has a carrier.
const IFLA_CARRIER: u16 = 33;
/// Attribute of a link: its counters, as `rtnl_link_stats64`.
const IFLA_STATS64: u16 = 23;
/// Place of the counter `tx_dropped` among these; each has 8 bytes.
const TX_DROPPED: usize = 7;
/// Flag of an attribute that has attributes.
const NESTED: u16 = 0x8000;

/// Length of the headers in front of the attributes: `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = 16 + 16;

/// The answer of the kernel about a device.
pub(super) struct LinkMessage(Vec<u8>);

impl LinkMessage {
    /// Asks the kernel about a device; `None` if it does not answer.
    pub(super) fn ask(device: c_uint) -> Option<Self> {
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
        Some(Self(answer))
    }

    /// Returns the value of an attribute.
    pub(super) fn find_attribute(&self, wanted: u16) -> Option<&[u8]> {
        Some(attributes(self.0.get(HEADERS..)?).find(|(kind, _)| *kind == wanted)?.1)
    }
}

/// Returns the bridge, bond or team that has a device as a member.
pub(super) fn master(device: c_uint) -> Option<String> {
    let message = LinkMessage::ask(device)?;
    let master = message.find_attribute(IFLA_MASTER)?.first_chunk()?;
    if_indextoname(u32::from_ne_bytes(*master)).ok()?.into_string().ok()
}

/// Returns whether a device has a carrier.
///
/// A TAP has one while a program holds a queue of it.
pub(super) fn has_carrier(device: c_uint) -> bool {
    let message = LinkMessage::ask(device);
    message.is_some_and(|message| message.find_attribute(IFLA_CARRIER) == Some(&[1]))
}

/// Returns the number of packets that a device could not send since it exists.
///
/// `None` if there is no such device.
pub(super) fn tx_dropped(device: c_uint) -> Option<u64> {
    let message = LinkMessage::ask(device)?;
    let counters = message.find_attribute(IFLA_STATS64)?;
    let counter = counters.get(TX_DROPPED * 8..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*counter))
}

/// Returns the attributes in a message: type and value, until the first broken one.
pub(super) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, d], _) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let kind = u16::from_ne_bytes([*c, *d]) & !NESTED;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}
