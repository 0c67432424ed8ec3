//! Desired states that are applied to a running switch, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shunt_switch::{
    ApplyPolicy, ApplyReport, Config, DeclaredBridge, DeclaredPort, DesiredState, ObjectId,
    ObjectOutcome, Switch,
    config::{
        BondOptions, BridgeOptions, MirrorOptions, PortOptions, PortType, QosOptions, QosType,
    },
};

/// Returns a port that needs no device.
fn port(name: &str) -> PortOptions {
    PortOptions { name: name.to_owned(), kind: PortType::Null, ..PortOptions::default() }
}

fn bridge(name: &str, ports: Vec<PortOptions>) -> BridgeOptions {
    BridgeOptions { name: name.to_owned(), ports, ..BridgeOptions::default() }
}

fn state(bridges: &[BridgeOptions]) -> DesiredState {
    DesiredState { settings: None, bridges: bridges.iter().map(DeclaredBridge::of).collect() }
}

/// Returns a port, and the place of its bridge; `None` if the state lacks the port.
fn any_port(index: u32) -> impl Strategy<Value = Option<(usize, PortOptions)>> {
    // Numbers of different ports never conflict.
    let number = prop_oneof![Just(0), Just(100 + index), Just(200 + index)];
    let options = (number, prop::option::of(1..4_u16), 0..2_u32, any::<bool>());
    prop::option::weighted(0.7, (0..3_usize, options)).prop_map(move |own| {
        let (place, (number, tag, policing, has_qos)) = own?;
        let limit = QosOptions { cir: 1000, cbs: 100, ..QosOptions::new(QosType::EgressPolicer) };
        let options = PortOptions {
            number,
            tag,
            ingress_policing_rate: policing * 800,
            qos: has_qos.then_some(limit),
            ..port(&format!("p{index}"))
        };
        Some((place, options))
    })
}

/// Returns a bridge without ports; `None` if the state lacks the bridge.
fn any_bridge(index: usize) -> impl Strategy<Value = Option<BridgeOptions>> {
    let own = (0..3_u32, 0..2_usize, prop::option::of(1..3_u16), prop::option::of(0..2_u16));
    prop::option::weighted(0.8, own).prop_map(move |own| {
        let (mac_ageing, table_rules, vlan, mirror) = own?;
        let mirror = mirror.map(|kind| MirrorOptions {
            name: format!("m{kind}"),
            select_all: true,
            output_vlan: 7 + kind,
            ..MirrorOptions::default()
        });
        Some(BridgeOptions {
            mac_ageing_s: mac_ageing * 60,
            table_rules: table_rules * 1000,
            flood_vlans: vlan.into_iter().collect(),
            mirrors: mirror.into_iter().collect(),
            ..bridge(&format!("br{index}"), Vec::new())
        })
    })
}

/// Returns a state of up to three bridges, and up to five ports on them.
fn any_state() -> impl Strategy<Value = DesiredState> {
    let bridges = (any_bridge(0), any_bridge(1), any_bridge(2)).prop_map(<[_; 3]>::from);
    let ports = (0..5).map(any_port).collect::<Vec<_>>();
    (bridges, ports, any::<bool>(), 0..2_u64).prop_map(|(mut bridges, ports, has_bonds, idle)| {
        for (place, port) in ports.into_iter().flatten() {
            if let Some(bridge) = &mut bridges[place] {
                bridge.ports.push(port);
            }
        }
        for bridge in bridges.iter_mut().flatten().filter(|_| has_bonds) {
            let name = format!("bond-{}", bridge.name);
            if let [one, two, ..] = bridge.ports.as_mut_slice() {
                // A member has the VLANs of its bond.
                (one.tag, two.tag) = (None, None);
                let members = vec![one.name.clone(), two.name.clone()];
                bridge.bonds = vec![BondOptions { name, members, ..BondOptions::default() }];
            }
        }
        let mut config = Config::default();
        config.caches.idle_ms += idle;
        config.bridges = bridges.into_iter().flatten().collect();
        DesiredState::of(&config)
    })
}

/// Returns the configuration in force, with the numbers that `desired` requests.
fn in_force(switch: &Switch, desired: &DesiredState) -> Config {
    let mut config = switch.running_config();
    for bridge in &mut config.bridges {
        let wanted = desired.bridge(&bridge.name);
        for port in &mut bridge.ports {
            let own = wanted.and_then(|own| own.port(&port.name));
            if own.is_none_or(|own| own.options.number == 0) {
                port.number = 0;
            }
        }
        bridge.ports.sort_by(|one, two| one.name.cmp(&two.name));
    }
    config
}

