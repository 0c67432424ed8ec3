//! Other users of the device of a port: a Linux bridge, bond or team, or the IP stack of the host.
//!
//! Each of these programs would forward or answer packets that the switch also forwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use shunt_datapath::port::DeviceAddress;
use tracing::warn;

use crate::ports::port::BridgePort;

/// A user of a device other than the switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceUser {
    /// A Linux bridge, bond or team that has the device as a member.
    Master(String),
    /// The IP stack of the host, which has this address on the device.
    Host(IpAddr),
}

impl DeviceUser {
    /// Returns the consequence for a port with a device, and what to do.
    fn problem(&self, device: &str) -> String {
        match self {
            Self::Master(master) => format!(
                "device {device} is a member of {master}, and packets are forwarded twice; remove it \
                 there with `ip link set {device} nomaster`"
            ),
            Self::Host(address) => format!(
                "device {device} has the address {address} of this host, which answers its packets \
                 beside the switch; give the address to the local port of the bridge"
            ),
        }
    }
}

/// The IP addresses of the host, by the index of their device.
///
/// A device may have several names, and the port may have any of them.
///
/// Link-local IPv6 addresses are left out, because every device that is up has such an address,
/// used or not.
pub(crate) struct HostAddresses(BTreeMap<u32, Vec<IpAddr>>);

impl HostAddresses {
    /// Reads the addresses of the host from the kernel.
    ///
    /// # Errors
    ///
    /// If the addresses cannot be read, such as without a free descriptor.
    pub(crate) fn read() -> io::Result<Self> {
        let mut addresses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let is_of_host = |own: &DeviceAddress| match own.address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        for own in DeviceAddress::all()?.into_iter().filter(is_of_host) {
            addresses.entry(own.index).or_default().push(own.address);
        }
        Ok(Self(addresses))
    }

    /// Returns the addresses on the device with an index.
    fn of(&self, device: u32) -> &[IpAddr] {
        self.0.get(&device).map_or(&[], Vec::as_slice)
    }
}

impl BridgePort {
    /// Returns whether another user of the device would receive the same packets.
    pub(crate) const fn shares_device(&self) -> bool {
        self.settings.kind.shares_device()
    }

    /// Warns of other users of the device, once for each user until it has gone.
    ///
    /// `index` belongs to the device, and `master` is the Linux bridge, bond or team that has the
    /// device as a member. After an error in `addresses`, the known users stay.
    pub(crate) fn check_users(
        &mut self,
        index: u32,
        master: Option<String>,
        addresses: &io::Result<HostAddresses>,
    ) {
        let Ok(addresses) = addresses else { return };
        let device = self.settings.device();
        let mut users = BTreeSet::new();
        users.extend(master.map(DeviceUser::Master));
        users.extend(addresses.of(index).iter().copied().map(DeviceUser::Host));
        for user in users.difference(&self.users) {
            warn!("port {}: {}", self.settings.name, user.problem(device));
        }
        self.users = users;
    }

    /// Returns the other users of the device of the open port, with advice.
    ///
    /// `None` if no other user was found at the last check.
    pub(crate) fn user_problem(&self) -> Option<String> {
        self.open.as_ref()?;
        let device = self.settings.device();
        let problems: Vec<String> = self.users.iter().map(|user| user.problem(device)).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nix::net::if_::if_nametoindex;
    use shunt_flow::PortNo;
    use shunt_pipeline::Time;

    use super::*;
    use crate::config::PortOptions;

    #[test]
    fn the_loopback_device_is_found_by_address() {
        let addresses = HostAddresses::read().unwrap();
        let lo = if_nametoindex("lo").unwrap();
        assert!(addresses.of(lo).contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(addresses.of(u32::MAX).is_empty());
    }

    #[test]
    fn users_stay_while_addresses_cannot_be_read() {
        let options = PortOptions { name: "p1".to_owned(), ..PortOptions::default() };
        let mut port = BridgePort::new(options, PortNo::new(1), 1, Time::ZERO);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let addresses = HostAddresses(BTreeMap::from([(7, vec![address])]));
        port.check_users(7, Some("lan0".to_owned()), &Ok(addresses));
        let users = [DeviceUser::Master("lan0".to_owned()), DeviceUser::Host(address)];
        assert_eq!(port.users, BTreeSet::from(users.clone()));
        port.check_users(7, None, &Err(io::ErrorKind::Other.into()));
        assert_eq!(port.users, BTreeSet::from(users));
        port.check_users(7, None, &Ok(HostAddresses(BTreeMap::new())));
        assert_eq!(port.users, BTreeSet::new());
    }

    #[test]
    fn each_user_has_advice() {
        let host = DeviceUser::Host(IpAddr::V4(Ipv4Addr::LOCALHOST)).problem("p1");
        assert!(host.starts_with("device p1 has the address 127.0.0.1 of this host"), "{host}");
        let master = DeviceUser::Master("lan0".to_owned()).problem("p1");
        assert!(master.ends_with("`ip link set p1 nomaster`"), "{master}");
    }
}
