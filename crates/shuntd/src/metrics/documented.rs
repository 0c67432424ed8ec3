//! Tests that docs/metrics.md and the dashboard name exactly the existing metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};

use serde_json::Value;
use shunt_bfd::{BfdSession, BfdSettings};
use shunt_datapath::port::LinkMode;
use shunt_flow::PortNo;
use shunt_lacp::{LacpCounters, LacpInfo, LacpMemberStatus, MemberId, MuxState, ReceiveState};
use shunt_switch::{
    BfdPortStatus, BondMemberLacpStatus, BondMemberStatus, BondStatus, BridgePortStatus,
    BridgeStatus, CollectorSetStatus, ControllerState, ControllerStatus, DropStatus,
    FlowTableStatus, ForecastSourceStatus, ForecastStatus, IpfixStatus, MirrorStatus,
    MulticastMessages, MulticastStatus, NetflowStatus, PacketInTotals, PortCopyStatus,
    PortDropStatus, PortDrops, SflowStatus, TableEvictions, ThreadState, ThreadStatus,
    config::{BondOptions, MirrorOptions, PortVlanMode, PriorityTags, QinqEthtype},
};

use super::{tests::cache_status, *};

/// The page of the metrics.
const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"));

/// The dashboard for Grafana.
const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana.json"));

/// A metric family: type, unit, labels and help text.
type Family = (String, String, String, String);

fn lacp_member() -> LacpMemberStatus {
    LacpMemberStatus {
        member: MemberId(1),
        receive: ReceiveState::Current,
        mux: MuxState::CollectingDistributing,
        unselected: None,
        actor: LacpInfo::default(),
        partner: LacpInfo::default(),
        counters: LacpCounters::default(),
    }
}

fn bfd_session() -> BfdPortStatus {
    let now = Duration::ZERO;
    let session = BfdSession::new(BfdSettings::default(), NonZeroU32::MIN, 0, now);
    BfdPortStatus { session: session.status(now), now }
}

fn port_status() -> BridgePortStatus {
    BridgePortStatus {
        bridge: "br0".to_owned(),
        name: "p1".to_owned(),
        number: 1,
        datapath: Some(1),
        kind: "null",
        socket_mode: None,
        link: "up".to_owned(),
        problem: None,
        peer_problem: None,
        mtu_problem: None,
        user_problem: None,
        nic_problem: None,
        mac_problem: None,
        device: None,
        numa_node: None,
        link_mode: LinkMode::default(),
        driver: None,
        link_resets: 0,
        vlan_mode: PortVlanMode::Trunk,
        tag: None,
        trunks: Vec::new(),
        cvlans: Vec::new(),
        qinq_ethtype: QinqEthtype::default(),
        priority_tags: PriorityTags::default(),
        protected: false,
        mcast_snooping_flood: false,
        mcast_snooping_flood_reports: false,
        ingress_policing: BTreeMap::new(),
        qos: None,
        bfd: Some(bfd_session()),
        htb: None,
        queues: Vec::new(),
        rx_packets: 1,
        rx_bytes: 2,
        rx_dropped: 3,
        forward_dropped: 1,
        tx_packets: 4,
        tx_bytes: 5,
        tx_dropped: 6,
        copies: PortCopyStatus::default(),
        drops: Vec::new(),
        driver_counters: BTreeMap::new(),
    }
}

