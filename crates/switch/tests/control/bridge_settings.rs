//! Settings of a bridge that change while it forwards.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use shunt_pipeline::RuleFilter;
use shunt_switch::{Config, Switch, config::BridgeOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::fixture::{SwitchFixture, frame, in_time};

/// Returns a listener that acts as controller,
/// and its address in the configuration.
async fn controller() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap());
    (listener, target)
}

/// Accepts a connection of the switch, and reads its hello.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = in_time(listener.accept()).await.unwrap();
    in_time(stream.read_exact(&mut [0; 16])).await.unwrap();
    stream
}

/// Returns whether the switch has closed the connection; unread bytes are dropped.
fn is_closed(stream: &TcpStream) -> bool {
    loop {
        match stream.try_read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

async fn wait_for_end(stream: &mut TcpStream) {
    let end = async { while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
    in_time(end).await;
}

fn targets(switch: &Switch) -> Vec<String> {
    let bridge = switch.bridges().remove(0);
    bridge.controllers.into_iter().map(|controller| controller.target).collect()
}

/// Returns an unused address of this host.
async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn controllers_change_without_disturbing_others() {
    let fixture = SwitchFixture::start(1).await;
    let [(one, first), (two, second)] = [controller().await, controller().await];
    fixture.switch.set_bridge("br0", &[("controllers", &first)]).await.unwrap();
    let mut to_one = accept(&one).await;
    let both = format!("{first},{second}");
    fixture.switch.set_bridge("br0", &[("controllers", &both)]).await.unwrap();
    let to_two = accept(&two).await;
    assert_eq!(targets(&fixture.switch), [first.as_str(), &second]);
    assert!(!is_closed(&to_one), "the controller stays connected");
    fixture.switch.set_bridge("br0", &[("controllers", &second)]).await.unwrap();
    wait_for_end(&mut to_one).await;
    assert!(!is_closed(&to_two), "the controller stays connected");
    assert_eq!(targets(&fixture.switch), [second]);
    fixture.switch.set_bridge("br0", &[("controllers", "")]).await.unwrap();
    assert_eq!(targets(&fixture.switch), [""; 0]);
}

#[tokio::test]
async fn a_new_datapath_id_reconnects_controllers() {
    let fixture = SwitchFixture::start(1).await;
    let (listener, target) = controller().await;
    fixture.switch.set_bridge("br0", &[("controllers", &target)]).await.unwrap();
    let mut before = accept(&listener).await;
    fixture.switch.set_bridge("br0", &[("datapath_id", "00000000000000aa")]).await.unwrap();
    wait_for_end(&mut before).await;
    let _after = accept(&listener).await;
    assert_eq!(fixture.switch.bridges()[0].datapath_id, "00000000000000aa");
}

#[tokio::test]
async fn listener_may_change_its_address() {
    let fixture = SwitchFixture::start(1).await;
    let address = free_address().await;
    let (narrow, wide) =
        (format!("ptcp:{}:127.0.0.1", address.port()), format!("ptcp:{}", address.port()));
    fixture.switch.set_bridge("br0", &[("listen", &narrow)]).await.unwrap();
    let mut client = in_time(TcpStream::connect(address)).await.unwrap();
    fixture.switch.set_bridge("br0", &[("listen", &wide)]).await.unwrap();
    wait_for_end(&mut client).await;
    in_time(TcpStream::connect(address)).await.unwrap();
    assert_eq!(targets(&fixture.switch), [wide]);
    fixture.switch.set_bridge("br0", &[("listen", "")]).await.unwrap();
    let refused = in_time(TcpStream::connect(address)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_refused_change_of_a_bridge_changes_nothing() {
    let fixture = SwitchFixture::start(1).await;
    let (address, taken) = (free_address().await, controller().await);
    let own = format!("ptcp:{}:127.0.0.1", address.port());
    fixture.switch.set_bridge("br0", &[("listen", &own)]).await.unwrap();
    let client = in_time(TcpStream::connect(address)).await.unwrap();
    let before = fixture.switch.running_config();
    let in_use = format!("ptcp:{}:127.0.0.1", taken.0.local_addr().unwrap().port());
    for (settings, words) in [
        (vec![("table_rules", "7"), ("listen", &in_use)], "cannot listen on ptcp:"),
        (vec![("table_rules", "7"), ("listen", "tcp:1.2.3.4")], "`listen` takes ptcp:PORT"),
        (vec![("table_rules", "many")], "table_rules = many: it must be a whole number"),
        (
            vec![("mac_ageing_s", "99999999999")],
            "mac_ageing_s = 99999999999: it must be a whole number from 0 to 4294967295",
        ),
        (vec![("table_overflow", "drop")], "it must be refuse or evict"),
        (vec![("datapath_id", "7")], "sixteen hexadecimal digits"),
        (vec![("local", "tap")], "a key of a bridge that can change"),
        (vec![("mac", "zz")], "six octets of a unicast address"),
        (vec![("protocols", "OpenFlow14")], "OpenFlow10 or OpenFlow13"),
        (vec![("flood_vlans", "4096")], "a VLAN from 0 to 4095"),
        (vec![("table_names", "254:a")], "TABLE:NAME, once for each table"),
    ] {
        let error = fixture.switch.set_bridge("br0", &settings).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(fixture.switch.running_config(), before, "{settings:?}");
    }
    let error = fixture.switch.set_bridge("br9", &[("table_rules", "7")]).await.unwrap_err();
    assert!(error.to_string().starts_with("there is no bridge br9"), "{error}");
    assert!(!is_closed(&client), "the connections of the bridge stay");
    in_time(TcpStream::connect(address)).await.unwrap();
}

/// The old listener is closed first, and then the new address is found in use.
#[tokio::test]
async fn a_refused_listener_keeps_the_other_sockets() {
    let fixture = SwitchFixture::start(1).await;
    let (listener, target) = controller().await;
    let address = free_address().await;
    let _holder = TcpListener::bind(("127.0.0.2", address.port())).await.unwrap();
    let own = format!("ptcp:{}:127.0.0.1", address.port());
    fixture.switch.set_bridge("br0", &[("controllers", &target), ("listen", &own)]).await.unwrap();
    let to_controller = accept(&listener).await;
    let before = fixture.switch.running_config();
    let held = format!("ptcp:{}:127.0.0.2", address.port());
    let error = fixture.switch.set_bridge("br0", &[("listen", &held)]).await.unwrap_err();
    assert!(error.to_string().contains("cannot listen on ptcp:"), "{error}");
    assert_eq!(fixture.switch.running_config(), before);
    assert_eq!(targets(&fixture.switch), [target, own]);
    in_time(TcpStream::connect(address)).await.unwrap();
    assert!(!is_closed(&to_controller), "the controller stays connected");
}

#[tokio::test]
async fn the_limits_of_tables_change_at_run_time() {
    let fixture = SwitchFixture::start(1).await;
    let add = async |rule: &str| fixture.switch.add_rules("br0", &[rule]).await;
    add("priority=1,actions=drop").await.unwrap();
    add("priority=2,actions=drop").await.unwrap();
    fixture.switch.set_bridge("br0", &[("table_rules", "1")]).await.unwrap();
    add("priority=3,actions=drop").await.unwrap_err();
    assert_eq!(
        fixture.switch.rules_count("br0", &RuleFilter::all()).unwrap(),
        2,
        "no rule is removed"
    );
    fixture.switch.set_bridge("br0", &[("table_rules", "3")]).await.unwrap();
    add("priority=3,actions=drop").await.unwrap();
}

#[tokio::test]
async fn the_limit_of_addresses_changes_at_run_time() {
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    fixture.switch.add_rules("br0", &["actions=NORMAL"]).await.unwrap();
    fixture
        .switch
        .set_bridge("br0", &[("mac_entries", "1"), ("mac_ageing_s", "60")])
        .await
        .unwrap();
    for source in [1, 2, 3] {
        let mut frame = frame(0);
        frame[11] = source;
        port.send(&frame);
    }
    let learns_the_last = async {
        loop {
            fixture.switch.wait_until_learned().await;
            let macs = fixture.switch.macs("br0").await.unwrap();
            assert!(macs.len() <= 1, "{macs:?}");
            if macs.iter().any(|mac| mac.mac[5] == 3) {
                return;
            }
        }
    };
    in_time(learns_the_last).await;
}

#[tokio::test]
async fn a_reload_changes_a_bridge_that_forwards() {
    let bridge = BridgeOptions { name: "br0".into(), ..BridgeOptions::default() };
    let before = Config { bridges: vec![bridge], ..Config::default() };
    let switch = Switch::start(&before, None, 1).await.unwrap();
    switch.set_bridge("br0", &[("mac_entries", "9")]).await.unwrap();
    let (listener, target) = controller().await;
    let mut after = before.clone();
    after.bridges[0].controllers = vec![target.clone()];
    after.bridges[0].table_rules = 5;
    let report = switch.reload(&before, &after).await;
    assert_eq!(report.applied, [format!("bridge br0: controllers={target} table_rules=5")]);
    assert!(report.refused.is_empty() && report.at_restart.is_empty(), "{report:?}");
    let _stream = accept(&listener).await;
    let own = switch.running_config().bridges.remove(0);
    assert_eq!((own.table_rules, own.mac_entries), (5, 9), "only the file's changes");
}

/// A bridge without its controller forwards by NORMAL, and has no additional rule.
#[tokio::test]
async fn standalone_bridge_fails_open_and_returns() {
    let fixture = SwitchFixture::start(1).await;
    let switch = &fixture.switch;
    let rule = "cookie=7,priority=65535,actions=drop";
    switch.add_rules("br0", &[rule]).await.unwrap();
    let address = free_address().await;
    let target = format!("tcp:{address}");
    let settings = [("controllers", target.as_str()), ("fail_mode", "standalone")];
    switch.set_bridge("br0", &settings).await.unwrap();
    fixture.add_bridge("br1").await;
    let other = format!("tcp:{}", free_address().await);
    let settings = [("controllers", other.as_str()), ("fail_mode", "standalone")];
    switch.set_bridge("br1", &settings).await.unwrap();
    assert_eq!(switch.drops().bridges_without_rules, ["br1"]);
    let rules = || switch.save().tables[0].rules.clone();
    let before = rules();
    let fails_open = || switch.bridges().remove(0).fail_open;
    let changes = async |wanted: bool| {
        while fails_open() != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // Three inactivity probes are 15 seconds.
    timeout(Duration::from_secs(60), changes(true)).await.unwrap();
    let names_none = async || {
        while !switch.drops().bridges_without_rules.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(names_none()).await;
    let [one, two] = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await];
    one.send(&frame(1));
    assert_eq!(two.next_received().await, frame(1));
    assert_eq!(switch.rules_count("br0", &RuleFilter::all()).unwrap(), 1);
    assert_eq!(rules(), before);
    // Other settings change, and the bridge stays a learning switch.
    switch.set_bridge("br0", &[("mac_entries", "9")]).await.unwrap();
    one.send(&frame(2));
    assert_eq!(two.next_received().await, frame(2));
    // A change of the protocols closes all sockets, and opens them again.
    switch.set_bridge("br0", &[("protocols", "OpenFlow13")]).await.unwrap();
    assert!(fails_open());
    let controller = TcpListener::bind(address).await.unwrap();
    let (mut stream, _) = in_time(controller.accept()).await.unwrap();
    // A hello of OpenFlow 1.3.
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).await.unwrap();
    in_time(changes(false)).await;
    assert_eq!(rules(), before);
}
