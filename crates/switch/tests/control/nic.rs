//! A NIC in front of a bridge: its packets, its entries, and its replacement.

use std::time::Duration;

use shunt_flow::testing::PacketBuilder;
use shunt_switch::{
    Config, NicStatus, NicTraffic, PortDrops, Switch, SwitchError,
    config::{self, OffloadKind, StalePolicy},
};
use tokio::time::{sleep, timeout};

use crate::fixture::{FarEnd, SwitchFixture, in_time, wait_until, wire};

/// Maximum time that a test waits.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum number of packets until the NIC has an entry for a flow.
/// Only one of many packets becomes an offload candidate.
const PACKETS_MAX: usize = 2000;

/// A bridge with three ports and an embedded NIC.
pub(crate) struct NicFixture {
    pub(crate) fixture: SwitchFixture,
    pub(crate) ends: [FarEnd; 3],
}

impl NicFixture {
    async fn new(threads: u16) -> Self {
        Self::with(threads, |_| ()).await
    }

    async fn with(threads: u16, change: impl FnOnce(&mut config::OffloadOptions)) -> Self {
        Self::of(threads, |gigaflow| change(&mut gigaflow.offload)).await
    }

    /// No predictor runs, so each entry of the NIC was made for a packet.
    pub(crate) async fn of(
        threads: u16,
        change: impl FnOnce(&mut config::GigaflowOptions),
    ) -> Self {
        Self::with_predictors(threads, &[], change).await
    }

    pub(crate) async fn with_predictors(
        threads: u16,
        predictors: &[config::PredictorName],
        change: impl FnOnce(&mut config::GigaflowOptions),
    ) -> Self {
        let mut config = Config::default();
        config.threads.packet = threads;
        config.caches.verify_one_in = 1;
        config.foresight.predictors = predictors.to_vec();
        let gigaflow = &mut config.caches.gigaflow;
        gigaflow.offload.kind = OffloadKind::Embedded;
        gigaflow.offload.bridge = "br0".to_owned();
        change(gigaflow);
        let fixture = SwitchFixture::of(&config).await;
        fixture.add_bridge("br0").await;
        let nic_fixture = Self { ends: add_ports(&fixture.switch).await, fixture };
        nic_fixture.wait_until_connected().await;
        nic_fixture
    }

    pub(crate) fn status(&self) -> NicStatus {
        self.fixture.switch.caches().nic.unwrap()
    }

    pub(crate) fn traffic(&self) -> NicTraffic {
        self.status().traffic.unwrap()
    }

    async fn wait_until_connected(&self) {
        wait_until(|| self.status().state == "connected").await;
    }

    pub(crate) async fn add(&self, rules: &[&str]) {
        self.fixture.switch.add_rules("br0", rules).await.unwrap();
    }

    /// Waits until a condition holds; on failure it prints the status of the NIC.
    pub(crate) async fn wait_until(&self, is_true: impl Fn() -> bool) {
        let wait = async {
            while !is_true() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let Err(_) = timeout(WAIT_MAX, wait).await else { return };
        panic!("{:?} {:?}", self.status(), self.fixture.switch.drops());
    }

    /// Waits until no operation of the NIC is in progress.
    pub(crate) async fn wait_until_settled(&self) {
        self.wait_until(|| {
            let status = self.status();
            let is_done = status.waiting == 0 && status.operations.pending == 0;
            status.state == "connected" && is_done && status.stale_entries == 0
        })
        .await;
    }

    /// Sends a frame into port 1 until the NIC forwards it.
    async fn send_until_offloaded(&self, frame: &[u8], out: usize) {
        let before = self.traffic().hits;
        for _ in 0..PACKETS_MAX {
            self.ends[0].send(frame);
            self.ends[out].next_received().await;
            if self.traffic().hits > before {
                return;
            }
        }
        panic!("the NIC does not learn: {:?}", self.status());
    }
}

pub(crate) async fn add_ports(switch: &Switch) -> [FarEnd; 3] {
    let mut ends = Vec::new();
    for number in 1..=3_u16 {
        // The NIC has one receive queue for each port, for any number of packet threads.
        let (port, end) = wire(0);
        switch.add_own_port("br0", &format!("p{number}"), port).await.unwrap();
        ends.push(end);
    }
    ends.try_into().ok().unwrap()
}

fn frame() -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, 1).build()
}