/// Returns the ports of the datapath, by name.
///
/// A port that is removed and added gets another one.
fn datapath_ports(switch: &Switch) -> BTreeMap<String, Option<u32>> {
    let ports = switch.bridges().into_iter().flat_map(|bridge| bridge.ports);
    ports.map(|port| (port.name, port.datapath)).collect()
}

/// Returns the bridges and ports that are equal in both states.
fn equal_objects(one: &DesiredState, two: &DesiredState) -> BTreeSet<ObjectId> {
    let mut equal = BTreeSet::new();
    for bridge in &one.bridges {
        let name = &bridge.options.name;
        let Some(other) = two.bridge(name) else { continue };
        if bridge.options == other.options {
            equal.insert(ObjectId::Bridge(name.clone()));
        }
        for port in &bridge.ports {
            let name = &port.options.name;
            if other.port(name).is_some_and(|own| own.options == port.options) {
                equal.insert(ObjectId::Port(name.clone()));
            }
        }
    }
    equal
}

async fn start() -> Switch {
    Switch::start(&Config::default(), None, 1).await.unwrap()
}

/// Checks that a report lacks equal objects, and that their ports stay open.
///
/// `before` and `after` are the ports of the datapath.
fn check_untouched(
    equal: &BTreeSet<ObjectId>,
    report: &ApplyReport,
    before: &BTreeMap<String, Option<u32>>,
    after: &BTreeMap<String, Option<u32>>,
) {
    for own in &report.objects {
        assert!(!equal.contains(&own.object), "{own:?} is equal in both states");
    }
    for object in equal {
        if let ObjectId::Port(name) = object {
            assert_eq!(after.get(name), before.get(name), "port {name} stays open");
        }
    }
}

async fn check_two_states(one: &DesiredState, two: &DesiredState) {
    let (switch, fresh) = (start().await, start().await);
    assert_eq!(switch.apply(one).await.refused().count(), 0);
    let ports = datapath_ports(&switch);
    let report = switch.apply(two).await;
    assert_eq!(report.refused().count(), 0, "{report:?}");
    check_untouched(&equal_objects(one, two), &report, &ports, &datapath_ports(&switch));
    fresh.apply(two).await;
    assert_eq!(in_force(&switch, two), in_force(&fresh, two));
    let again = switch.apply(two).await;
    assert!(again.is_empty(), "{again:?}");
}

/// Objects of a state that are refused, or that replace refused ones.
#[derive(Clone, Debug)]
struct WrongObjects {
    /// A port with a key that its type does not have.
    has_peer: bool,
    /// A port with the name of a port of another owner.
    has_taken_port: bool,
    /// A bridge with the name of a bridge of another owner.
    has_taken_bridge: bool,
    /// A port with a VLAN, which may be [`WRONG_VLAN`].
    vlan: Option<u16>,
    /// A port of which the device does not exist. The port is added, and stays down.
    has_no_device: bool,
}

/// A VLAN that no port can have.
const WRONG_VLAN: u16 = 5000;

/// The bridge of the other owner.
const OTHER_BRIDGE: &str = "br9";

fn any_wrong() -> impl Strategy<Value = WrongObjects> {
    let vlan = prop::option::of(prop_oneof![Just(2), Just(3), Just(WRONG_VLAN)]);
    (any::<[bool; 4]>(), vlan).prop_map(|(has, vlan)| {
        let [has_peer, has_taken_port, has_taken_bridge, has_no_device] = has;
        WrongObjects { has_peer, has_taken_port, has_taken_bridge, vlan, has_no_device }
    })
}

impl WrongObjects {
    /// Adds the objects to a state.
    ///
    /// Ports are on its first bridge. With `is_right`, the ports have other values.
    fn add_to(&self, state: &DesiredState, is_right: bool) -> DesiredState {
        let mut state = state.clone();
        if let Some(first) = state.bridges.first_mut() {
            let peer = if is_right { "" } else { "p9" };
            let vlan = |vlan| if is_right { 4 } else { vlan };
            let ports = [
                self.has_peer.then(|| PortOptions { peer: peer.to_owned(), ..port("w-peer") }),
                self.has_taken_port.then(|| port("q")),
                self.vlan.map(|tag| PortOptions { tag: Some(vlan(tag)), ..port("w-vlan") }),
                self.device_port(),
            ];
            first.ports.extend(ports.into_iter().flatten().map(DeclaredPort::of));
        }
        if self.has_taken_bridge {
            state.bridges.push(DeclaredBridge::of(&bridge(OTHER_BRIDGE, vec![port("x")])));
        }
        state
    }

