//! Attributes of network devices, as the kernel reports them over netlink.
//!
//! The answers concern the network namespace of the calling thread, unlike those of `/sys`.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_link.h`.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_uint},
    io,
};

use nix::net::if_::if_indextoname;

use super::netlink::{NetlinkAnswer, NetlinkRequest, attributes};

/// Attribute of a link: its first name, with a zero byte at the end.
const IFLA_IFNAME: u16 = 3;
/// Attribute of a request: a name of the link, with a zero byte at the end.
const IFLA_ALT_IFNAME: u16 = 53;
/// Length of the header of an attribute.
const ATTRIBUTE_HEADER: usize = 4;
/// Attribute of a link: the bridge, bond or team that has it as a member.
const IFLA_MASTER: u16 = 10;
/// Attribute of a link: its kind and settings of the kind.
const IFLA_LINKINFO: u16 = 18;
/// Attribute in `IFLA_LINKINFO`: the name of the kind, such as `veth`.
const IFLA_INFO_KIND: u16 = 1;
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

/// Length of the header before the attributes of a link (`ifinfomsg`).
const LINK_HEADER: usize = 16;
/// Length of the header before statistics (`if_stats_msg`).
const STATS_HEADER: usize = 12;

/// The answer of the kernel to a request for a device.
pub(super) struct LinkMessage(Vec<u8>);

impl LinkMessage {
    /// Requests a device from the kernel; `None` if the kernel does not answer.
    pub(super) fn ask(device: c_uint) -> Option<Self> {
        // The request has family, type, index, flags and mask.
        let mut content = vec![0; 4];
        content.extend(device.to_ne_bytes());
        content.resize(LINK_HEADER, 0);
        Self::request(&content)
    }

    /// Sends a request for a device, with a header and attributes.
    fn request(content: &[u8]) -> Option<Self> {
        let request = NetlinkRequest {
            kind: libc::RTM_GETLINK,
            flags: 0,
            content,
            answer: NetlinkAnswer::One(libc::RTM_NEWLINK),
        };
        let mut link = None;
        request.ask(|message| link = Some(Self(message.to_vec()))).ok()?;
        link
    }

    /// Returns the value of an attribute.
    pub(super) fn find_attribute(&self, wanted: u16) -> Option<&[u8]> {
        Some(attributes(self.0.get(LINK_HEADER..)?).find(|(kind, _)| *kind == wanted)?.1)
    }
}

/// Returns the first name of the device with any name.
///
/// `None` if no device has the name, which may be longer than a first name.
pub(super) fn first_name(name: &str) -> Option<String> {
    let length = u16::try_from(ATTRIBUTE_HEADER + name.len() + 1).ok()?;
    let mut content = vec![0; LINK_HEADER];
    content.extend(length.to_ne_bytes());
    content.extend(IFLA_ALT_IFNAME.to_ne_bytes());
    content.extend(name.bytes());
    // The zero byte, and the padding of the attribute.
    content.push(0);
    content.resize(content.len().next_multiple_of(4), 0);
    let link = LinkMessage::request(&content)?;
    let first = CStr::from_bytes_until_nul(link.find_attribute(IFLA_IFNAME)?).ok()?;
    first.to_str().ok().map(str::to_owned)
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

/// Returns whether a device is a TAP or TUN; `None` if the kernel does not answer.
pub(super) fn is_tap(device: c_uint) -> Option<bool> {
    let message = LinkMessage::ask(device)?;
    // A network card has no kind.
    let info = message.find_attribute(IFLA_LINKINFO).unwrap_or_default();
    Some(attributes(info).any(|(kind, value)| kind == IFLA_INFO_KIND && value == b"tun\0"))
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
fn ask_statistics(device: Option<u32>, losses: &mut BTreeMap<u32, DeviceDrops>) -> io::Result<()> {
    let answer = match device {
        Some(_) => NetlinkAnswer::One(RTM_NEWSTATS),
        None => NetlinkAnswer::All(RTM_NEWSTATS),
    };
    // The request has family, index and filter.
    let mut content = vec![0; 4];
    content.extend(device.unwrap_or_default().to_ne_bytes());
    content.extend(LINK_64_FILTER.to_ne_bytes());
    let request = NetlinkRequest { kind: RTM_GETSTATS, flags: 0, content: &content, answer };
    request.ask(|message| losses.extend(drops(message)))
}

/// Returns the index of the device in a message with its drop counters.
fn drops(message: &[u8]) -> Option<(u32, DeviceDrops)> {
    let index = u32::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let mut found = attributes(message.get(STATS_HEADER..)?);
    let (_, counters) = found.find(|(kind, _)| *kind == IFLA_STATS_LINK_64)?;
    let counter = |place: usize| -> Option<u64> {
        Some(u64::from_ne_bytes(*counters.get(place * 8..)?.first_chunk()?))
    };
    Some((index, DeviceDrops { rx: counter(RX_DROPPED)?, tx: counter(TX_DROPPED)? }))
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
    use crate::port::check_device_name;

    /// Counters of a device that dropped nothing.
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
        let mut message = vec![0; 4];
        message.extend(device.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(attributes);
        message
    }

    #[test]
    fn a_truncated_message_has_no_losses() {
        let own = DeviceDrops { rx: 7, tx: 70 };
        let message = message(3, own);
        assert_eq!(drops(&message), Some((3, own)));
        for length in 0..message.len() {
            assert_eq!(drops(&message[..length]), None, "cut at {length}");
        }
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
            let second = "a-second-name-of-b9";
            assert_eq!(first_name(second), None);
            let added = ["link", "property", "add", "dev", "b9", "altname", second];
            assert!(Command::new("ip").args(added).status().unwrap().success());
            assert_eq!(first_name(second).as_deref(), Some("b9"));
            assert_eq!(
                check_device_name(second).unwrap_err().to_string(),
                "\"a-second-name-of-b9\" has 19 bytes, and a device name has at most 15: use b9, \
                 the first name of the device"
            );
        });
        test.join().unwrap();
    }
}
