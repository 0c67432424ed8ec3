//! A switch with two bridges and two packet threads, and the far ends of its ports.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_datapath::port::{Port as _, pair::pair};
use shunt_pipeline::testing::generate::BRIDGES;
use shunt_switch::{
    Config, Switch,
    config::{BridgeOptions, CacheKind, PortOptions, PortType},
};
use shunt_tests::daemon::SOON;
use tokio::runtime::{Builder, Runtime};

use crate::traffic::Hosts;

/// Ingress ports of each bridge, from 1. Generated rules name these ports.
pub(crate) const PORTS: u32 = 3;

/// The patch ports of each bridge.
const PATCHES: std::ops::RangeInclusive<u32> = 4..=5;

/// Number of packet threads.
pub(crate) const THREADS: u16 = 2;

/// One hit in `VERIFY_ONE_IN` is compared with the tables.
const VERIFY_ONE_IN: u32 = 4;

/// A switch and the hosts on its ports.
pub(crate) struct SoakFixture {
    pub(crate) switch: Switch,
    pub(crate) hosts: Hosts,
    // This field is declared last, so that the switch stops while the runtime exists.
    pub(crate) runtime: Runtime,
}

/// Returns the name of a bridge.
pub(crate) fn bridge_name(bridge: u16) -> String {
    format!("br{bridge}")
}

/// Returns the name of a port.
pub(crate) fn port_name(bridge: u16, port: u32) -> String {
    format!("p{bridge}-{port}")
}

impl SoakFixture {
    /// Creates a switch without rules, with megaflows or with LTM entries.
    pub(crate) fn new(kind: CacheKind) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let mut config = Config::default();
        config.threads.packet = THREADS;
        config.caches.kind = kind;
        config.caches.gigaflow.stage_entries = 512;
        config.caches.verify_one_in = VERIFY_ONE_IN;
        config.caches.megaflow_entries = 1024;
        config.caches.exact_entries = 1024;
        config.packets.vlan_limit = 2;
        let switch = runtime.block_on(Switch::start(&config, None, 1)).expect("the switch starts");
        let mut hosts = Hosts::default();
        for id in BRIDGES.map(|bridge| bridge.number()) {
            let bridge = BridgeOptions { name: bridge_name(id), ..BridgeOptions::default() };
            runtime.block_on(switch.add_bridge(&bridge)).expect("a bridge is added");
            for port in 1..=PORTS {
                let (near, mut far) = pair(THREADS, u64::from(u32::from(id) * 100 + port));
                let (bridge, name) = (bridge_name(id), port_name(id, port));
                let added = switch.add_own_port(&bridge, &name, Box::new(near));
                let number = runtime.block_on(added).expect("a port is added");
                assert_eq!(number.number(), port, "ports get consecutive numbers");
                hosts.far_ends.extend(far.split(THREADS).expect("once for each thread"));
            }
        }
        let fixture = Self { switch, hosts, runtime };
        fixture.add_patches();
        fixture
    }

    fn add_patches(&self) {
        let [one, two] = BRIDGES.map(|bridge| bridge.number());
        for (id, other) in [(one, two), (two, one)] {
            for number in PATCHES {
                let patch = PortOptions {
                    name: port_name(id, number),
                    number,
                    kind: PortType::Patch,
                    peer: port_name(other, number),
                    ..PortOptions::default()
                };
                let bridge = bridge_name(id);
                let added = self.switch.add_port(&bridge, patch);
                self.runtime.block_on(added).expect("a patch is added");
            }
        }
    }

    /// Waits until every packet sent by hosts has been processed and received.
    pub(crate) fn await_idle(&mut self) {
        #[expect(clippy::disallowed_methods, reason = "packet threads need real time")]
        let start = Instant::now();
        loop {
            self.hosts.receive();
            let fates = self.switch.drops();
            let came = fates.received + fates.injected + fates.copied;
            let went = fates.sent + fates.punted + fates.total();
            if fates.received == self.hosts.sent && came == went && fates.held == 0 {
                self.hosts.receive();
                return;
            }
            assert!(start.elapsed() < SOON, "{} sent, and then: {fates:?}", self.hosts.sent);
            sleep(Duration::from_millis(1));
        }
    }

    /// Asserts all invariants of an idle switch.
    pub(crate) fn check(&self) {
        let (caches, fates) = (self.switch.caches(), self.switch.drops());
        assert_eq!(caches.differences, 0, "the log names them: {caches:?}");
        assert_eq!(fates.sent, self.hosts.received, "{fates:?}");
        let bridges = self.switch.bridges();
        let ports = || bridges.iter().flat_map(|bridge| &bridge.ports);
        assert_eq!(ports().map(|port| port.rx_packets).sum::<u64>(), self.hosts.sent);
        assert_eq!(ports().map(|port| port.tx_packets).sum::<u64>(), self.hosts.received);
        assert_eq!(bridges.iter().map(|bridge| bridge.rules).sum::<u64>(), 0);
    }
}