    /// Returns the state that is in force after `state` with these objects.
    ///
    /// `before` was in force before. A port with a wrong VLAN keeps its old one.
    fn in_force(&self, state: &DesiredState, before: &DesiredState) -> DesiredState {
        let mut state = state.clone();
        if let Some(first) = state.bridges.first_mut() {
            let old = before.bridge(&first.options.name).and_then(|own| own.port("w-vlan"));
            let tagged = |tag| DeclaredPort::of(PortOptions { tag, ..port("w-vlan") });
            let vlan = match self.vlan {
                Some(WRONG_VLAN) => old.cloned(),
                Some(_) => Some(tagged(self.vlan)),
                None => None,
            };
            first.ports.extend(vlan);
            first.ports.extend(self.device_port().map(DeclaredPort::of));
        }
        state
    }

    fn device_port(&self) -> Option<PortOptions> {
        let device = "no-such-dev".to_owned();
        let kind = PortType::AfPacket;
        self.has_no_device.then(|| PortOptions { kind, device, ..port("w-device") })
    }

    /// Returns the objects that are refused.
    fn refused_objects(&self, state: &DesiredState) -> BTreeSet<ObjectId> {
        let has_bridge = !state.bridges.is_empty();
        let ports = [
            (self.has_peer, "w-peer"),
            (self.has_taken_port, "q"),
            (self.vlan == Some(WRONG_VLAN), "w-vlan"),
        ];
        let ports = ports.into_iter().filter(|(is_wrong, _)| *is_wrong && has_bridge);
        let bridge = self.has_taken_bridge.then(|| ObjectId::Bridge(OTHER_BRIDGE.to_owned()));
        ports.map(|(_, name)| ObjectId::Port(name.to_owned())).chain(bridge).collect()
    }
}

/// Returns a state as a configuration, in the order of names.
fn in_order(state: &DesiredState) -> Config {
    let mut config = state.config();
    config.bridges.sort_by(|one, two| one.name.cmp(&two.name));
    for bridge in &mut config.bridges {
        bridge.ports.sort_by(|one, two| one.name.cmp(&two.name));
    }
    config
}

/// Checks that the switch has a state, as a new switch would.
async fn check_in_force(switch: &Switch, expected: &DesiredState) {
    let fresh = start().await;
    fresh.apply(expected).await;
    let mut config = in_force(switch, expected);
    config.bridges.retain(|own| expected.bridge(&own.name).is_some() || own.name != OTHER_BRIDGE);
    assert_eq!(config, in_force(&fresh, expected));
}

async fn check_refusals(states: &[DesiredState; 2], wrong: &[WrongObjects; 2]) {
    let (switch, policy) = (start().await, ApplyPolicy::Continuous);
    switch.add_bridge(&bridge(OTHER_BRIDGE, vec![port("q")])).await.unwrap();
    let mut base = DesiredState::default();
    for (state, wrong) in states.iter().zip(wrong) {
        let (desired, expected) = (wrong.add_to(state, false), wrong.in_force(state, &base));
        let ports = datapath_ports(&switch);
        let report = switch.apply_difference(&base, &desired, policy, &mut |_| ()).await;
        let refused: Vec<_> = report.refused().map(|(own, _)| own.object.clone()).collect();
        assert_eq!(refused.len(), wrong.refused_objects(state).len(), "{report:?}");
        assert_eq!(BTreeSet::from_iter(refused), wrong.refused_objects(state), "{report:?}");
        let equal = equal_objects(&base, &desired);
        check_untouched(&equal, &report, &ports, &datapath_ports(&switch));
        base = report.in_force(&base, &desired);
        assert_eq!(in_order(&base), in_order(&expected), "{report:?}");
        check_in_force(&switch, &expected).await;
        // Only the refused changes are tried again.
        let again = switch.apply_difference(&base, &desired, policy, &mut |_| ()).await;
        let tried: BTreeSet<_> = again.objects.iter().map(|own| own.object.clone()).collect();
        assert_eq!(tried, wrong.refused_objects(state), "{again:?}");
    }
    switch.remove_bridge(OTHER_BRIDGE).await.unwrap();
    let right = wrong[1].add_to(&states[1], true);
    let report = switch.apply_difference(&base, &right, policy, &mut |_| ()).await;
    assert_eq!(report.refused().count(), 0, "{report:?}");
    check_in_force(&switch, &right).await;
}