#[tokio::test]
async fn the_nic_forwards_after_the_first_packet() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["table=0,udp,actions=goto_table:1", "table=1,ip,actions=output:2"]).await;
    nic_fixture.ends[0].send(&frame());
    assert_eq!(nic_fixture.ends[1].next_received().await, frame());
    // Packet threads publish their counters only after they have sent.
    let counts = || (nic_fixture.traffic().hits, nic_fixture.traffic().missed);
    wait_until(|| counts() == (0, 1)).await;
    wait_until(|| nic_fixture.status().stages.iter().any(|stage| stage.entries > 0)).await;
    nic_fixture.wait_until_settled().await;
    let received = nic_fixture.fixture.switch.caches().received;
    for _ in 0..5 {
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[1].next_received().await, frame());
    }
    wait_until(|| counts() == (5, 1)).await;
    assert_eq!(
        nic_fixture.fixture.switch.caches().received,
        received,
        "the switch sees none of them"
    );
    // The counters of the rules include the packets that the NIC forwarded.
    nic_fixture.fixture.switch.pull_counts().await;
    wait_until(|| nic_fixture.status().entry_hits > 0).await;
    assert!(nic_fixture.status().latency_us[0] > 0, "{:?}", nic_fixture.status());
}

/// Packets that the NIC drops are in the losses of the switch and of their port.
#[tokio::test]
async fn losses_of_the_nic_are_listed_as_drops() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=drop"]).await;
    let switch = &nic_fixture.fixture.switch;
    let count = |pairs: &[(&str, u64)]| pairs.iter().map(|(_, packets)| packets).sum::<u64>();
    let lost = || count(&switch.drops().not_received);
    let mut sent = 0;
    while lost() == 0 {
        assert!(sent < PACKETS_MAX as u64, "the NIC does not learn: {:?}", nic_fixture.status());
        nic_fixture.ends[0].send(&frame());
        sent += 1;
        let is_over = || {
            let drops = switch.drops();
            count(&drops.not_received) + drops.received == sent
                && drops.received == drops.total()
                && drops.held == 0
        };
        nic_fixture.wait_until(is_over).await;
    }
    let drops = switch.drops();
    let by_nic = lost();
    assert_eq!(drops.not_received, [("nic_rule", by_nic)]);
    assert_eq!(drops.dropped, [("rule_without_output", sent - by_nic)]);
    assert_eq!(nic_fixture.traffic().dropped, [("rule", by_nic)]);
    let port = nic_fixture.fixture.port("p1");
    assert_eq!((port.rx_dropped, port.forward_dropped), (by_nic, sent - by_nic));
    let own = PortDrops { direction: "rx", reason: "nic_rule", packets: by_nic };
    assert!(port.drops.contains(&own), "{:?}", port.drops);
    // The losses of a port stay when the NIC is removed.
    set(&nic_fixture.fixture, "kind", "none").await.unwrap();
    assert_eq!(switch.drops().not_received, [("nic_rule", by_nic)]);
    // The total stays when the port is removed, too.
    switch.remove_port("p1").await.unwrap();
    assert_eq!(switch.drops().not_received, [("nic_rule", by_nic)]);
}

