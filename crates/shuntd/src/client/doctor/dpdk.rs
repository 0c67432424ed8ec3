//! The checks of `shuntctl doctor` for DPDK ports: the build, huge pages, and network cards.

use shunt_datapath::port::{DpdkState, device_name};
use shunt_switch::{Config, config::PortType};

use super::{HostCheck, system::HostSystem};

/// The requirements of the DPDK ports of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DpdkNeeds {
    /// True if there is any DPDK port.
    has_port: bool,
    /// PCI addresses of the network cards of these ports.
    cards: Vec<String>,
}

/// Kernel drivers with which DPDK can use a card.
///
/// Mellanox cards keep their usual driver.
const DRIVERS: [&str; 5] = ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core"];

impl DpdkNeeds {
    /// Returns the requirements of ports of the given types, without their cards.
    pub(super) fn of_kinds(kinds: &[&str]) -> Self {
        Self { has_port: kinds.contains(&PortType::Dpdk.name()), cards: Vec::new() }
    }

    /// Returns what the DPDK ports of a configuration need.
    pub(super) fn of_config(config: &Config) -> Self {
        let ports = config.bridges.iter().flat_map(|bridge| &bridge.ports);
        let ports = ports.filter(|port| port.kind == PortType::Dpdk);
        let devices = ports.map(|port| device_name(&port.devargs));
        let devices: Vec<String> = devices.map(str::to_owned).collect();
        let has_port = !devices.is_empty();
        // Only the address of a PCI card has colons, such as `0000:01:00.0`.
        Self { has_port, cards: devices.into_iter().filter(|name| name.contains(':')).collect() }
    }

    /// Returns what a DPDK port of each of these network cards needs.
    pub(super) fn of_cards(cards: &[String]) -> Self {
        Self { has_port: true, cards: cards.to_vec() }
    }

    /// Runs the checks that DPDK ports need.
    pub(super) fn checks(&self, system: &HostSystem) -> Vec<HostCheck> {
        if !self.has_port {
            return Vec::new();
        }
        let mut checks = vec![build(DpdkState::read()), huge_pages(system.free_huge_pages())];
        checks.extend(self.cards.iter().map(|card| check_card(system, card)));
        checks
    }
}

/// Checks that this build has DPDK.
fn build(state: DpdkState) -> HostCheck {
    match state.version() {
        Some(version) => HostCheck::ok("DPDK", format!("{version}, in this build")),
        None => HostCheck::missing(
            "DPDK",
            "this build has no DPDK, which dpdk ports need",
            "cargo build --release --package shuntd --features dpdk    # needs libdpdk-dev",
        ),
    }
}

/// Checks that enough huge pages are free.
fn huge_pages(free: Option<u64>) -> HostCheck {
    let subject = "huge pages for DPDK";
    match free {
        Some(free @ 1..) => HostCheck::ok(subject, format!("{free} pages are free")),
        _ => {
            let detail =
                "none is free, so DPDK uses ordinary pages, which network cards cannot use";
            let mend = Some("sysctl -w vm.nr_hugepages=512".to_owned());
            HostCheck { mend, ..HostCheck::note(subject, detail) }
        }
    }
}

/// Checks that a network card exists, and has a driver that DPDK can use.
fn check_card(system: &HostSystem, card: &str) -> HostCheck {
    let subject = format!("network card {card}");
    let Some(driver) = system.pci_driver(card) else {
        let mend = "dpdk-devbind.py --status    # the cards of this host";
        return HostCheck::missing(subject, "does not exist", mend);
    };
    if DRIVERS.contains(&driver.as_str()) {
        return HostCheck::ok(subject, format!("has the driver {driver}"));
    }
    let detail = match driver.as_str() {
        "" => "has no driver".to_owned(),
        driver => format!("has the driver {driver} of the kernel"),
    };
    let mend = format!("modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci {card}");
    HostCheck::missing(subject, detail, mend)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::client::doctor::CheckState;

    #[test]
    fn a_card_needs_a_driver_for_dpdk() {
        let root = tempfile::tempdir().unwrap();
        let system = HostSystem::new(root.path());
        let card = "0000:01:00.0";
        let state = || check_card(&system, card);
        assert_eq!(state().detail, "does not exist");
        let folder = root.path().join("sys/bus/pci/devices").join(card);
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(state().detail, "has no driver");
        symlink("../../drivers/ixgbe", folder.join("driver")).unwrap();
        assert_eq!(state().detail, "has the driver ixgbe of the kernel");
        assert!(state().mend.unwrap().contains("--bind=vfio-pci 0000:01:00.0"));
        fs::remove_file(folder.join("driver")).unwrap();
        symlink("../../drivers/vfio-pci", folder.join("driver")).unwrap();
        assert_eq!(state().state, CheckState::Ok);
    }

    #[test]
    fn only_dpdk_ports_have_these_needs() {
        let mut config = Config::default();
        let system = HostSystem::new("/no/such/root");
        assert_eq!(DpdkNeeds::of_config(&config).checks(&system), []);
        let mut bridge = shunt_switch::config::BridgeOptions::default();
        for devargs in ["net_null0", "pci:0000:01:00.0,dv_flow_en=1"] {
            bridge.ports.push(shunt_switch::config::PortOptions {
                kind: PortType::Dpdk,
                devargs: devargs.to_owned(),
                ..Default::default()
            });
        }
        config.bridges.push(bridge);
        let needs = DpdkNeeds::of_config(&config);
        assert_eq!(needs.cards, ["0000:01:00.0"]);
        let subjects: Vec<_> = needs.checks(&system).into_iter().map(|own| own.subject).collect();
        assert_eq!(subjects, ["DPDK", "huge pages for DPDK", "network card 0000:01:00.0"]);
        let asked = DpdkNeeds::of_cards(&["0000:01:00.0".to_owned()]);
        assert_eq!(asked, needs, "without a configuration");
        assert_eq!(huge_pages(Some(0)).state, CheckState::Note);
        assert_eq!(huge_pages(Some(3)).detail, "3 pages are free");
    }
}