/// Runs a check in a new runtime.
fn block_on(check: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(check);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The second state has the effect that it has in a new switch.
    ///
    /// The change touches no object that is equal in both states.
    #[test]
    fn the_last_state_alone_counts(one in any_state(), two in any_state()) {
        block_on(check_two_states(&one, &two));
    }

    /// A wrong object is refused by itself, and a later right one is added.
    #[test]
    fn wrong_objects_are_refused_alone(
        states in [any_state(), any_state()],
        wrong in [any_wrong(), any_wrong()],
    ) {
        let states = states.map(|state| DesiredState { settings: None, ..state });
        block_on(check_refusals(&states, &wrong));
    }
}

#[tokio::test]
async fn a_refused_object_is_reported_by_itself() {
    let switch = start().await;
    let wrong = PortOptions { peer: "p9".to_owned(), ..port("p1") };
    let limits = vec!["0:x".to_owned()];
    let desired = state(&[BridgeOptions {
        table_limits: limits,
        table_rules: 7,
        ..bridge("br0", vec![wrong, port("p2")])
    }]);
    // The bridge exists before, so that its settings change.
    switch.apply(&state(&[bridge("br0", Vec::new())])).await;
    let report = switch.apply(&desired).await;
    let refused: Vec<_> = report.refused().map(|(own, _)| own.object.clone()).collect();
    let bridge = ObjectId::Bridge("br0".to_owned());
    assert_eq!(refused, [bridge.clone(), ObjectId::Port("p1".to_owned())]);
    let added = report.objects.iter().filter(|own| own.outcome == ObjectOutcome::Added);
    assert_eq!(added.map(|own| own.change.as_str()).collect::<Vec<_>>(), ["port p2: added to br0"]);
    assert_eq!(switch.bridge_options("br0").unwrap().table_rules, 7, "the other setting is set");
    // The report gives the state from which the next call retries the refused changes.
    let before = state(&[self::bridge("br0", Vec::new())]);
    let base = report.in_force(&before, &desired);
    assert!(base.bridge("br0").unwrap().port("p1").is_none());
    let again = switch.apply_difference(&base, &desired, ApplyPolicy::Once, &mut |_| ()).await;
    let tried: Vec<_> = again.objects.iter().map(|own| own.object.clone()).collect();
    assert_eq!(tried, [bridge, ObjectId::Port("p1".to_owned())]);
}

/// The first bridge of a name is applied, with its own ports only.
#[tokio::test]
async fn a_repeated_bridge_is_refused_by_name() {
    let (switch, none) = (start().await, DesiredState::default());
    let first = BridgeOptions { table_rules: 7, ..bridge("br0", vec![port("p")]) };
    let desired =
        state(&[first.clone(), bridge("br1", Vec::new()), bridge("br0", vec![port("q")])]);
    let expected = state(&[first, bridge("br1", Vec::new())]);
    let policy = ApplyPolicy::Continuous;
    for base in [&none, &expected] {
        let report = switch.apply_difference(base, &desired, policy, &mut |_| ()).await;
        let refused: Vec<_> = report.refused().collect();
        let [(own, reason)] = refused.as_slice() else { panic!("{report:?}") };
        assert_eq!(own.object, ObjectId::Bridge("br0".to_owned()));
        assert!(reason.starts_with("the state has another bridge br0: "), "{reason}");
        assert_eq!(report.in_force(base, &desired), expected);
        check_in_force(&switch, &expected).await;
    }
    assert_eq!(switch.bridge_options("br0").unwrap().table_rules, 7);
}

/// The switch refuses the port for the second bridge.
///
/// The options of the port change, and it can be removed.
#[tokio::test]
async fn port_of_two_bridges_is_in_first() {
    let (switch, policy) = (start().await, ApplyPolicy::Continuous);
    let mut base = DesiredState::default();
    for tag in [None, Some(7), Some(8)] {
        let ports = || vec![PortOptions { tag, ..port("p") }];
        let desired = state(&[bridge("br0", ports()), bridge("br1", ports())]);
        let expected = state(&[bridge("br0", ports()), bridge("br1", Vec::new())]);
        let report = switch.apply_difference(&base, &desired, policy, &mut |_| ()).await;
        let refused: Vec<_> = report.refused().collect();
        let [(own, reason)] = refused.as_slice() else { panic!("{report:?}") };
        assert_eq!(own.object, ObjectId::Port("p".to_owned()));
        assert!(reason.starts_with("port p exists already, on bridge br0"), "{reason}");
        base = report.in_force(&base, &desired);
        assert_eq!(base, expected);
        check_in_force(&switch, &expected).await;
    }
    let without = state(&[bridge("br0", Vec::new()), bridge("br1", Vec::new())]);
    switch.apply_difference(&base, &without, policy, &mut |_| ()).await;
    check_in_force(&switch, &without).await;
}

