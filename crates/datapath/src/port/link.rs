//! Attributes of network devices, as the kernel reports them over netlink.
//!
//! The answers concern the network namespace of the calling thread, unlike those of `/sys`.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_link.h`.

use std::{collections::BTreeMap, ffi::c_uint, os::fd::AsRawFd};

use nix::{
    net::if_::if_indextoname,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket},
};

/// Attribute of a link: the bridge, bond or team that has it as a member.
const IFLA_MASTER: u16 = 10;
/// Attribute of a link: 1 if it has a carrier.
const IFLA_CARRIER: u16 = 33;
/// The request for statistics of links.
const RTM_GETSTATS: u16 = 94;
/// The answer to the request for statistics.
const RTM_NEWSTATS: u16 = 92;
/// Attribute of statistics: the counters of a link, as `rtnl_link_stats64`.
const IFLA_STATS_LINK_64: u16 = 1;
/// Index of the counter `rx_dropped` (8 bytes) in `rtnl_link_stats64`.
const RX_DROPPED: usize = 6;
/// Index of the counter `tx_dropped`.
const TX_DROPPED: usize = 7;
/// The bit of `IFLA_STATS_LINK_64` in the filter of a request.
const LINK_64_FILTER: u32 = 1 << (IFLA_STATS_LINK_64 - 1);
/// The flag of an attribute that contains attributes.
const NESTED: u16 = 0x8000;

/// Length of the header of a message (`nlmsghdr`).
pub(super) const MESSAGE_HEADER: usize = 16;
/// Length of the headers before the attributes: `nlmsghdr` and `ifinfomsg`.
const HEADERS: usize = MESSAGE_HEADER + 16;
/// Length of the headers before statistics: `nlmsghdr` and `if_stats_msg`.
const STATS_HEADERS: usize = MESSAGE_HEADER + 12;

/// The answer of the kernel to a request for a device.
pub(super) struct LinkMessage(Vec<u8>);

impl LinkMessage {
    /// Requests a device from the kernel; `None` if the kernel does not answer.
    pub(super) fn ask(device: c_uint) -> Option<Self> {
        let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).ok()?;
        let mut request = Vec::with_capacity(HEADERS);
        // The header has length, type, flags, sequence number and sender.
        request.extend(u32::try_from(HEADERS).ok()?.to_ne_bytes());
        request.extend(libc::RTM_GETLINK.to_ne_bytes());
        request.extend(u16::try_from(libc::NLM_F_REQUEST).ok()?.to_ne_bytes());
        request.extend([0; 8]);
        // The request has family, type, index, flags and mask.
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
/// A TAP device has a carrier while a program holds one of its queues.
pub(super) fn has_carrier(device: c_uint) -> bool {
    let message = LinkMessage::ask(device);
    message.is_some_and(|message| message.find_attribute(IFLA_CARRIER) == Some(&[1]))
}

/// The packets that the kernel dropped at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceDrops {
    /// Packets that were received and dropped before any socket.
    ///
    /// Examples are frames that are longer than the MTU, and frames beyond the backlog of the CPU.
    pub rx: u64,
    /// Packets that could not be sent.
    ///
    /// A TAP device counts the packets for which a queue of its port was full.
    pub tx: u64,
}

/// The packets that the kernel dropped at each device, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLosses(BTreeMap<u32, DeviceDrops>);

impl DeviceLosses {
    /// Reads the losses of all devices of the network namespace.
    ///
    /// The call takes some microseconds for each device. The result is empty if the kernel does not
    /// answer.
    #[must_use]
    pub fn read() -> Self {
        let mut losses = BTreeMap::new();
        // After an error, the losses of the devices read so far are kept.
        let _ = ask_statistics(None, &mut losses);
        Self(losses)
    }

    /// Reads the losses of one device.
    #[must_use]
    pub fn of(device: u32) -> Self {
        let mut losses = BTreeMap::new();
        let _ = ask_statistics(Some(device), &mut losses);
        Self(losses)
    }

    /// Returns the losses of a device; `None` if there was no such device.
    #[must_use]
    pub fn find(&self, device: u32) -> Option<DeviceDrops> {
        self.0.get(&device).copied()
    }
}

/// Requests the statistics of one device or of all, and takes the whole answer.
fn ask_statistics(device: Option<u32>, losses: &mut BTreeMap<u32, DeviceDrops>) -> nix::Result<()> {
    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    send(socket.as_raw_fd(), &statistics_request(device), MsgFlags::empty())?;
    // The kernel sends at most 32 KiB in a part of the answer.
    let mut part = vec![0; 1 << 15];
    loop {
        let length = recv(socket.as_raw_fd(), &mut part, MsgFlags::empty())?;
        let is_last = take_statistics(part.get(..length).unwrap_or_default(), losses);
        if is_last || device.is_some() {
            return Ok(());
        }
    }
}