#[tokio::test]
async fn entries_of_the_nic_are_listed_and_explained() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    let list = nic_fixture.fixture.switch.entries(0).await;
    let own: Vec<_> = list.entries.iter().filter(|own| own.entry.starts_with("1.")).collect();
    let [entry] = own[..] else { panic!("{list:?}") };
    assert_eq!(entry.actions, ["p2"]);
    let explanation =
        format!("{:?}", nic_fixture.fixture.switch.explain_entry(&entry.entry).await.unwrap());
    assert!(explanation.contains("Live"), "{explanation}");
    let error = nic_fixture.fixture.switch.explain_entry("1.77.0").await.unwrap_err().to_string();
    assert!(error.contains("the NIC has no such entry"), "{error}");
    let status = nic_fixture.fixture.switch.caches_with_rule_space().await;
    assert_eq!(status.nic.unwrap().rule_space.unwrap().exact, 1);
    let owners = nic_fixture.fixture.switch.evictions().await.unwrap().owners;
    assert_eq!(owners.iter().map(|own| own.is_nic).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn an_ltm_entry_shows_its_next_tag() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture
        .add(&[
            "table=0,ip,nw_src=10.0.0.0/8,actions=goto_table:1",
            "table=1,ip,nw_dst=10.0.0.0/8,actions=output:2",
        ])
        .await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    let list = nic_fixture.fixture.switch.entries(0).await;
    let nic_entries: Vec<_> =
        list.entries.iter().filter(|own| own.entry.starts_with("1.")).collect();
    let [first, last] = ["nw_src", "nw_dst"].map(|field| {
        let found = nic_entries.iter().find(|own| own.megaflow.contains(field));
        found.unwrap_or_else(|| panic!("{list:?}"))
    });
    let next = first.next.as_deref().unwrap();
    assert!(last.megaflow.starts_with(next) && last.next.is_none(), "{list:?}");
    assert!(first.actions.is_empty() && last.actions == ["p2"], "{list:?}");
    assert!(first.stage.unwrap() < last.stage.unwrap(), "{list:?}");
    let error = nic_fixture.fixture.switch.explain_entry("9.0.0").await.unwrap_err().to_string();
    assert!(
        error.contains("its first number is the packet thread, 0, or 1 for the NIC"),
        "{error}"
    );
}

#[tokio::test]
async fn no_packet_uses_replaced_rule() {
    let nic_fixture = NicFixture::new(2).await;
    let rule = |out| format!("table=1,priority=5,udp,actions=output:{out}");
    nic_fixture.add(&["table=0,udp,actions=goto_table:1", &rule(2)]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    for round in 0..20 {
        let (out, old) = if round % 2 == 0 { (3, 1) } else { (2, 2) };
        nic_fixture.add(&[&rule(out)]).await;
        nic_fixture.ends[old].all_received();
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[out - 1].next_received().await, frame());
        assert_eq!(nic_fixture.ends[old].all_received(), Vec::<Vec<u8>>::new(), "round {round}");
        nic_fixture.send_until_offloaded(&frame(), out - 1).await;
    }
}

/// Packets of a flow leave in order while its NIC entries become active.
#[tokio::test]
async fn packets_of_a_new_flow_stay_in_order() {
    const FLOWS: u16 = 400;
    const PACKETS: u8 = 40;
    let nic_fixture = NicFixture::new(2).await;
    let address = |flow: u16| {
        let [high, low] = flow.to_be_bytes();
        [10, 1, high, low]
    };
    let to_address = |flow| {
        let [a, b, c, d] = address(flow);
        format!("table=2,ip,nw_dst={a}.{b}.{c}.{d},actions=output:2")
    };
    let mut rules: Vec<String> = (0..FLOWS).map(to_address).collect();
    rules.push("table=0,udp,actions=goto_table:1".to_owned());
    rules.push("table=1,ip,nw_src=10.0.0.0/8,actions=goto_table:2".to_owned());
    nic_fixture.add(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for flow in 0..FLOWS {
        let frame = |number| {
            let packet = PacketBuilder::ipv4([10, 0, 0, 1], address(flow)).udp(7, 1);
            packet.payload([number]).build()
        };
        for number in 0..PACKETS {
            nic_fixture.ends[0].send(&frame(number));
            // Spreads the packets over the time in which the NIC gets its entries.
            std::thread::sleep(Duration::from_micros(u64::from(flow % 4) * 10));
        }
        for number in 0..PACKETS {
            assert_eq!(
                nic_fixture.ends[1].next_received().await,
                frame(number),
                "flow {flow}, packet {number}"
            );
        }
    }
    assert!(nic_fixture.traffic().hits > 0);
}

#[tokio::test]
async fn unsupported_entries_stay_with_the_switch() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2,output:3"]).await;
    for _ in 0..3 {
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[1].next_received().await, frame());
        assert_eq!(nic_fixture.ends[2].next_received().await, frame());
    }
    wait_until(|| nic_fixture.status().refused.iter().any(|(reason, _)| reason == "actions")).await;
    assert_eq!(nic_fixture.traffic().hits, 0);
}