/// Objects that only another owner has declared are not in the compared states.
#[tokio::test]
async fn a_difference_leaves_other_objects() {
    let switch = start().await;
    switch.add_bridge(&bridge("br9", vec![port("q")])).await.unwrap();
    let (none, own) = (DesiredState::default(), state(&[bridge("br0", vec![port("p")])]));
    let mut filled = Vec::new();
    let mut fill = |name: &str| filled.push(name.to_owned());
    switch.apply_difference(&none, &own, ApplyPolicy::Continuous, &mut fill).await;
    switch.apply_difference(&own, &none, ApplyPolicy::Continuous, &mut fill).await;
    assert_eq!(filled, ["br0"]);
    let config = switch.running_config();
    let names: Vec<_> = config.bridges.iter().map(|own| own.name.as_str()).collect();
    assert_eq!(names, ["br9"]);
}

/// Otherwise the next difference of this owner could remove it.
#[tokio::test]
async fn a_bridge_of_another_owner_is_refused() {
    let switch = start().await;
    let other = bridge("br0", vec![port("p")]);
    switch.add_bridge(&other).await.unwrap();
    let (none, own) = (DesiredState::default(), state(&[other]));
    let policy = ApplyPolicy::Continuous;
    let report = switch.apply_difference(&none, &own, policy, &mut |_| ()).await;
    let refused: Vec<_> = report.refused().map(|(own, _)| own.object.clone()).collect();
    assert_eq!(refused, [ObjectId::Bridge("br0".to_owned())]);
    assert_eq!(report.in_force(&none, &own), none);
}

/// A change of some ports must not add a bridge without its other ports.
///
/// Another caller may remove the bridge after the comparison, and before the changes.
#[tokio::test]
async fn a_comparison_before_another_change_is_refused() {
    let (switch, policy) = (start().await, ApplyPolicy::Continuous);
    let whole = state(&[bridge("br0", vec![port("p"), port("q")])]);
    let part = state(&[bridge("br0", vec![port("p")])]);
    let tagged = state(&[bridge("br0", vec![PortOptions { tag: Some(7), ..port("p") }])]);
    let none = DesiredState::default();
    let report = switch.apply_difference(&none, &whole, policy, &mut |_| ()).await;
    let present = switch.present_state(&part);
    assert_eq!(present.ports_revision, report.ports_revision, "no other caller so far");
    switch.remove_bridge("br0").await.unwrap();
    let refused = switch.apply_to_present(&present, &tagged, policy, &mut |_| ()).await;
    assert_eq!(refused, None);
    assert!(switch.running_config().bridges.is_empty(), "nothing has changed");
    let present = switch.present_state(&whole);
    assert_eq!(present.missing, [ObjectId::Bridge("br0".to_owned())]);
    let report = switch.apply_to_present(&present, &whole, policy, &mut |_| ()).await.unwrap();
    assert_eq!(report.refused().count(), 0, "{report:?}");
    let ports = switch.running_config().bridges.remove(0).ports;
    assert_eq!(ports.iter().map(|own| own.name.as_str()).collect::<Vec<_>>(), ["p", "q"]);
}

/// A requested number has precedence over the number that another port had before.
#[tokio::test]
async fn order_of_names_changes_no_numbers() {
    let switch = start().await;
    let mut desired =
        state(&[bridge("br0", vec![port("a"), port("b"), PortOptions { number: 5, ..port("c") }])]);
    desired.bridges[0].ports[0].last_number = 5;
    desired.bridges[0].ports[1].last_number = 9;
    assert_eq!(switch.apply(&desired).await.refused().count(), 0);
    let ports = switch.running_config().bridges.remove(0).ports;
    let numbers: Vec<_> = ports.iter().map(|own| (own.name.as_str(), own.number)).collect();
    assert_eq!(numbers, [("a", 1), ("c", 5), ("b", 9)]);
}
