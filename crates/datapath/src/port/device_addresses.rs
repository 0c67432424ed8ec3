//! The IP addresses of network devices, as the kernel reports them over netlink.
//!
//! `getifaddrs(3)` has the same result, but asks for all devices as well. With a thousand devices,
//! that takes milliseconds after each new one.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/if_addr.h`.

use std::{io, net::IpAddr};

use super::netlink::{NetlinkAnswer, NetlinkRequest, attributes};

/// The request for addresses.
const RTM_GETADDR: u16 = 22;
/// The answer to the request for addresses.
const RTM_NEWADDR: u16 = 20;
/// Attribute of an address: the address itself.
///
/// At a point-to-point link, this is the address of the other end.
const IFA_ADDRESS: u16 = 1;
/// Attribute of an address: the address of this end.
const IFA_LOCAL: u16 = 2;

/// Length of the header before the attributes (`ifaddrmsg`).
const HEADER: usize = 8;

/// An IP address of a network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// The IP address that the device has.
    pub address: IpAddr,
    /// The index of the device, which may have several names.
    pub index: u32,
}

impl DeviceAddress {
    /// Returns the addresses of the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// If the process has no free descriptor, or the kernel does not send all addresses.
    pub fn all() -> io::Result<Vec<Self>> {
        let request = NetlinkRequest {
            kind: RTM_GETADDR,
            flags: 0,
            // The request selects no family and no device.
            content: &[0; HEADER],
            answer: NetlinkAnswer::All(RTM_NEWADDR),
        };
        let mut addresses = Vec::new();
        request.ask(|address| addresses.extend(device_address(address)))?;
        Ok(addresses)
    }
}

/// Returns the address in a message; `None` if it is no IP address.
fn device_address(message: &[u8]) -> Option<DeviceAddress> {
    let index = u32::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let (mut address, mut local) = (None, None);
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            IFA_ADDRESS => address = ip_address(value),
            IFA_LOCAL => local = ip_address(value),
            _ => {}
        }
    }
    Some(DeviceAddress { address: local.or(address)?, index })
}

/// Parses an IPv4 address of 4 bytes, or an IPv6 address of 16 bytes.
fn ip_address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        io::Write,
        process::{Command, Stdio},
    };

    use nix::{
        ifaddrs::getifaddrs,
        net::if_::if_indextoname,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    /// Returns the addresses of `getifaddrs(3)`, by device.
    ///
    /// `getifaddrs(3)` has the label of an address, which begins with the name of the device.
    fn reference() -> BTreeSet<(String, IpAddr)> {
        let address = |own: nix::ifaddrs::InterfaceAddress| {
            let address = own.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
            let device = own.interface_name.split(':').next().unwrap_or_default();
            Some((device.to_owned(), v4.or_else(v6)?))
        };
        getifaddrs().unwrap().filter_map(address).collect()
    }

    /// Returns the devices and addresses that were found.
    fn found() -> BTreeSet<(String, IpAddr)> {
        let device = |index| if_indextoname(index).unwrap().into_string().unwrap();
        let all = DeviceAddress::all().unwrap().into_iter();
        all.map(|own| (device(own.index), own.address)).collect()
    }

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn addresses_are_those_of_getifaddrs() {
        let test = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            assert_eq!(found(), BTreeSet::new());
            let mut lines = "link set lo up\n\
                             link add va type veth peer name vb\n\
                             addr add 10.0.0.1/24 dev va\n\
                             addr add 10.0.0.2/24 dev va label va:1\n\
                             addr add 10.1.0.1 peer 10.1.0.2 dev vb\n\
                             addr add fd00::1/64 dev vb nodad\n"
                .to_owned();
            // More addresses than one part of the answer has.
            lines.extend((0..=255).map(|number| format!("addr add 10.2.{number}.1/24 dev lo\n")));
            lines.extend((0..=255).map(|number| format!("addr add 10.3.{number}.1/24 dev lo\n")));
            let mut ip =
                Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
            ip.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            assert!(ip.wait().unwrap().success());
            let all = found();
            assert!(all.len() > 2 * 256, "{}", all.len());
            assert_eq!(all, reference());
        });
        test.join().unwrap();
    }

    #[test]
    fn a_truncated_message_has_no_address() {
        let mut message = vec![2, 24, 0, 0];
        message.extend(7_u32.to_ne_bytes());
        message.extend(8_u16.to_ne_bytes());
        message.extend(IFA_ADDRESS.to_ne_bytes());
        message.extend([10, 0, 0, 1]);
        for length in 0..message.len() {
            assert_eq!(device_address(&message[..length]), None, "cut at {length}");
        }
        let expected = DeviceAddress { address: IpAddr::from([10_u8, 0, 0, 1]), index: 7 };
        assert_eq!(device_address(&message), Some(expected));
    }
}