#[tokio::test]
async fn too_wide_entries_are_not_offloaded() {
    let nic_fixture = NicFixture::with(1, |target| target.key_bits = 24).await;
    nic_fixture.add(&["udp,nw_dst=10.0.0.0/8,actions=output:2"]).await;
    for _ in 0..3 {
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[1].next_received().await, frame());
    }
    wait_until(|| nic_fixture.status().refused.iter().any(|(reason, _)| reason == "key_bits"))
        .await;
    assert_eq!(nic_fixture.traffic().hits, 0);
}

#[tokio::test]
async fn nic_is_replaced_while_packets_flow() {
    let mut nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    for (setting, value) in [
        ("caches.gigaflow.offload.update_us", "1"),
        ("caches.gigaflow.offload.masks", "9"),
        ("caches.gigaflow.offload.kind", "none"),
        ("caches.gigaflow.offload.kind", "embedded"),
    ] {
        nic_fixture.fixture.switch.set(&[(setting, value)]).await.unwrap();
        // Ports that the test supplied stay with the previous NIC, which has no entries.
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[1].next_received().await, frame());
        for name in ["p1", "p2", "p3"] {
            nic_fixture.fixture.switch.remove_port(name).await.unwrap();
        }
        nic_fixture.ends = add_ports(&nic_fixture.fixture.switch).await;
        if value == "none" {
            assert!(nic_fixture.fixture.switch.caches().nic.is_none());
            nic_fixture.ends[0].send(&frame());
            assert_eq!(nic_fixture.ends[1].next_received().await, frame());
        } else {
            nic_fixture.wait_until_settled().await;
            assert_eq!(nic_fixture.traffic(), NicTraffic::default(), "a new one: {setting}");
            nic_fixture.send_until_offloaded(&frame(), 1).await;
        }
    }
}

#[tokio::test]
async fn embedded_nic_is_replaced_on_same_socket() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nic_fixture = NicFixture::with(1, |target| target.address = free.to_string()).await;
    nic_fixture.fixture.switch.set(&[("caches.gigaflow.offload.masks", "9")]).await.unwrap();
    nic_fixture.wait_until_settled().await;
    assert_eq!(nic_fixture.status().address, free.to_string());
}

#[tokio::test]
async fn a_bridge_added_again_gets_its_nic_back() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    nic_fixture.fixture.switch.remove_bridge("br0").await.unwrap();
    assert!(nic_fixture.ends.iter().all(FarEnd::is_closed));
    nic_fixture.fixture.add_bridge("br0").await;
    let NicFixture { fixture, .. } = nic_fixture;
    let nic_fixture = NicFixture { ends: add_ports(&fixture.switch).await, fixture };
    nic_fixture.add(&["udp,actions=output:3"]).await;
    nic_fixture.send_until_offloaded(&frame(), 2).await;
}

#[tokio::test]
async fn a_missing_nic_is_stale_and_blocks_nobody() {
    let mut config = Config::default();
    let target = &mut config.caches.gigaflow.offload;
    target.kind = OffloadKind::P4runtime;
    target.address = "127.0.0.1:1".to_owned();
    target.bridge = "br0".to_owned();
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let port = |name: &str, number| config::PortOptions {
        name: name.into(),
        number,
        kind: config::PortType::Null,
        ..Default::default()
    };
    fixture.switch.add_port("br0", port("p1", 1)).await.unwrap();
    in_time(fixture.switch.add_rules("br0", &["udp,actions=output:1"])).await.unwrap();
    let nic = fixture.switch.caches().nic.unwrap();
    assert_eq!((nic.state, nic.bridge.as_str()), ("stale", "br0"));
    let problem = || fixture.switch.caches().nic.unwrap().error.unwrap_or_default();
    wait_until(|| problem().starts_with("cannot connect to the device: ")).await;
    assert!(problem().contains("refused"), "{}", problem());
    let error = set(&fixture, "address", "127.0.0.1:0").await;
    assert!(error.unwrap_err().to_string().contains("needs the `address` of the NIC"));
    let error = set(&fixture, "stale", "ports-down").await;
    assert!(error.unwrap_err().to_string().contains("report for an external NIC"));
}