fn bridge_status() -> BridgeStatus {
    let member = BondMemberStatus {
        name: "p1".to_owned(),
        may_enable: true,
        enabled: true,
        active: true,
        delay_ms: None,
        lacp: Some(BondMemberLacpStatus { member: lacp_member(), refused: 0 }),
        buckets: Vec::new(),
        mac: [0; 6],
    };
    let options = BondOptions { name: "bond0".to_owned(), ..BondOptions::default() };
    let bond =
        BondStatus { options, lacp_status: None, rebalance_ms: None, member_status: vec![member] };
    let options = MirrorOptions { name: "m1".to_owned(), ..MirrorOptions::default() };
    let mirror = MirrorStatus { options, tx_packets: 12, tx_bytes: 13, problem: None };
    let controller = |target: &str, state| ControllerStatus { target: target.to_owned(), state };
    BridgeStatus {
        name: "br0".to_owned(),
        datapath_id: String::new(),
        datapath_id_problem: None,
        management_problem: None,
        fail_open: false,
        controllers: vec![
            controller("tcp:192.0.2.1", ControllerState::Connected { role: "equal" }),
            controller("tcp:192.0.2.2", ControllerState::Connecting),
            controller("ptcp:", ControllerState::Listening { port: None, problem: None }),
            controller("pssl:", ControllerState::Listening { port: None, problem: None }),
        ],
        connections: Vec::new(),
        packet_ins: PacketInTotals { delivered: 7, ..PacketInTotals::default() },
        rules: 8,
        nic: None,
        ports: vec![port_status()],
        bonds: vec![bond],
        mirrors: vec![mirror],
        multicast: Some(MulticastStatus::default()),
        sflow: Some(SflowStatus::default()),
        netflow: Some(NetflowStatus::default()),
        ipfix: Some(IpfixStatus::default()),
        collector_sets: vec![CollectorSetStatus::default()],
    }
}

fn forecast_status() -> ForecastStatus {
    let source =
        ForecastSourceStatus { source: "reply", state: "on", ..ForecastSourceStatus::default() };
    ForecastStatus {
        observed: 0,
        not_observed: 0,
        speculative: 0,
        predictors_us: 0,
        upcalls: 0,
        miss_ns: None,
        sources: vec![source],
    }
}

/// Returns metrics text in which every family has a value.
fn every_family() -> String {
    let table =
        |table| FlowTableStatus { bridge: "br0".into(), table, rules: 9, lookups: 10, matches: 11 };
    let thread = |name: &str, iterations| ThreadStatus {
        name: name.to_owned(),
        state: ThreadState::Running,
        iterations,
        cpus: None,
        numa_node: None,
        queues: Vec::new(),
    };
    let drops = PortDrops { direction: "rx", reason: "rx_refused", packets: 1 };
    let port = PortDropStatus { bridge: "br0".into(), name: "p1".into(), number: 1, drops };
    let deleted = || TableEvictions { bridge: String::new(), table: 0, evicted: 2 };
    let evictions = EvictionStatus {
        relations: vec![("entries", 1)],
        engine_bytes: Some(1),
        resident_bytes: Some(2),
        by_cause: vec![("rule", 4)],
        by_table: vec![deleted(), deleted()],
        ..EvictionStatus::default()
    };
    let drops = DropStatus {
        dropped: vec![("metered", 1)],
        not_received: vec![("rx_refused", 1)],
        ports: vec![port],
        ..DropStatus::default()
    };
    [
        threads::threads(
            &[thread("packet thread 0", Some(5)), thread("eviction thread", None)],
            &BTreeMap::from([("packet-0".to_owned(), 1_500_000_000)]),
        ),
        bridges::bridges(&[bridge_status()], &[table(0), table(1)]),
        multicast(MulticastMessages::default()),
        caches(&cache_status()),
        super::drops(&drops),
        forecast(&forecast_status()),
        evict(&evictions),
        memory(&BTreeMap::from([("anonymous", 1)])),
    ]
    .concat()
}

/// Returns the families in a metrics text, and checks that the text is valid.
///
/// The help text and the type of a family precede its values, and no series occurs twice.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut all = BTreeMap::<String, Family>::new();
    let (mut labels, mut series) = (BTreeMap::<String, BTreeSet<&str>>::new(), BTreeSet::new());
    let (mut help, mut family) = ("", "");
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("# HELP ") {
            (family, help) = heading.split_once(' ').unwrap();
            assert!(help.ends_with('.') && !help.contains(['\\', '"']), "{line}");
        } else if let Some(heading) = line.strip_prefix("# TYPE ") {
            let (name, kind) = heading.split_once(' ').unwrap();
            assert_eq!(name, family, "the help text comes first");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let own = (kind.to_owned(), unit(name).to_owned(), String::new(), help.to_owned());
            assert!(all.insert(name.to_owned(), own).is_none(), "{name} is declared twice");
        } else {
            let (own, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() && series.insert(own), "{line}");
            let (name, pairs) = own.split_once('{').unwrap_or((own, ""));
            let suffix = name.strip_prefix(family).unwrap();
            assert!(["", "_bucket", "_sum", "_count"].contains(&suffix), "{line} in {family}");
            let names = pairs.split(',').filter_map(|pair| Some(pair.split_once('=')?.0));
            let names = names.filter(|name| *name != "le");
            labels.entry(family.to_owned()).or_default().extend(names);
        }
    }
    for (name, family) in &mut all {
        let own = labels.remove(name).unwrap_or_else(|| panic!("{name} has no value"));
        family.2 = own.into_iter().collect::<Vec<_>>().join(", ");
    }
    all
}

