//! A switch in this process with six ports, and the far end of each cable.

use std::{collections::BTreeSet, path::Path, thread::yield_now, time::Instant};

use shunt_datapath::{
    Packet, Pool, RxQueue, TxQueue,
    port::{Port, pair::pair},
};
use shunt_pipeline::DatapathPort;
use shunt_switch::{
    Config, Switch,
    config::{self, BridgeOptions, CacheKind},
};
use shunt_tests::daemon::{SOON, wait_until};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{
    case::{Case, Frames, RecordedPacket},
    client::{Answer, Client},
};

/// Name of the bridge.
pub(crate) const BRIDGE: &str = "br0";
/// Number of ports: `p1` to `p6`, with the numbers 1 to 6.
pub(crate) const PORTS: u32 = 6;
/// Seed of hashes and hardware addresses.
const SEED: u64 = 1;

/// A switch and six cables.
pub(crate) struct CabledSwitch {
    pub(crate) switch: Switch,
    /// The cables; `None` for an unplugged cable.
    cables: Vec<Option<Cable>>,
    pool: Pool,
    received: u64,
    injected: u64,
    folder: TempDir,
    // This field is declared last, so that the switch stops while the runtime exists.
    runtime: Runtime,
}

/// Learned addresses: VLAN, address, port.
pub(crate) type Macs = BTreeSet<(u16, String, String)>;

/// The far end of a cable to a port.
struct Cable {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
}