#[tokio::test]
async fn stale_embedded_nic_takes_ports_down() {
    let slow = |target: &mut config::OffloadOptions| {
        (target.stale, target.update_us) = (StalePolicy::PortsDown, 1_500_000);
    };
    let nic_fixture = NicFixture::with(1, slow).await;
    let kind = config::PortType::Null;
    let port = config::PortOptions { name: "p4".into(), number: 4, kind, ..Default::default() };
    nic_fixture.fixture.switch.add_port("br0", port).await.unwrap();
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.ends[0].send(&frame());
    // The removal waits for the insertion, so it takes longer than the stall limit of the NIC.
    nic_fixture
        .wait_until(|| nic_fixture.status().stages.iter().any(|stage| stage.entries > 0))
        .await;
    nic_fixture.add(&["udp,actions=output:3"]).await;
    wait_until(|| nic_fixture.fixture.port("p4").link.contains("the NIC is stale")).await;
    wait_until(|| nic_fixture.fixture.port("p4").link == "up").await;
    nic_fixture.wait_until_settled().await;
}

/// Changes a setting of the NIC.
async fn set(fixture: &SwitchFixture, key: &str, value: &str) -> Result<(), SwitchError> {
    fixture.switch.set(&[(&format!("caches.gigaflow.offload.{key}"), value)]).await
}

#[tokio::test]
async fn nic_is_added_and_replaced_while_running() {
    let mut config = Config::default();
    (config.threads.packet, config.caches.verify_one_in) = (2, 1);
    let fixture = SwitchFixture::of(&config).await;
    let error = set(&fixture, "kind", "embedded").await.unwrap_err().to_string();
    assert!(error.starts_with("caches.gigaflow.offload.bridge = "), "{error}");
    assert!(fixture.switch.caches().nic.is_none());
    let error = set(&fixture, "bridge", "br7").await.unwrap_err().to_string();
    assert!(error.contains("br7"), "{error}");
    let threads = fixture.switch.threads().len();
    assert_eq!(threads, fixture.switch.threads().len(), "nothing is left half done");
    fixture.add_bridge("br0").await;
    let ends = add_ports(&fixture.switch).await;
    fixture.switch.add_rules("br0", &["udp,actions=output:2"]).await.unwrap();
    ends[0].send(&frame());
    assert_eq!(ends[1].next_received().await, frame());

    let mut nic_fixture = NicFixture { fixture, ends };
    set(&nic_fixture.fixture, "bridge", "br0").await.unwrap();
    for stages in [2, 3] {
        let stages_text = stages.to_string();
        let all = [("stages", &*stages_text), ("kind", "embedded"), ("stage_entries", "16")];
        let named = all.map(|(key, value)| (format!("caches.gigaflow.offload.{key}"), value));
        let all: Vec<_> = named.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        nic_fixture.fixture.switch.set(&all).await.unwrap();
        assert_eq!(nic_fixture.fixture.switch.threads().len(), threads + 1);
        let error = set(&nic_fixture.fixture, "stages", "4").await.unwrap_err().to_string();
        assert!(error.contains("set caches.gigaflow.offload.kind to none first"), "{error}");
        set(&nic_fixture.fixture, "stale", "report").await.expect("what was refused is not kept");
        // Ports that the test supplied are not reopened.
        for name in ["p1", "p2", "p3"] {
            nic_fixture.fixture.switch.remove_port(name).await.unwrap();
        }
        nic_fixture.ends = add_ports(&nic_fixture.fixture.switch).await;
        nic_fixture.wait_until_connected().await;
        let room: Vec<_> =
            nic_fixture.status().stages.iter().map(|stage| stage.entries_max).collect();
        assert_eq!(room, vec![16; stages]);
        nic_fixture.send_until_offloaded(&frame(), 1).await;
        let owners = nic_fixture.fixture.switch.evictions().await.unwrap().owners;
        assert_eq!(owners.iter().map(|own| own.is_nic).collect::<Vec<_>>(), [false, false, true]);
        nic_fixture.add(&["udp,actions=output:3"]).await;
        nic_fixture.ends[1].all_received();
        nic_fixture.ends[0].send(&frame());
        assert_eq!(nic_fixture.ends[2].next_received().await, frame());
        assert_eq!(nic_fixture.ends[1].all_received(), Vec::<Vec<u8>>::new());
        nic_fixture.add(&["udp,actions=output:2"]).await;
        set(&nic_fixture.fixture, "kind", "none").await.unwrap();
    }
    wait_until(|| nic_fixture.fixture.switch.caches().nic.is_none()).await;
}

