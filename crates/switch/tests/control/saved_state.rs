//! A saved state restores bridges, ports, settings, rules, groups and meters.

use shunt_pipeline::{
    GroupCommand, MeterCommand, Modification,
    text::{parse_group_mod, parse_meter_mod, parse_saved_rule},
};
use shunt_switch::{Config, SavedCount, SavedMac, SavedMulticast, SavedState, Switch, config};

fn null(name: &str, number: u32) -> config::PortOptions {
    let kind = config::PortType::Null;
    config::PortOptions { name: name.into(), number, kind, ..Default::default() }
}

/// Returns a switch with two bridges and with objects of every kind.
async fn switch_with_state() -> Switch {
    let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
    for name in ["br0", "br1"] {
        let bridge = config::BridgeOptions { name: name.into(), ..Default::default() };
        switch.add_bridge(&bridge).await.unwrap();
    }
    switch.add_port("br0", null("p1", 7)).await.unwrap();
    switch.add_port("br1", null("q1", 0)).await.unwrap();
    switch.set(&[("caches.idle_ms", "7000")]).await.unwrap();
    let ports = shunt_flow::text::NoPortNames;
    let group =
        |text: &str| Modification::Group(parse_group_mod(GroupCommand::Add, text, &ports).unwrap());
    let meter = parse_meter_mod(MeterCommand::Add, "meter=3,kbps,bands=type=drop,rate=1000");
    let mods = vec![
        Modification::Meter(meter.unwrap()),
        // The first group has a smaller number than the group that it names.
        group("group_id=9,type=all,bucket=output:7"),
        group("group_id=2,type=ff,bucket=watch_port:7,actions=group:9"),
    ];
    switch.modify("br0", mods).await.unwrap();
    let rules = [
        "table=0,priority=5,ip,nw_dst=10.0.0.0/8,actions=meter:3,group:2",
        "table=1,cookie=0x12,idle_timeout=30,hard_timeout=600,importance=4,send_flow_rem,tcp,\
         tp_dst=0x50/0xfff0,actions=set_field:02:00:00:00:00:01->eth_dst,goto_table:2",
        "table=2,priority=0,actions=learn(table=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
         output:NXM_OF_IN_PORT[]),output:7",
    ];
    switch.add_rules("br0", &rules).await.unwrap();
    switch.add_rules("br1", &["priority=1,actions=NORMAL"]).await.unwrap();
    switch
}

/// An earlier version accepted these values, and saved them.
#[tokio::test]
async fn saved_values_that_are_refused_now_are_restored() {
    let mut saved = switch_with_state().await.save();
    let bridge = &mut saved.config.bridges[0];
    bridge.datapath_id = "0".repeat(16);
    bridge.controllers = ["tcp:127.0.0.1:0", "tcp:127.0.0.1:1"].map(String::from).into();
    let kind = config::PortType::AfPacket;
    let device = "a-name-of-22-bytes-abc".to_owned();
    bridge.ports.push(config::PortOptions { kind, device: device.clone(), ..null("x1", 0) });
    let switch = Switch::start(&Config::default(), None, 2).await.unwrap();
    let remarks = switch.restore(&saved).await.unwrap().remarks;
    let has_remark = |about: &str| remarks.iter().any(|remark| remark.contains(about));
    assert!(has_remark("datapath id 0") && has_remark("tcp:127.0.0.1:0"), "{remarks:?}");
    let restored = switch.save().config.bridges.swap_remove(0);
    assert_eq!((restored.datapath_id.as_str(), restored.controllers.len()), ("", 1));
    assert!(restored.ports.iter().any(|own| own.name == "p1"), "{restored:?}");
    let port = config::PortOptions { kind, device, ..null("x2", 0) };
    let refused = switch.add_port("br0", port).await.unwrap_err().to_string();
    assert!(refused.contains("a-name-of-22-bytes-abc"), "{refused}");
}

/// An earlier version accepted any MTU of an AF_XDP port, and saved it.
#[tokio::test]
async fn a_saved_mtu_beyond_the_limit_is_restored() {
    let kind = config::PortType::AfXdp;
    let port = config::PortOptions { kind, mtu: 9300, ..null("x1", 0) };
    let mut saved = switch_with_state().await.save();
    saved.config.bridges[0].ports.push(port.clone());
    let switch = Switch::start(&Config::default(), None, 2).await.unwrap();
    switch.restore(&saved).await.unwrap();
    let restored = switch.save().config.bridges.swap_remove(0).ports;
    assert!(restored.iter().any(|own| own.name == "x1" && own.mtu == 9300), "{restored:?}");
    // The other settings of the port can change.
    let tagged = config::PortOptions { tag: Some(5), ..port.clone() };
    switch.set_vlans(&tagged).await.unwrap();
    let new = config::PortOptions { name: "x2".into(), ..port };
    let error = switch.add_port("br0", new).await.unwrap_err();
    assert!(error.to_string().starts_with("mtu = 9300: it must be 68 to 9216"), "{error}");
}

