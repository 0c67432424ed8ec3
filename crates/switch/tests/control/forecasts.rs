//! Forecasts of a running switch: by a predictor, and by announcements.

use std::time::Duration;

use shunt_flow::testing::packet::PacketBuilder;
use shunt_switch::{
    Config, EntryExplanation, EntryStatus, ForecastSourceStatus, TraceError, config::PredictorName,
};
use tokio::time::{sleep, timeout};

use crate::{
    fixture::{SwitchFixture, WAIT_MAX, wait_until},
    nic::NicFixture,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a switch with the `reply` predictor and a rule for each flow.
async fn fixture() -> SwitchFixture {
    let mut config = Config::default();
    config.foresight.predictors = vec![PredictorName::Reply];
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    fixture
}

fn source(fixture: &SwitchFixture, name: &str) -> ForecastSourceStatus {
    known_source(fixture, name).unwrap()
}

/// Returns a source; `None` before its first forecast arrives.
fn known_source(fixture: &SwitchFixture, name: &str) -> Option<ForecastSourceStatus> {
    let sources = fixture.switch.forecasts().sources;
    sources.into_iter().find(|own| own.source == name)
}

/// Waits until `is_true` of a source. A failure shows all sources.
async fn wait_for_source(
    fixture: &SwitchFixture,
    name: &str,
    is_true: impl Fn(&ForecastSourceStatus) -> bool,
) {
    let wait = async {
        while !known_source(fixture, name).is_some_and(|own| is_true(&own)) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    let Err(_) = timeout(WAIT_MAX, wait).await else { return };
    panic!("{:?}", fixture.switch.forecasts());
}

fn packet([from, to]: [u8; 2], [source, target]: [u16; 2]) -> Vec<u8> {
    let macs = [from, to].map(|host| [2, 0, 0, 0, 0, host]);
    let packet = PacketBuilder::ipv4([10, 0, 0, from], [10, 0, 0, to]).udp(source, target);
    packet.macs(macs[0], macs[1]).build()
}

#[tokio::test]
async fn the_first_packet_of_a_reply_hits() {
    let fixture = fixture().await;
    let (client, server) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let rules = [
        "in_port=p1,udp,tp_src=4000,tp_dst=53,actions=mod_nw_dst:10.0.0.9,output:p2",
        "in_port=p2,udp,nw_src=10.0.0.9,tp_src=53,tp_dst=4000,actions=output:p1",
    ];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    client.send(&packet([1, 2], [4000, 53]));
    server.next_received().await;
    wait_until(|| source(&fixture, "reply").installed == 1).await;
    // The reply has the source address that the tables wrote into the request.
    server.send(&packet([9, 1], [53, 4000]));
    client.next_received().await;
    wait_until(|| source(&fixture, "reply").hits == 1).await;
    let status = fixture.switch.forecasts();
    assert_eq!((status.upcalls, status.observed), (1, 2));
    let entries: Vec<EntryStatus> = fixture.switch.entries(0).await.entries;
    let origins: Vec<_> = entries.iter().map(|own| own.forecast).collect();
    assert!(origins.contains(&Some("reply")) && origins.contains(&None), "{origins:?}");
    let predicted = entries.iter().find(|own| own.forecast.is_some()).unwrap();
    let EntryExplanation::Live(explanation) =
        fixture.switch.explain_entry(&predicted.entry).await.unwrap()
    else {
        panic!("the entry is valid")
    };
    assert_eq!(explanation.status.forecast, Some("reply"));
}

/// The server is behind a port of another packet thread,
/// and that thread gets the forecast.
#[tokio::test]
async fn reply_hits_on_another_thread() {
    let mut config = Config::default();
    config.threads.packet = 2;
    config.foresight.predictors = vec![PredictorName::Reply];
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let (client, server) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await);
    let rules = [
        "in_port=p1,udp,tp_dst=53,actions=output:p2",
        "in_port=p2,udp,tp_src=53,actions=output:p1",
    ];
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    // All threads get the flows of a port until a thread has published that it polls the port.
    let flow = "in_port=p2,udp,nw_src=10.0.0.7,nw_dst=10.0.0.1,tp_src=54,tp_dst=8";
    wait_until(|| fixture.switch.announce("br0", &[flow], MINUTE).unwrap().threads == 1).await;
    client.send(&packet([1, 2], [4000, 53]));
    server.next_received().await;
    wait_for_source(&fixture, "reply", |own| own.installed == 1).await;
    server.send(&packet([2, 1], [53, 4000]));
    client.next_received().await;
    wait_for_source(&fixture, "reply", |own| own.hits == 1).await;
    assert_eq!(fixture.switch.forecasts().upcalls, 1);
    // The announced flow has entries only on the packet thread of its port.
    wait_for_source(&fixture, "announced", |own| own.installed == 1).await;
}

/// Clients use the addresses of back ends in the group of a service.
#[tokio::test]
async fn flow_to_one_back_end_predicts_others() {
    let mut config = Config::default();
    config.foresight.predictors = vec![PredictorName::Siblings];
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let (client, server) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let buckets: String =
        (2..5).map(|host| format!(",bucket=mod_nw_dst:10.0.0.{host},output:2")).collect();
    fixture.add_groups(&[&format!("group_id=1,type=select{buckets}")]).await;
    // Rules of equal priority would also form a set of back ends.
    let rule =
        |host: u8| format!("priority={host},in_port=p1,udp,nw_dst=10.0.0.{host},actions=output:p2");
    let rules: Vec<String> = (2..7).map(rule).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    wait_until(|| source(&fixture, "siblings").items == 3).await;
    client.send(&packet([1, 2], [4000, 53]));
    server.next_received().await;
    // The forecasts are for the two other members of the group, not for all five hosts.
    wait_until(|| source(&fixture, "siblings").installed == 2).await;
    for host in [3, 4] {
        client.send(&packet([1, host], [4000, 53]));
        server.next_received().await;
    }
    wait_until(|| source(&fixture, "siblings").hits == 2).await;
    assert_eq!(fixture.switch.forecasts().upcalls, 1);
}

/// A controller adds the back ends of a service together.
#[tokio::test]
async fn rules_added_together_predict_each_other() {
    let mut config = Config::default();
    config.foresight.predictors = vec![PredictorName::Siblings];
    let fixture = SwitchFixture::of(&config).await;
    fixture.add_bridge("br0").await;
    let (client, server) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    let rule = |host: u8| format!("in_port=p1,udp,nw_dst=10.0.0.{host},actions=output:p2");
    let [first, second, third] = [2, 3, 4].map(rule);
    fixture.switch.add_rules("br0", &[&first, &second, &third]).await.unwrap();
    // The rule differs in more than the address.
    let other = format!("priority=9,{}", rule(9));
    fixture.switch.add_rules("br0", &[&other]).await.unwrap();
    wait_until(|| source(&fixture, "siblings").items == 3).await;
    client.send(&packet([1, 2], [4000, 53]));
    server.next_received().await;
    wait_until(|| source(&fixture, "siblings").installed == 2).await;
    for host in [3, 4] {
        client.send(&packet([1, host], [4000, 53]));
        server.next_received().await;
    }
    wait_until(|| source(&fixture, "siblings").hits == 2).await;
    assert_eq!(fixture.switch.forecasts().upcalls, 1);
}

/// The replies never reach the packet threads, but the forecasts count as right.
#[tokio::test]
async fn reply_that_hits_in_nic_is_counted() {
    const FLOWS: u16 = 20;
    let all = u64::from(FLOWS);
    let mut rules = Vec::new();
    for flow in 0..FLOWS {
        rules.push(format!("in_port=1,udp,tp_src={},tp_dst=53,actions=output:2", 4000 + flow));
        rules.push(format!("in_port=2,udp,tp_src=53,tp_dst={},actions=output:1", 4000 + flow));
    }
    let nic_fixture = NicFixture::with_predictors(1, &[PredictorName::Reply], |_| ()).await;
    nic_fixture.add(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let [client, server, _] = &nic_fixture.ends;
    for flow in 0..FLOWS {
        client.send(&packet([1, 2], [4000 + flow, 53]));
        server.next_received().await;
    }
    nic_fixture.wait_until(|| source(&nic_fixture.fixture, "reply").installed == all).await;
    let offloaded = || nic_fixture.status().stages.iter().map(|stage| stage.entries).sum::<u64>();
    nic_fixture.wait_until(|| offloaded() == 2 * all).await;
    nic_fixture.wait_until_settled().await;
    for flow in 0..FLOWS {
        server.send(&packet([2, 1], [53, 4000 + flow]));
        client.next_received().await;
    }
    nic_fixture.wait_until(|| nic_fixture.traffic().hits == all).await;
    nic_fixture.wait_until(|| source(&nic_fixture.fixture, "reply").hits == all).await;
    let reply = source(&nic_fixture.fixture, "reply");
    assert_eq!((reply.wrong, reply.evicted, reply.pauses), (0, 0, 0), "{reply:?}");
}

/// Each of two preloads reports only its own flows.
///
/// Each packet thread also keeps its entries although the NIC forwards the flows.
#[tokio::test]
async fn two_preloads_count_their_own_flows() {
    const FLOWS: u16 = 100;
    let nic_fixture = NicFixture::with_predictors(2, &[], |_| ()).await;
    let ports = || 4000..4000 + FLOWS;
    let rules: Vec<String> =
        ports().map(|port| format!("in_port=1,udp,tp_src={port},actions=output:2")).collect();
    nic_fixture.add(&rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let flow =
        |port| format!("in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src={port},tp_dst=53");
    let flows: Vec<String> = ports().map(flow).collect();
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    let switch = &nic_fixture.fixture.switch;
    let ids = [(), ()].map(|()| switch.start_preload());
    for (id, flows) in ids.into_iter().zip(flows.chunks(flows.len() / 2)) {
        let announced = switch.preload(id, "br0", flows, MINUTE).unwrap();
        assert_eq!((announced.accepted, announced.threads), (50, 2));
    }
    let status = |id| switch.preload_status(id).unwrap();
    nic_fixture
        .wait_until(|| {
            ids.iter()
                .map(|id| status(*id))
                .all(|own| own.installed + own.covered == own.sent && own.nic_waiting == 0)
        })
        .await;
    for own in ids.map(status) {
        assert_eq!((own.sent, own.installed, own.nic_accepted), (100, 100, 100), "{own:?}");
    }
    // No event reports that entries stay, so the test waits.
    sleep(Duration::from_secs(1)).await;
    let entries = switch.entries(0).await.entries;
    let owned = |owner: &str| entries.iter().filter(|own| own.entry.starts_with(owner)).count();
    assert_eq!(["0.", "1.", "2."].map(owned), [100, 100, 100]);
}

#[tokio::test]
async fn announced_flows_hit_with_their_first_packets() {
    let fixture = fixture().await;
    let (client, server) = (fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await);
    fixture.switch.add_rules("br0", &["in_port=p1,udp,tp_src=7,actions=output:p2"]).await.unwrap();
    let flow = "in_port=p1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=7,tp_dst=8";
    let id = fixture.switch.start_preload();
    let count = fixture.switch.preload(id, "br0", &[flow], MINUTE).unwrap();
    assert_eq!((count.accepted, count.refused, count.threads), (1, 0, 1));
    wait_until(|| fixture.switch.forecasts().sources.iter().any(|own| own.installed == 1)).await;
    client.send(&packet([1, 2], [7, 8]));
    server.next_received().await;
    wait_until(|| source(&fixture, "preload").hits == 1).await;
    assert_eq!(fixture.switch.forecasts().upcalls, 0);
}

#[tokio::test]
async fn bad_announcements_are_refused() {
    let fixture = fixture().await;
    fixture.add_port("p1", 0).await;
    let announce = |bridge, flow| fixture.switch.announce(bridge, &[flow], MINUTE);
    assert!(matches!(announce("br9", "in_port=p1,ip"), Err(TraceError::Switch(_))));
    let message = |flow| announce("br0", flow).unwrap_err().to_string();
    assert!(
        message("in_port=p9,ip").starts_with("flow 1, `in_port=p9,ip`: bridge br0 has no port p9")
    );
    assert!(message("ip").starts_with("flow 1, `ip`: there is no ingress port"));
    assert!(message("in_port=p1,1234").starts_with("flow 1, `in_port=p1,1234`: "));
    assert!(fixture.switch.forecasts().sources.iter().all(|own| own.received == 0));
    let id = fixture.switch.start_preload() + 1;
    let unknown = fixture.switch.preload(id, "br0", &["in_port=p1,ip"], MINUTE).unwrap_err();
    assert!(unknown.to_string().contains("preload 2 is not known: start one first"), "{unknown}");
    assert!(fixture.switch.preload_status(id).is_err());
}

/// Returns the number of forecasts of announced flows with an outcome.
fn count_ended(own: &ForecastSourceStatus) -> u64 {
    let refused: u64 = own.refused.iter().map(|(_, count)| count).sum();
    own.installed + own.late + own.covered + refused
}

/// Returns flows from `p1` to that many hosts.
fn flows_to(hosts: u32) -> Vec<String> {
    let flow = |host: u32| {
        let [_, high, middle, low] = host.to_be_bytes();
        format!("in_port=p1,udp,nw_src=10.0.0.1,nw_dst=20.{high}.{middle}.{low},tp_dst=53")
    };
    (0..hosts).map(flow).collect()
}

/// The queue of announced flows is bounded, and each flow has an outcome.
#[tokio::test]
async fn announced_flows_beyond_the_queue_are_counted() {
    let fixture = fixture().await;
    let _far_end = fixture.add_port("p1", 0).await;
    let flows = flows_to(70_000);
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    let announced = fixture.switch.announce("br0", &flows, MINUTE).unwrap();
    assert_eq!((announced.accepted, announced.refused), (65_536, 4_464));
    wait_until(|| {
        known_source(&fixture, "announced")
            .is_some_and(|own| own.received >= 65_536 && own.received == count_ended(&own))
    })
    .await;
    let own = source(&fixture, "announced");
    assert!(own.refused.iter().any(|(reason, _)| *reason == "queue_full"), "{own:?}");
}

#[tokio::test]
async fn an_announced_flow_of_the_past_is_refused() {
    let fixture = fixture().await;
    let _far_end = fixture.add_port("p1", 0).await;
    let announced = fixture.switch.announce("br0", &["in_port=p1,ip"], Duration::ZERO).unwrap();
    assert_eq!(announced.accepted, 1);
    wait_until(|| {
        known_source(&fixture, "announced").is_some_and(|own| own.refused == [("expired", 1)])
    })
    .await;
}

/// Announced flows wait while their bridge is deleted.
#[tokio::test]
async fn flows_of_a_deleted_bridge_get_no_entries() {
    let fixture = fixture().await;
    let _far_end = fixture.add_port("p1", 0).await;
    let rules: Vec<String> =
        (0..200_u8).map(|host| format!("udp,nw_dst=20.0.0.{host},actions=drop")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    fixture.switch.add_rules("br0", &rules).await.unwrap();
    let flows = flows_to(20_000);
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    fixture.switch.announce("br0", &flows, MINUTE).unwrap();
    fixture.switch.remove_bridge("br0").await.unwrap();
    wait_until(|| {
        known_source(&fixture, "announced").is_some_and(|own| {
            let settled = own.hits + own.wrong + own.evicted;
            own.received >= 20_000 && own.received == count_ended(&own) && own.installed == settled
        })
    })
    .await;
    assert!(fixture.switch.entries(0).await.entries.is_empty());
    assert!(fixture.switch.announce("br0", &flows[..1], MINUTE).is_err());
}