#[tokio::test]
async fn a_nic_moves_from_bridge_to_bridge() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    set(&nic_fixture.fixture, "kind", "none").await.unwrap();
    nic_fixture.fixture.add_bridge("br1").await;
    let all =
        [("caches.gigaflow.offload.bridge", "br1"), ("caches.gigaflow.offload.kind", "embedded")];
    nic_fixture.fixture.switch.set(&all).await.unwrap();
    let mut ends = Vec::new();
    for number in 1..=2_u16 {
        let (port, end) = wire(0);
        nic_fixture.fixture.switch.add_own_port("br1", &format!("q{number}"), port).await.unwrap();
        ends.push(end);
    }
    nic_fixture.wait_until_connected().await;
    nic_fixture.fixture.switch.add_rules("br1", &["udp,actions=output:2"]).await.unwrap();
    assert_eq!(nic_fixture.status().bridge, "br1");
    let is_known = async || {
        ends[0].send(&frame());
        assert_eq!(ends[1].next_received().await, frame());
        nic_fixture.traffic().hits > 0
    };
    let mut left = PACKETS_MAX;
    while !is_known().await {
        left = left.checked_sub(1).unwrap_or_else(|| panic!("{:?}", nic_fixture.status()));
    }
    // The previous bridge forwards without the NIC.
    let hits = nic_fixture.traffic().hits;
    nic_fixture.fixture.switch.remove_port("p1").await.unwrap();
    let (port, end) = wire(0);
    nic_fixture.fixture.switch.add_own_port("br0", "p1", port).await.unwrap();
    end.send(&frame());
    assert_eq!(nic_fixture.ends[1].next_received().await, frame());
    assert_eq!(nic_fixture.traffic().hits, hits);
}

#[tokio::test]
async fn nic_entries_expire_by_current_setting() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture.add(&["udp,actions=output:2"]).await;
    nic_fixture.send_until_offloaded(&frame(), 1).await;
    let is_empty = || nic_fixture.status().stages.iter().all(|stage| stage.entries == 0);
    assert!(!is_empty());
    nic_fixture.fixture.switch.set(&[("caches.idle_ms", "100")]).await.unwrap();
    nic_fixture.wait_until(is_empty).await;
}

#[tokio::test]
async fn trace_shows_sub_traversals_in_nic() {
    let nic_fixture = NicFixture::new(1).await;
    nic_fixture
        .add(&[
            "table=0,priority=5,ip,nw_src=10.0.0.0/8,actions=goto_table:1",
            "table=0,priority=4,arp,actions=output:2,output:3",
            "table=1,priority=5,ip,nw_dst=10.0.0.1,actions=output:2",
        ])
        .await;
    let trace = |flow: &str| nic_fixture.fixture.switch.trace("br0", flow).unwrap();
    let held = trace("in_port=1,udp,nw_src=10.1.0.1,nw_dst=10.0.0.1");
    let nic = held.nic_sub_traversals.as_ref().unwrap();
    assert!(held.sub_traversals.is_none(), "the packet threads cache megaflows");
    assert_eq!((nic.not_offloaded.as_ref(), nic.sub_traversals.len()), (None, 2));
    let text = held.to_text();
    for expected in
        ["\nSub-traversals in the NIC: policy joint", ">> partitioned after table 0: ip_src before"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = trace("in_port=1,arp").to_text();
    let expected = "\n  not offloaded: the device refuses the LTM entry: it cannot execute the \
                    actions of the entry\n";
    assert!(text.contains(expected), "{text}");
}
