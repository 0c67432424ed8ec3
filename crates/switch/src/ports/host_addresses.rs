//! The IP addresses that the host has on a network device.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;

/// Returns the IP addresses of the host on a device.
///
/// Link-local IPv6 addresses are left out.
/// Every device that is up has a link-local IPv6 address, whether the host uses it or not.
pub(crate) fn host_addresses(device: &str) -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter(|own| own.interface_name == device);
    let addresses = all.filter_map(|own| {
        let address = own.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    let is_of_host = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    addresses.filter(is_of_host).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_loopback_device_has_its_address() {
        assert!(host_addresses("lo").contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(host_addresses("no-such-device").is_empty());
    }
}