/// Returns the request for the counters of one device, or of all.
fn statistics_request(device: Option<u32>) -> Vec<u8> {
    let flags = if device.is_some() { 0 } else { libc::NLM_F_DUMP };
    let flags = u16::try_from(libc::NLM_F_REQUEST | flags).unwrap_or_default();
    let mut request = Vec::with_capacity(STATS_HEADERS);
    // The header has length, type, flags, sequence number and sender.
    request.extend(u32::try_from(STATS_HEADERS).unwrap_or_default().to_ne_bytes());
    request.extend(RTM_GETSTATS.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    // The request has family, index and filter.
    request.extend([0; 4]);
    request.extend(device.unwrap_or_default().to_ne_bytes());
    request.extend(LINK_64_FILTER.to_ne_bytes());
    request
}

/// Takes the losses from a part of an answer; returns whether it is the last part.
fn take_statistics(mut part: &[u8], losses: &mut BTreeMap<u32, DeviceDrops>) -> bool {
    if part.is_empty() {
        return true;
    }
    while !part.is_empty() {
        // Every other message is the end (`NLMSG_DONE`), or an error.
        let Some((message, RTM_NEWSTATS)) = first_message(part) else { return true };
        losses.extend(drops(message));
        part = part.get(message.len().next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Returns the first message with its type; `None` if it is truncated.
pub(super) fn first_message(part: &[u8]) -> Option<(&[u8], u16)> {
    let length = usize::try_from(u32::from_ne_bytes(*part.first_chunk()?)).ok()?;
    let kind = u16::from_ne_bytes(*part.get(4..)?.first_chunk()?);
    let message = part.get(..length).filter(|message| message.len() >= MESSAGE_HEADER)?;
    Some((message, kind))
}

/// Returns the index of the device in a message with its drop counters.
fn drops(message: &[u8]) -> Option<(u32, DeviceDrops)> {
    let index = u32::from_ne_bytes(*message.get(MESSAGE_HEADER + 4..)?.first_chunk()?);
    let mut found = attributes(message.get(STATS_HEADERS..)?);
    let (_, counters) = found.find(|(kind, _)| *kind == IFLA_STATS_LINK_64)?;
    let counter = |place: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(*counters.get(place * 8..)?.first_chunk()?))
    };
    Some((index, DeviceDrops { rx: counter(RX_DROPPED)?, tx: counter(TX_DROPPED)? }))
}

/// Returns the attributes of a message, as type and value, until an invalid one.
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

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use nix::{
        net::if_::if_nametoindex,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    const NONE: DeviceDrops = DeviceDrops { rx: 0, tx: 0 };

    /// Returns a message with the drop counters of a device.
    fn message(device: u32, drops: DeviceDrops) -> Vec<u8> {
        let counter = |place| match place {
            RX_DROPPED => drops.rx,
            TX_DROPPED => drops.tx,
            _ => 9,
        };
        let counters: Vec<u8> = (0..25).flat_map(|place| counter(place).to_ne_bytes()).collect();
        let mut attributes = Vec::new();
        for (kind, value) in [(7, [1, 2, 3].as_slice()), (IFLA_STATS_LINK_64, counters.as_slice())]
        {
            attributes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
            attributes.extend(u16::to_ne_bytes(kind));
            attributes.extend(value);
            attributes.resize(attributes.len().next_multiple_of(4), 0);
        }
        let mut message = Vec::new();
        message.extend(u32::try_from(STATS_HEADERS + attributes.len()).unwrap().to_ne_bytes());
        message.extend(RTM_NEWSTATS.to_ne_bytes());
        message.extend([0; 10]);
        message.extend([0; 4]);
        message.extend(device.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(attributes);
        message
    }

    #[test]
    fn losses_are_those_of_whole_messages() {
        let mut part = [message(3, DeviceDrops { rx: 7, tx: 70 }), message(4, NONE)].concat();
        let mut losses = BTreeMap::new();
        assert!(!take_statistics(&part, &mut losses), "the end is to come");
        let expected = BTreeMap::from([(3, DeviceDrops { rx: 7, tx: 70 }), (4, NONE)]);
        assert_eq!(losses, expected);
        // The last message is `NLMSG_DONE` with a result.
        part.extend(20_u32.to_ne_bytes());
        part.extend(3_u16.to_ne_bytes());
        part.extend([0; 14]);
        assert!(take_statistics(&part, &mut losses));
        assert_eq!(losses, expected);
        for length in 0..part.len() {
            let mut cut = BTreeMap::new();
            take_statistics(&part[..length], &mut cut);
            assert!(cut.iter().all(|(device, own)| expected.get(device) == Some(own)));
        }
        // A message that is shorter than its header must not cause an endless loop.
        assert!(take_statistics(&[0; 64], &mut losses));
    }

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn one_netlink_reply_lists_all_devices() {
        let test = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            // These devices do not fit in one part of the answer: the kernel sends several parts.
            let count = 160;
            let pair = |number| format!("link add a{number} type veth peer name b{number}\n");
            let lines: Vec<String> = (0..count / 2).map(pair).collect();
            let mut ip =
                Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            ip.stdin.take().unwrap().write_all(lines.concat().as_bytes()).unwrap();
            assert!(ip.wait().unwrap().success());
            let losses = DeviceLosses::read();
            assert!(losses.0.len() > count, "the loopback device is among them");
            let index = if_nametoindex("b9").unwrap();
            assert_eq!(losses.find(index), Some(NONE));
            assert_eq!(DeviceLosses::of(index).0, BTreeMap::from([(index, NONE)]));
            assert_eq!(DeviceLosses::of(9999), DeviceLosses::default());
        });
        test.join().unwrap();
    }
}