#[tokio::test]
async fn a_new_switch_becomes_the_saved_one() {
    let saved = switch_with_state().await.save();
    let text = serde_json::to_string(&saved).unwrap();
    let read: SavedState = serde_json::from_str(&text).unwrap();
    assert_eq!(read, saved);
    assert_eq!(saved.tables[0].rules.len(), 3);
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = other.restore(&read).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    assert_eq!(other.save(), saved);
    assert_eq!(other.config().caches.idle_ms, 7000);
}

/// The counters of rules, groups and meters are restored, and MAC addresses.
#[tokio::test]
async fn counts_and_macs_are_restored() {
    let switch = switch_with_state().await;
    let mut saved = switch.save();
    assert!(saved.tables[0].counts.is_empty(), "nothing was hit");
    let [rules, groups, meters] =
        [&saved.tables[0].rules[0], &saved.tables[0].groups[0], &saved.tables[0].meters[0]];
    let counts = [
        (rules.clone(), vec![SavedCount(3, 180)]),
        (groups.clone(), vec![SavedCount(2, 120), SavedCount(1, 60)]),
        (meters.clone(), vec![SavedCount(5, 300), SavedCount(4, 240)]),
    ];
    saved.tables[0].counts = counts.into();
    let learned = SavedMac { vlan: 0, mac: [2, 0, 0, 0, 0, 7], port: 1, is_static: false };
    let fixed = SavedMac { mac: [2, 0, 0, 0, 0, 8], is_static: true, ..learned };
    saved.tables[1].macs = vec![learned, fixed];
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = other.restore(&saved).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    assert_eq!(other.save(), saved);
    assert_eq!(other.mac_table(&saved.tables[1].bridge).unwrap().statics, 1);
    // A state of format 1 has neither counters nor MAC addresses.
    let mut old = serde_json::to_value(switch.save()).unwrap();
    old["format"] = 1.into();
    let old: SavedState = serde_json::from_value(old).unwrap();
    assert_eq!(other.restore(&old).await.unwrap().refused, [""; 0]);
    assert!(other.save().tables[0].counts.is_empty());
}

/// A client of OpenFlow 1.0 adds such rules, and later versions refuse them.
#[tokio::test]
async fn rules_of_openflow_10_are_restored() {
    let switch = switch_with_state().await;
    let rules = [
        "udp,actions=pop_vlan",
        "arp,actions=mod_tp_dst:5,output:7",
        "ipv6,actions=mod_nw_src:1.2.3.4,dec_mpls_ttl",
        "actions=set_field:7->dl_vlan,set_field:3->dl_vlan_pcp,pop_vlan,output:7",
    ];
    let mods = rules.map(|text| Modification::Flow(parse_saved_rule(text).unwrap()));
    switch.modify("br0", mods.into()).await.unwrap();
    let saved = switch.save();
    assert_eq!(saved.tables[0].rules.len(), 7);
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    assert_eq!(other.restore(&saved).await.unwrap().refused, [""; 0]);
    assert_eq!(other.save(), saved);
}

#[tokio::test]
async fn multicast_groups_and_routers_are_restored() {
    let switch = switch_with_state().await;
    switch.add_port("br1", null("q2", 0)).await.unwrap();
    switch.set_bridge("br1", &[("mcast_snooping_enable", "true")]).await.unwrap();
    let mut saved = switch.save();
    let entry = |group: Option<&str>, port| {
        let group = group.map(|text| text.parse().unwrap());
        SavedMulticast { vlan: 0, group, port }
    };
    saved.tables[1].multicast =
        vec![entry(Some("239.1.1.1"), 1), entry(Some("ff05::7"), 1), entry(None, 2)];
    let text = serde_json::to_string(&saved).unwrap();
    let read: SavedState = serde_json::from_str(&text).unwrap();
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    assert_eq!(other.restore(&read).await.unwrap().refused, [""; 0]);
    assert_eq!(other.save(), saved);
}

