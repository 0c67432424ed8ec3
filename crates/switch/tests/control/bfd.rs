//! BFD sessions of ports: two ports of one switch, connected by a cable of the test.

use shunt_bfd::{BfdDiagnostic, BfdState, BfdStatus};
use shunt_switch::{
    BfdPortStatus,
    config::{BfdOptions, PortOptions},
};

use crate::fixture::{FarEnd, SwitchFixture, frame, wait_until};

/// A switch with four ports, with BFD sessions at the ports `p1` and `p2`.
struct Cable {
    fixture: SwitchFixture,
    ends: [FarEnd; 4],
}

/// Returns the options of a session that expires after a second without packets.
fn options() -> BfdOptions {
    BfdOptions { min_tx_ms: 100, min_rx_ms: 100, mult: 10, ..BfdOptions::default() }
}

impl Cable {
    async fn new() -> Self {
        let fixture = SwitchFixture::start(1).await;
        let ends = [
            fixture.add_port("p1", 0).await,
            fixture.add_port("p2", 0).await,
            fixture.add_port("p3", 0).await,
            fixture.add_port("p4", 0).await,
        ];
        let cable = Self { fixture, ends };
        cable.set("p1", Some(options())).await;
        cable.set("p2", Some(options())).await;
        cable
    }

    async fn set(&self, name: &str, bfd: Option<BfdOptions>) {
        let port = PortOptions { name: name.to_owned(), bfd, ..PortOptions::default() };
        self.fixture.switch.set_bfd(&port).await.unwrap();
    }

    fn session(&self, name: &str) -> BfdPortStatus {
        self.fixture.port(name).bfd.unwrap()
    }

    fn state(&self, name: &str) -> BfdState {
        self.session(name).session.state
    }

    /// Carries the waiting frames between the two ports.
    fn carry(&self) {
        for (from, to) in [(0, 1), (1, 0)] {
            for frame in self.ends[from].all_received() {
                self.ends[to].send(&frame);
            }
        }
    }

    /// Carries frames until a condition holds.
    async fn carry_until(&self, is_true: impl Fn() -> bool) {
        wait_until(|| {
            self.carry();
            is_true()
        })
        .await;
    }

    async fn come_up(&self) {
        let is_up = |name| self.state(name) == BfdState::Up;
        self.carry_until(|| is_up("p1") && is_up("p2")).await;
    }

    /// Returns the index of the end that receives a packet sent into `p2`.
    fn output(&self) -> Option<usize> {
        self.ends[1].send(&frame(7));
        [2, 3].into_iter().find(|end| self.ends[*end].all_received().contains(&frame(7)))
    }
}

#[tokio::test]
async fn a_session_decides_about_its_port() {
    let cable = Cable::new().await;
    cable
        .fixture
        .add_groups(&[
            "group_id=1,type=ff,bucket=watch_port:1,output:3,bucket=watch_port:4,output:4",
        ])
        .await;
    cable.fixture.switch.add_rules("br0", &["actions=group:1"]).await.unwrap();
    wait_until(|| cable.output() == Some(3)).await;
    cable.come_up().await;
    cable.carry_until(|| cable.output() == Some(2)).await;
    // Each end learns from a later packet that the other end is up.
    let is_known = |own: BfdStatus| own.forwarding && own.remote.state == BfdState::Up;
    cable.carry_until(|| is_known(cable.session("p1").session)).await;
    assert_eq!(cable.fixture.port("p1").link, "up");
    // No BFD packet has reached the rule, so port 3 has only frames of 60 bytes.
    assert!(cable.ends[2].all_received().iter().all(|frame| frame.len() == 60));
    let trace = cable.fixture.switch.trace("br0", "in_port=p1,udp,nw_ttl=255,tp_dst=3784").unwrap();
    assert_eq!(trace.actions, ["userspace(slow_path(bfd))"]);
    // The override of an operator decides, and after its removal the session decides.
    assert!(cable.fixture.switch.force_bfd_forwarding(Some("p1"), Some(false)));
    cable.carry_until(|| cable.output() == Some(3)).await;
    assert!(cable.fixture.switch.force_bfd_forwarding(None, None));
    assert!(!cable.fixture.switch.force_bfd_forwarding(Some("p3"), None), "p3 has no session");
    cable.carry_until(|| cable.output() == Some(2)).await;
    // From here on, no frames are carried between the ports.
    wait_until(|| cable.state("p1") == BfdState::Down).await;
    assert_eq!(cable.session("p1").session.diagnostic, BfdDiagnostic::TIME_EXPIRED);
    wait_until(|| cable.output() == Some(3)).await;
    cable.set("p1", None).await;
    assert!(cable.fixture.port("p1").bfd.is_none());
    wait_until(|| cable.output() == Some(2)).await;
}

#[tokio::test]
async fn a_disabled_session_notifies_the_other_end() {
    let cable = Cable::new().await;
    cable.come_up().await;
    cable.set("p1", Some(BfdOptions { enable: false, ..options() })).await;
    assert!(cable.fixture.port("p1").bfd.is_none());
    cable.carry_until(|| cable.state("p2") == BfdState::Down).await;
    let own = cable.session("p2").session;
    assert_eq!(own.diagnostic, BfdDiagnostic::NEIGHBOR_DOWN);
    cable.set("p1", Some(options())).await;
    cable.come_up().await;
    cable.fixture.switch.remove_port("p1").await.unwrap();
    wait_until(|| cable.state("p2") == BfdState::Down).await;
}

#[tokio::test]
async fn new_intervals_leave_a_session_up() {
    let cable = Cable::new().await;
    cable.come_up().await;
    let before = cable.session("p1").session;
    let slower = BfdOptions { min_tx_ms: 300, min_rx_ms: 200, mult: 7, ..options() };
    cable.set("p1", Some(slower)).await;
    let is_new = || {
        let [one, other] = ["p1", "p2"].map(|name| cable.session(name).session);
        one.tx_interval.is_some_and(|own| own.as_millis() == 300)
            && other.tx_interval.is_some_and(|own| own.as_millis() == 200)
    };
    cable.carry_until(is_new).await;
    let after = cable.session("p1").session;
    assert_eq!((after.flap_count, after.discriminator), (before.flap_count, before.discriminator));
}

#[tokio::test]
async fn wrong_bfd_options_are_refused() {
    let fixture = SwitchFixture::start(1).await;
    fixture.add_port("p1", 0).await;
    let set = async |name: &str, bfd: BfdOptions| {
        let port = PortOptions { name: name.to_owned(), bfd: Some(bfd), ..PortOptions::default() };
        fixture.switch.set_bfd(&port).await.unwrap_err().to_string()
    };
    let error = set("p1", BfdOptions { mult: 0, ..options() }).await;
    assert_eq!(error, "port p1: `mult` of `bfd` must be from 1 to 255");
    let error = set("br0", options()).await;
    assert!(error.contains("a local port has no BFD"), "{error}");
    let error = set("p9", options()).await;
    assert!(error.contains("p9"), "{error}");
}