/// Returns the unit that the name of a family ends with.
fn unit(name: &str) -> &'static str {
    let units = ["seconds", "bytes", "packets"];
    let is_in_name = |unit: &&str| name.contains(&format!("_{unit}"));
    units.into_iter().find(is_in_name).unwrap_or_default()
}

#[test]
fn the_page_lists_every_family() {
    let mut documented = BTreeMap::new();
    for row in PAGE.lines().filter(|line| line.starts_with("| `shunt_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, unit, labels, help, _] = cells[..] else { panic!("{row}") };
        let own = [kind, unit, labels, help].map(str::to_owned).into();
        assert!(documented.insert(name.trim_matches('`').to_owned(), own).is_none(), "{row}");
    }
    assert_eq!(documented, families(&every_family()));
}

#[test]
fn open_metrics_has_the_same_values() {
    let (text, open) = (every_family(), open_metrics(&every_family()));
    let values = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(values(&text), values(&open));
    assert!(open.ends_with("\n# EOF\n") && !open.contains("_total counter"));
    assert_eq!(open.matches("# TYPE ").count(), families(&text).len());
}

#[test]
fn the_number_of_the_local_port_is_local() {
    let local = BridgePortStatus { number: PortNo::LOCAL.number(), ..port_status() };
    let bridge = BridgeStatus { ports: vec![local, port_status()], ..bridge_status() };
    let text = bridges::bridges(&[bridge], &[]);
    let info = text.lines().filter(|line| line.starts_with("shunt_port_info{"));
    let number = |line: &str| {
        line.split('"').skip_while(|own| !own.ends_with("number=")).nth(1).map(str::to_owned)
    };
    let numbers: Vec<_> = info.filter_map(number).collect();
    assert_eq!(numbers, ["LOCAL", "1"], "{text}");
}

#[test]
fn a_controller_is_connected_or_not() {
    let text = bridges::bridges(&[bridge_status()], &[]);
    let line = |target: &str| {
        let labels = format!("{{bridge=\"br0\",target=\"{target}\"}}");
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("shunt_controller_connected{labels} ")))
    };
    assert_eq!(line("tcp:192.0.2.1"), Some("1"));
    assert_eq!(line("tcp:192.0.2.2"), Some("0"));
    assert_eq!([line("ptcp:"), line("pssl:")], [None, None]);
}

#[test]
fn tables_of_deleted_bridges_are_one_series() {
    let text = every_family();
    assert!(
        text.contains("\nshunt_eviction_table_evicted_total{bridge=\"\",table=\"0\"} 4\n"),
        "{text}"
    );
}

#[test]
fn a_label_is_escaped() {
    let mut text = MetricsText::default();
    text.family("shunt_x", "gauge", "X.");
    text.value(&[("a", "q\"b\\n\nend")], 1);
    assert!(text.into_text().ends_with("shunt_x{a=\"q\\\"b\\\\n\\nend\"} 1\n"));
}

/// Returns all values of a key in a JSON value, at any depth.
fn values_of<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get(key));
            map.values().for_each(|inner| values_of(inner, key, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| values_of(inner, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_names_existing_families() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    values_of(&dashboard, "expr", &mut found);
    assert!(found.len() > 20, "{} expressions", found.len());
    let families = families(&every_family());
    for expression in found {
        let expression = expression.as_str().unwrap();
        let is_word = |own: char| own.is_ascii_alphanumeric() || own == '_';
        let names = expression.split(|own| !is_word(own)).filter(|name| name.starts_with("shunt_"));
        let mut count = 0;
        for name in names {
            count += 1;
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(families.contains_key(name), "{name} in {expression}");
        }
        assert!(count > 0, "{expression}");
    }
}