#[tokio::test]
async fn restore_replaces_the_tables_and_keeps_other_ports() {
    let switch = switch_with_state().await;
    let saved = switch.save();
    switch.add_rules("br0", &["table=9,actions=drop"]).await.unwrap();
    switch.add_port("br0", null("p2", 0)).await.unwrap();
    switch.remove_bridge("br1").await.unwrap();
    let report = switch.restore(&saved).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    assert_eq!(switch.save().tables, saved.tables);
    let names = |switch: &Switch| -> Vec<String> {
        let bridges = switch.bridges();
        bridges.iter().flat_map(|bridge| &bridge.ports).map(|port| port.name.clone()).collect()
    };
    assert!(names(&switch).contains(&"p2".to_owned()));
    assert!(names(&switch).contains(&"q1".to_owned()), "the bridge is back with its port");
}

#[tokio::test]
async fn a_state_that_is_not_valid_changes_nothing() {
    let switch = switch_with_state().await;
    let before = switch.save();
    let mut later = before.clone();
    later.format = 6;
    let error = switch.restore(&later).await.unwrap_err().to_string();
    assert!(error.contains("has format 6, and this version reads formats up to 5"), "{error}");
    assert_eq!(switch.save(), before);
}

/// A text that an operator has edited may be wrong.
#[tokio::test]
async fn a_wrong_rule_does_not_prevent_the_others() {
    let saved = switch_with_state().await.save();
    let mut wrong = saved.clone();
    wrong.tables[0].rules.insert(1, "actions=ouptut:1".into());
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = other.restore(&wrong).await.unwrap();
    let refused = "bridge br0: rule `actions=ouptut:1`: unknown action or port `ouptut`: is \
                   `output` meant?";
    assert_eq!(report.refused, [refused]);
    assert_eq!(other.save(), saved);
}

/// The NIC of the saved switch is in front of the same bridge again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_switch_gets_the_saved_nic() {
    let mut config = Config::default();
    config.caches.gigaflow.offload.kind = config::OffloadKind::Embedded;
    config.bridges = vec![config::BridgeOptions {
        name: "br0".into(),
        ports: vec![null("p1", 7)],
        ..Default::default()
    }];
    let switch = Switch::start(&config, None, 1).await.unwrap();
    switch.add_rules("br0", &["actions=output:7"]).await.unwrap();
    let saved = switch.save();
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = other.restore(&saved).await.unwrap();
    assert_eq!(report.refused, [""; 0]);
    assert_eq!(other.save(), saved);
    let nic = other.bridges().remove(0).nic.unwrap();
    assert_eq!(nic.bridge, "br0");
}

/// A refused rule does not prevent the restoration of the other rules.
#[tokio::test]
async fn a_refused_object_does_not_cost_the_others() {
    let switch = switch_with_state().await;
    let mut saved = switch.save();
    saved.config.bridges[0].table_rules = 1;
    let more = ["priority=7,actions=drop", "table=4,actions=drop"];
    saved.tables[0].rules.extend(more.map(str::to_owned));
    saved.tables[0].groups.push("group_id=11,type=indirect,bucket=group:12".into());
    let other = Switch::start(&Config::default(), None, 2).await.unwrap();
    let report = other.restore(&saved).await.unwrap();
    let [group, rule] = report.refused.as_slice() else { panic!("{report:?}") };
    assert!(group.starts_with("bridge br0: group `group_id=11,"), "{group}");
    assert!(rule.starts_with("bridge br0: rule `priority=7,actions=drop`: "), "{rule}");
    assert_eq!(other.save().tables[0].rules.len(), 4);
    assert_eq!(other.save().tables[1], saved.tables[1]);
}

/// The report has a line for each rule over the limit, in the order of the state.
#[tokio::test]
async fn the_report_names_each_refused_rule() {
    let switch = switch_with_state().await;
    let mut saved = switch.save();
    saved.config.bridges[1].table_rules = 10;
    let rules = (0..2000).map(|priority| format!("priority={priority},actions=drop"));
    saved.tables[1].rules = rules.collect();
    let other = Switch::start(&Config::default(), None, 1).await.unwrap();
    let report = other.restore(&saved).await.unwrap();
    assert_eq!(report.refused.len(), 1990);
    let over_limit = saved.tables[1].rules.iter().skip(10);
    for (line, rule) in report.refused.iter().zip(over_limit) {
        assert!(line.starts_with(&format!("bridge br1: rule `{rule}`: ")), "{line}");
    }
    assert_eq!(other.save().tables[1].rules.len(), 10);
    assert_eq!(other.save().tables[0], saved.tables[0]);
}