impl CabledSwitch {
    /// Creates a switch without rules, with megaflows or with LTM entries.
    pub(crate) fn new(kind: CacheKind) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let bridge = BridgeOptions {
            name: BRIDGE.into(),
            datapath_id: "00000000000000c1".into(),
            mac: "aa:55:aa:55:00:00".into(),
            ..BridgeOptions::default()
        };
        let mut config = Config { bridges: vec![bridge], ..Config::default() };
        config.caches.kind = kind;
        let run_dir = Some(folder.path().to_owned());
        let switch = runtime.block_on(Switch::start(&config, run_dir, SEED));
        let switch = switch.expect("the switch starts");
        let cables = (1..=PORTS).map(|number| Some(plug_in(&runtime, &switch, number))).collect();
        Self { switch, cables, pool: Pool::new(), received: 0, injected: 0, folder, runtime }
    }

    /// Sets the VLANs and mirrors of a case, and unplugs cables.
    ///
    /// The cables of ports that are down are unplugged.
    pub(crate) fn set_ports(&mut self, case: &Case) {
        self.set_vlans(&case.vlans);
        let set = self.runtime.block_on(self.switch.set_mirrors(BRIDGE, case.mirrors.clone()));
        set.unwrap_or_else(|error| panic!("{}: {error}", case.id));
        for port in &case.down {
            self.cables[*port as usize - 1] = None;
        }
        assert!(wait_until(|| self.are_down(&case.down)), "{}: links go down", case.id);
    }

    /// Sets the VLANs of ports.
    pub(crate) fn set_vlans(&self, ports: &[config::PortOptions]) {
        for port in ports {
            let set = self.runtime.block_on(self.switch.set_vlans(port));
            set.unwrap_or_else(|error| panic!("{}: {error}", port.name));
        }
    }

    /// Returns the learned addresses by VLAN, and the port of each address.
    pub(crate) fn macs(&self) -> Macs {
        let macs = self.runtime.block_on(self.switch.macs(BRIDGE));
        let macs = macs.expect("the bridge exists");
        macs.iter().map(|known| (known.vlan, text(known.mac), known.port.to_string())).collect()
    }

    fn are_down(&self, ports: &[u32]) -> bool {
        let bridges = self.switch.bridges();
        let mut all = bridges.iter().flat_map(|bridge| &bridge.ports);
        !all.any(|port| ports.contains(&port.number) && port.link == "up")
    }

    /// Adds meters, groups and rules of a case without a client.
    pub(crate) fn load(&self, case: &Case) {
        let objects = case.objects().unwrap_or_else(|error| panic!("{error}"));
        let made = self.runtime.block_on(self.switch.modify(BRIDGE, objects));
        made.unwrap_or_else(|error| panic!("{}: {error}", case.id));
        let rules: Vec<&str> = case.flows.iter().map(String::as_str).collect();
        let added = self.runtime.block_on(self.switch.add_rules(BRIDGE, &rules));
        added.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Sends a frame to a port. Returns the output of the switch for the frame.
    fn send(&mut self, port: u32, frame: &[u8]) -> Frames {
        let packet = self.pool.take(frame.len(), DatapathPort::new(0));
        let mut packet = packet.expect("the pool has a buffer");
        packet.frame_mut().copy_from_slice(frame);
        let cable = self.cables[port as usize - 1].as_mut();
        let tx = &mut cable.expect("packets arrive on ports that are up").tx;
        assert_eq!(tx.tx(std::slice::from_ref(&packet)), 1, "the cable accepts a frame");
        tx.flush();
        self.pool.put_back(packet);
        self.received += 1;
        self.outcome()
    }

    /// Changes ports as the case requires before a packet, and sends the packet.
    ///
    /// Returns the output.
    pub(crate) fn play(&mut self, client: &Client, packet: &RecordedPacket) -> (Answer, Frames) {
        for [port, change] in &packet.port_mods {
            client.set_port(port, change);
        }
        self.set_vlans(&packet.vlans);
        match &packet.packet_out {
            None => (Answer::Taken, self.send(packet.in_port, &packet.frame())),
            Some(actions) => self.send_out(client, &packet.as_packet_out(actions)),
        }
    }

    /// Sends a packet-out through a client; returns the output.
    fn send_out(&mut self, client: &Client, packet_out: &str) -> (Answer, Frames) {
        let answer = client.ask("packet-out", packet_out);
        self.injected += u64::from(answer == Answer::Taken);
        (answer, self.outcome())
    }

    /// Returns the output after the switch has processed its input.
    fn outcome(&mut self) -> Frames {
        self.wait_until_done();
        // The next packet may arrive on another port, and then has no order relative to this
        // packet.
        self.runtime.block_on(self.switch.wait_until_learned());
        self.collect()
    }

    /// Returns whether a port exceeded the stall budget and dropped a learning packet.
    pub(crate) fn has_exceeded_stall_budget(&self) -> bool {
        self.switch.drops().dropped.iter().any(|(reason, _)| *reason == "learn_rate_limited")
    }

    /// Returns the number of packets sent to controllers.
    pub(crate) fn count_punted(&self) -> u64 {
        self.switch.drops().punted
    }

    /// Returns a client of the bridge.
    pub(crate) fn client(&self) -> Client {
        client_in(self.folder.path())
    }

    /// Waits until every received packet, and every copy of a packet,
    /// has been processed.
    fn wait_until_done(&self) {
        #[expect(clippy::disallowed_methods, reason = "packet threads need real time")]
        let start = Instant::now();
        loop {
            let fates = self.switch.drops();
            let came = fates.received + fates.injected + fates.copied;
            let went = fates.sent + fates.punted + fates.total();
            let has_come = fates.received == self.received && fates.injected == self.injected;
            if has_come && came == went {
                return;
            }
            assert!(start.elapsed() < SOON, "a packet did not end: {fates:?}");
            yield_now();
        }
    }

    fn collect(&mut self) -> Frames {
        let mut frames = Frames::new();
        for (number, cable) in (1..).zip(&mut self.cables) {
            let Some(cable) = cable else { continue };
            let mut burst = Vec::new();
            cable.rx.rx(&mut self.pool, &mut burst).expect("a virtual cable does not fail");
            for packet in burst {
                frames.entry(number).or_default().push(hex(&packet));
                self.pool.put_back(packet);
            }
        }
        frames
    }
}

/// Returns a client of the bridge with sockets in a folder.
pub(crate) fn client_in(folder: &Path) -> Client {
    Client::new(format!("unix:{}", folder.join(format!("{BRIDGE}.mgmt")).display()), folder)
}

fn plug_in(runtime: &Runtime, switch: &Switch, number: u32) -> Cable {
    let (near, mut far) = pair(1, u64::from(number));
    let name = format!("p{number}");
    let added = runtime.block_on(switch.add_own_port(BRIDGE, &name, Box::new(near)));
    assert_eq!(
        added.expect("the port is added").number(),
        number,
        "ports get their number in turn"
    );
    let mut queues = far.split(1).expect("a pair for one thread");
    let queues = queues.pop().expect("a queue for one thread");
    Cable { rx: queues.rx.expect("a cable has two directions"), tx: queues.tx }
}

fn text([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn hex(packet: &Packet) -> String {
    packet.frame().iter().map(|octet| format!("{octet:02x}")).collect()
}
