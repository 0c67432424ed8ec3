//! Tests of rules that packets learn (`learn`).

use std::time::Duration;

use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowMask, PortNo};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, BundleAction, BundleAlgorithm, Change, Cookie, FlowMod,
    FlowModCommand, GroupKind, HashFields, LearnAction, LearnSource, LearnSpec, LearnTarget,
    Learning, PortInfo, PortKind, RuleFilter, Subfield, TableId, Time, Traversal,
};

use crate::{
    build::{add_group, bucket, delete_group, group, output},
    switch::{BRIDGE, Switch, request},
};

/// Returns a `learn` action, modified by `change`.
///
/// The unmodified action is `learn(table=1,priority=7,cookie=5,eth_src=eth_dst,output:in_port)`.
pub(crate) fn learn(change: impl FnOnce(&mut LearnAction)) -> Action {
    let field = |field| LearnSource::Field(Subfield::whole(field));
    let matched = LearnSpec {
        source: field(FieldId::EthDst),
        target: LearnTarget::Match(Subfield::whole(FieldId::EthSrc)),
        width: 48,
    };
    let output =
        LearnSpec { source: field(FieldId::InPort), target: LearnTarget::Output, width: 32 };
    let mut action = LearnAction {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: Priority::new(7),
        cookie: Cookie::new(5),
        table: TableId::new(1).expect("a table"),
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Box::new([matched, output]),
    };
    change(&mut action);
    Action::Learn(Box::new(action))
}

/// Returns the rule of a text, with `actions` before its own actions.
fn rule(text: &str, actions: &[Action]) -> FlowMod {
    let mut request = request(FlowModCommand::Add, text);
    request.instructions.apply = [actions, &request.instructions.apply].concat().into();
    request
}

fn at(seconds: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(seconds))
}

impl Switch {
    fn apply(&self, mods: &[FlowMod]) -> Change {
        self.pipeline.apply(BRIDGE, mods, Time::ZERO).expect("the rules are legal")
    }

    /// Translates a packet, and applies its learn requests.
    fn receive(&self, packet: &str, now: Time) -> Traversal {
        let traversal = self.translate(packet);
        self.pipeline.learn(&traversal.learnings, now);
        self.pipeline.credit(&traversal, 1, 60, now);
        traversal
    }

    fn table(&self, table: u8) -> Vec<String> {
        let rules = self.pipeline.rules(BRIDGE, &RuleFilter::all());
        let rules = rules.iter().filter(|rule| rule.table.number() == table);
        let format = shunt_pipeline::text::RuleFormat {
            ports: &shunt_flow::text::NoPortNames,
            stats_at: None,
        };
        rules.map(|rule| shunt_pipeline::text::format_rule(rule, format)).collect()
    }
}

/// A packet from host 01 to host 02, on port 3.
const PACKET: &str = "in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
/// A packet from host 01 to host 03, on port 2.
const OTHER: &str = "in_port=2,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:03";

#[test]
fn only_later_packets_match_a_learned_rule() {
    let switch = Switch::new(&["table=1,priority=1,actions=output:4"]);
    switch.apply(&[rule("actions=resubmit(,1)", &[learn(|_| {})])]);
    let traversal = switch.receive(PACKET, Time::ZERO);
    assert_eq!((switch.run(PACKET), traversal.learnings.len()), ("4".to_owned(), 1));
    assert_eq!(switch.run("in_port=1,dl_src=02:00:00:00:00:02"), "3");
}

#[test]
fn a_known_rule_is_refreshed_and_not_learned() {
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=output:1", &[learn(|action| action.hard_timeout = 10)])]);
    switch.receive(PACKET, at(0));
    let again = switch.receive(PACKET, at(6));
    assert!(again.learnings.is_empty() && again.refreshes.len() == 1);
    // Hits of the cache entry also refresh the rule.
    assert!(switch.pipeline.expire(at(15)).deltas.is_empty());
    switch.pipeline.credit(&again, 1, 60, at(15));
    assert!(switch.pipeline.expire(at(24)).deltas.is_empty());
    assert!(!switch.pipeline.expire(at(25)).deltas.is_empty());
}

#[test]
fn a_late_refresh_prolongs_and_adds_no_rule() {
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=output:1", &[learn(|action| action.hard_timeout = 10)])]);
    switch.receive(PACKET, at(0));
    let refreshing = switch.translate(PACKET);
    assert_eq!(refreshing.refreshes.len(), 1);
    // After the deletion, the packet learns an equal rule again.
    switch.send(FlowModCommand::Delete, "table=1").expect("the rule exists");
    switch.receive(PACKET, at(5));
    switch.pipeline.credit(&refreshing, 1, 60, at(9));
    assert!(switch.pipeline.expire(at(14)).deltas.is_empty());
    switch.pipeline.expire(at(15));
    assert!(switch.table(1).is_empty());
    let version = switch.pipeline.version();
    switch.pipeline.credit(&refreshing, 1, 60, at(16));
    assert!(switch.table(1).is_empty() && switch.pipeline.version() == version);
}

#[test]
fn learning_over_a_rule_changes_actions_and_cookie() {
    let switch =
        Switch::new(&["table=1,priority=7,cookie=9,dl_src=02:00:00:00:00:02,idle_timeout=30,\
                       actions=drop"]);
    let forget = learn(|action| action.idle_timeout = 60);
    switch.apply(&[rule("actions=output:1", &[forget])]);
    switch.receive(PACKET, Time::ZERO);
    let rules = switch.table(1);
    assert!(rules[0].contains("cookie=0x5") && rules[0].contains("idle_timeout=30"), "{rules:?}");
    assert!(rules[0].contains("actions=output:3") || rules[0].contains("actions=3"), "{rules:?}");
    // The learned rule exists, and other timeouts in the `learn` do not cause a new request.
    assert!(switch.translate(PACKET).learnings.is_empty());
}

#[test]
fn bits_consulted_to_learn_are_in_the_mask() {
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=output:1", &[learn(|_| {})])]);
    let traversal = switch.translate(PACKET);
    let mask = |field| traversal.mask.field(field);
    assert_eq!(mask(FieldId::EthDst), 0xffff_ffff_ffff);
    assert_eq!(mask(FieldId::InPort), 0xffff_ffff);
    assert_eq!(mask(FieldId::EthSrc), 0);
}

#[test]
fn a_learn_limit_counts_rules_of_the_cookie() {
    let switch = Switch::new(&["table=1,priority=3,cookie=5,actions=drop"]);
    let result = Subfield::new(FieldId::Reg2, 3, 1);
    let limited = learn(|action| (action.limit, action.result) = (2, result));
    switch.apply(&[rule("actions=output:NXM_NX_REG2[]", &[limited])]);
    switch.receive(PACKET, Time::ZERO);
    let refused = switch.receive(OTHER, Time::ZERO);
    assert!(refused.learnings.is_empty() && refused.actions.is_empty(), "{refused:?}");
    assert_eq!(switch.table(1).len(), 2);
    // A limit does not prevent the refresh of an existing rule.
    assert_eq!(switch.translate(PACKET).refreshes.len(), 1);
    // The number of rules of a cookie is an object, which changes when a rule is removed.
    let change =
        switch.send(FlowModCommand::Delete, "table=1,dl_src=02:00:00:00:00:02").expect("legal");
    let changed = |delta: &shunt_pipeline::Delta| match delta {
        shunt_pipeline::Delta::Changed(object) => refused.reads.contains(object),
        shunt_pipeline::Delta::Rule(_) => false,
    };
    assert!(change.deltas.iter().any(changed), "{change:?}");
}

#[test]
fn a_reclaim_keeps_the_count_of_learned_rules() {
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=output:1", &[learn(|action| action.limit = 1)])]);
    let before = switch.pipeline.version();
    switch.receive(PACKET, Time::ZERO);
    switch.pipeline.reclaim(before);
    assert!(switch.translate(OTHER).learnings.is_empty());
    switch.pipeline.reclaim(switch.pipeline.version());
    assert!(switch.translate(OTHER).learnings.is_empty());
}

#[test]
fn the_learn_limit_holds_for_concurrent_packets() {
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=output:1", &[learn(|action| action.limit = 1)])]);
    let both: Vec<Learning> =
        [PACKET, OTHER].iter().flat_map(|packet| switch.translate(packet).learnings).collect();
    assert_eq!(both.len(), 2);
    switch.pipeline.learn(&both, Time::ZERO);
    assert_eq!((switch.table(1).len(), switch.pipeline.learnings_refused()), (1, 1));
}

#[test]
fn a_full_table_learns_nothing_and_counts_it() {
    let switch = Switch::new(&["table=1,priority=3,actions=drop"]);
    let mut settings = switch.pipeline.settings(BRIDGE).expect("the bridge exists");
    settings.rules_max.insert(TableId::new(1).expect("a table"), 1);
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    switch.apply(&[rule("actions=output:1", &[learn(|_| {})])]);
    let version = switch.pipeline.version();
    switch.receive(PACKET, Time::ZERO);
    assert_eq!((switch.table(1).len(), switch.pipeline.learnings_refused()), (1, 1));
    assert_eq!(switch.pipeline.version(), version);
}

#[test]
fn a_removed_rule_learns_nothing_more() {
    let switch = Switch::new(&[]);
    let learner = || rule("priority=9,actions=output:1", &[learn(|_| {})]);
    switch.apply(&[learner()]);
    let learnings = switch.translate(PACKET).learnings;
    // A controller deletes all rules while a learn request is pending.
    switch.send(FlowModCommand::Delete, "").expect("legal");
    assert!(switch.pipeline.learn(&learnings, Time::ZERO).deltas.is_empty());
    // A later rule with the same match and priority is another rule than the removed rule.
    switch.apply(&[learner()]);
    assert!(switch.pipeline.learn(&learnings, Time::ZERO).deltas.is_empty());
    assert_eq!(switch.pipeline.learnings_refused(), 2);
}

#[test]
fn rules_learned_by_the_last_owner_are_removed() {
    let switch = Switch::new(&[
        "table=1,priority=3,cookie=5,actions=drop",
        "table=1,priority=3,cookie=6,arp,actions=drop",
    ]);
    let owner = || learn(|action| action.delete_learned = true);
    switch.apply(&[
        rule("priority=1,actions=output:1", &[owner()]),
        rule("priority=2,arp,actions=output:1", &[Action::Clone(Box::new([owner()]))]),
    ]);
    switch.receive(PACKET, Time::ZERO);
    assert_eq!(switch.table(1).len(), 3);
    switch.send(FlowModCommand::DeleteStrict, "priority=1").expect("legal");
    assert_eq!(switch.table(1).len(), 3, "there is another owner");
    // An owner that replaces an owner leaves no orphan.
    switch.apply(&[rule("priority=2,arp,actions=output:2", &[owner()])]);
    assert_eq!(switch.table(1).len(), 3);
    switch.send(FlowModCommand::Modify, "table=0,actions=drop").expect("legal");
    assert_eq!(switch.table(1).len(), 1);
}

#[test]
fn an_owner_that_expires_removes_its_learned_rules() {
    let switch = Switch::new(&[]);
    let owner = learn(|action| (action.delete_learned, action.hard_timeout) = (true, 5));
    switch.apply(&[rule("hard_timeout=5,actions=output:1", &[owner])]);
    switch.receive(PACKET, Time::ZERO);
    // Both rules expire at the same time, and each rule is removed once.
    assert_eq!(switch.pipeline.expire(at(5)).deltas.iter().filter(is_rule).count(), 2);
    assert!(switch.table(1).is_empty());
}

fn is_rule(delta: &&shunt_pipeline::Delta) -> bool {
    matches!(delta, shunt_pipeline::Delta::Rule(_))
}

/// As in Open vSwitch, a learned `output` ignores most reserved port numbers.
#[test]
fn learned_rules_send_only_to_ports() {
    let sent = |port: u128| {
        let switch = Switch::new(&[]);
        let output =
            LearnSpec { source: LearnSource::Value(port), target: LearnTarget::Output, width: 16 };
        switch.apply(&[rule("actions=drop", &[learn(|action| action.specs = Box::new([output]))])]);
        switch.receive(PACKET, Time::ZERO);
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules[1].instructions.apply.len()
    };
    let ports = [3, 0xfeff, 0xfff8, 0xfffb, 0xfffc, 0xfffe];
    assert!(ports.into_iter().all(|port| sent(port) == 1));
    let others = [0xff00, 0xfff9, 0xfffa, 0xfffd, 0xffff, 0x1_0001, 0xffff_fffe];
    assert!(others.into_iter().all(|port| sent(port) == 0));
}

#[test]
fn fin_lowers_fin_timeout_rules() {
    let switch = Switch::new(&[]);
    let fin = |idle, hard| Action::FinTimeout { idle, hard };
    switch.apply(&[
        rule("tcp,idle_timeout=100,actions=output:2", &[fin(10, 20)]),
        rule("udp,idle_timeout=5,actions=output:2", &[fin(10, 0)]),
    ]);
    let timeouts = || {
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules
            .iter()
            .map(|rule| (rule.idle_timeout_now().as_secs(), rule.hard_timeout_now().as_secs()))
            .collect::<Vec<_>>()
    };
    switch.receive("in_port=1,udp", at(1));
    let acknowledged = switch.receive("in_port=1,tcp,tcp_flags=ack", at(1));
    assert_eq!(timeouts(), [(100, 0), (5, 0)]);
    assert_eq!(acknowledged.mask.field(FieldId::TcpFlags), 0b101);
    let reset = switch.receive("in_port=1,tcp,tcp_flags=rst", at(2));
    assert_eq!(timeouts(), [(10, 20), (5, 0)]);
    // A lowered timeout starts at the packet that lowered it. Hits of the cache entry lower
    // timeouts, too.
    switch.pipeline.credit(&reset, 1, 60, at(9));
    assert_eq!(switch.pipeline.expire(at(18)).deltas.len(), 1, "the other rule");
    assert_eq!(switch.pipeline.expire(at(19)).deltas.len(), 1);
}

#[test]
fn only_a_modified_rule_keeps_its_lowered_timeouts() {
    let switch = Switch::new(&[]);
    let own = || {
        rule("tcp,idle_timeout=100,actions=output:2", &[Action::FinTimeout { idle: 3, hard: 0 }])
    };
    switch.apply(&[own()]);
    switch.receive("in_port=1,tcp,tcp_flags=fin|ack", at(0));
    switch.send(FlowModCommand::Modify, "tcp,actions=output:3").expect("legal");
    let idle = || {
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules[0].idle_timeout_now().as_secs()
    };
    assert_eq!(idle(), 3);
    switch.apply(&[own()]);
    assert_eq!(idle(), 100);
    assert!(switch.pipeline.expire(at(50)).deltas.is_empty());
}

const NORMAL: Action = Action::Output { port: PortNo::NORMAL, max_len: 0 };

#[test]
fn a_bucket_runs_normal_and_no_learn() {
    // As in Open vSwitch, a bucket runs only the actions that an action set can hold.
    let switch = Switch::new(&[]);
    let buckets = vec![bucket(vec![learn(|_| {}), output(4)]), bucket(vec![NORMAL])];
    switch.make([add_group(1, GroupKind::All, buckets)]);
    switch.apply(&[rule("actions=output:1", &[group(1)])]);
    let traversal = switch.receive(PACKET, Time::ZERO);
    assert!(matches!(&traversal.learnings[..], [Learning::Mac(_)]), "{traversal:?}");
    assert!(switch.table(1).is_empty());
    assert!(switch.translate(PACKET).learnings.is_empty());
    assert_eq!(switch.run("in_port=4,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:09"), "4 3 1");
}

#[test]
fn packet_order_matters_once_a_rule_learns() {
    let learns = |request: shunt_pipeline::Modification| {
        let switch = Switch::new(&["actions=output:1"]);
        assert!(!switch.pipeline.learns(BRIDGE));
        switch.make([request]);
        switch.pipeline.learns(BRIDGE)
    };
    let of_group = |actions| learns(add_group(1, GroupKind::All, vec![bucket(actions)]));
    assert!(of_group(vec![output(2), NORMAL]));
    assert!(!of_group(vec![output(2)]) && !of_group(vec![learn(|_| {})]));
    assert!(!learns(delete_group(1)));
    let of_rule = |action: Action| learns(rule("actions=output:2", &[action]).into());
    let to_field = Action::OutputField { source: Subfield::whole(FieldId::Reg0), max_len: 0 };
    let to_member = |port| {
        Action::Bundle(Box::new(BundleAction {
            fields: HashFields::EthSrc,
            basis: 0,
            algorithm: BundleAlgorithm::ActiveBackup,
            members: [port].into(),
            target: None,
        }))
    };
    let learning_keys = [NORMAL, learn(|_| {}), to_field, to_member(PortNo::NORMAL)];
    for learner in learning_keys {
        assert!(of_rule(Action::Clone([learner.clone()].into())), "{learner:?}");
    }
    assert!(!of_rule(to_member(PortNo::new(3))) && !of_rule(Action::SetQueue(3)));
}

/// Packets stay in order only on bridges with packets that can learn.
#[test]
fn packet_order_matters_while_its_bridge_learns() {
    let switch = Switch::new(&["actions=output:1"]);
    let (pipeline, other) = (&switch.pipeline, BridgeId::new(900));
    pipeline.add_bridge(other, BridgeSettings::default());
    let learns = || [BRIDGE, other].map(|bridge| pipeline.learns(bridge));
    switch.apply(&[rule("tcp,actions=output:2", &[NORMAL])]);
    assert_eq!(learns(), [true, false]);
    let patch = PortKind::Patch { bridge: BRIDGE, port: PortNo::new(1) };
    let ports = vec![PortInfo::new(PortNo::new(7), patch)];
    pipeline.set_ports(other, ports).expect("a bridge");
    assert_eq!(learns(), [true, true]);
    let with_both = pipeline.version();
    switch.send(FlowModCommand::Delete, "tcp").expect("legal");
    // A thread may still use the version before the deletion.
    pipeline.reclaim(with_both);
    assert_eq!(learns(), [true, true]);
    pipeline.reclaim(pipeline.version());
    assert_eq!(learns(), [false, false]);
    // A group with a learning bucket counts until it or its bridge is removed.
    let buckets = || vec![bucket(vec![NORMAL])];
    switch.make([add_group(1, GroupKind::All, buckets())]);
    assert_eq!(learns(), [true, true]);
    switch.make([delete_group(1)]);
    switch.make([add_group(2, GroupKind::All, buckets())]);
    pipeline.reclaim(pipeline.version());
    assert_eq!(learns(), [true, true]);
    pipeline.remove_bridge(BRIDGE);
    pipeline.reclaim(pipeline.version());
    assert_eq!(learns(), [false, false]);
}

/// NORMAL forwards the packets of such a bridge, whatever its rules are.
#[test]
fn packet_order_matters_while_a_bridge_fails_open() {
    let switch = Switch::new(&["actions=output:1"]);
    let pipeline = &switch.pipeline;
    let set = |fails_open| {
        let settings = BridgeSettings { fails_open, ..BridgeSettings::default() };
        pipeline.set_settings(BRIDGE, settings).expect("a bridge");
    };
    set(true);
    assert!(pipeline.learns(BRIDGE));
    let open = pipeline.version();
    set(false);
    pipeline.reclaim(open);
    assert!(pipeline.learns(BRIDGE), "a thread may still use the version before the change");
    pipeline.reclaim(pipeline.version());
    assert!(!pipeline.learns(BRIDGE));
}

#[test]
fn the_last_of_two_learn_requests_wins() {
    let loads = |value: u64| {
        learn(|action| {
            let to_reg = LearnTarget::Load(Subfield::whole(FieldId::Reg0));
            let value = LearnSource::Value(value.into());
            action.specs = Box::new([LearnSpec { source: value, target: to_reg, width: 32 }]);
        })
    };
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=drop", &[loads(1), loads(2)])]);
    for _ in 0..2 {
        assert_eq!(switch.receive(PACKET, Time::ZERO).learnings.len(), 2);
        let rules = switch.table(1);
        assert!(rules[0].contains("load:0x2->"), "{rules:?}");
    }
}

#[test]
fn a_long_learned_write_is_several_loads() {
    let copy = LearnSpec {
        source: LearnSource::Value(5 << 64 | 7),
        target: LearnTarget::Load(Subfield::whole(FieldId::Xxreg0)),
        width: 128,
    };
    let switch = Switch::new(&[]);
    switch.apply(&[rule("actions=drop", &[learn(|action| action.specs = Box::new([copy]))])]);
    let learnings = switch.translate(PACKET).learnings;
    let [Learning::Rule(learned)] = &learnings[..] else { panic!("one rule") };
    let part = |offset, value| Action::Load {
        target: Subfield { field: FieldId::Xxreg0, offset, width: 64 },
        value,
    };
    assert_eq!(*learned.request.instructions.apply, [part(0, 7), part(64, 5)]);
}

#[test]
fn only_a_limit_reads_the_number_of_rules() {
    let reads = |limit| {
        let switch = Switch::of_actions(&[learn(|action| action.limit = limit)]);
        switch.translate(PACKET).reads.len()
    };
    assert_eq!(reads(0) + 1, reads(1));
}

/// Returns the rule that a packet on port LOCAL learns by this specification.
fn learned_rule(spec: LearnSpec) -> FlowMod {
    let switch = Switch::of_actions(&[learn(|action| action.specs = Box::new([spec]))]);
    let learnings = switch.translate("in_port=LOCAL").learnings;
    let [Learning::Rule(learned)] = &learnings[..] else { panic!("one rule") };
    learned.request.clone()
}

#[test]
fn learned_16_bit_port_is_whole() {
    for (offset, width, value, mask) in [
        (0, 16, u128::from(PortNo::LOCAL.number()), 0xffff_ffff),
        (0, 8, 0xfe, 0xff),
        (4, 16, 0xffff0, 0xffff0),
        (4, 8, 0xff0, 0xff0),
    ] {
        let part = Subfield { field: FieldId::InPort, offset, width };
        let (source, target) = (LearnSource::Field(part), LearnTarget::Match(part));
        let matching = learned_rule(LearnSpec { source, target, width }).matching;
        let of_port = (matching.key().field(FieldId::InPort), FlowMask::from(matching.mask()));
        assert_eq!((of_port.0, of_port.1.field(FieldId::InPort)), (value, mask), "{part:?}");
    }
}

#[test]
fn learned_write_is_as_wide_as_target() {
    let target = Subfield { field: FieldId::Xxreg0, offset: 8, width: 100 };
    let source = LearnSource::Value(5 << 64 | 7);
    let write = learned_rule(LearnSpec { source, target: LearnTarget::Load(target), width: 100 });
    let part =
        |offset, width, value| Action::Load { target: Subfield { offset, width, ..target }, value };
    assert_eq!(*write.instructions.apply, [part(8, 64, 7), part(72, 36, 5)]);
}

/// `result_dst` is 1 if the rule was added or refreshed, and 0 above the limit.
#[test]
fn learn_writes_its_result_bit() {
    let result = Subfield::new(FieldId::Reg2, 1, 1);
    let switch = Switch::new(&[]);
    let limited = learn(|action| (action.limit, action.result) = (1, result));
    switch.apply(&[rule("actions=output:NXM_NX_REG2[]", &[limited])]);
    assert_eq!(switch.run(PACKET), "2", "the limit allows the rule, so the bit is set");
    switch.receive(PACKET, Time::ZERO);
    assert_eq!(switch.run(PACKET), "2", "the rule is refreshed");
    assert_eq!(switch.run(OTHER), "", "the limit is reached");
}

#[test]
fn learn_requests_of_one_packet_are_limited() {
    let learns = |count: u128| {
        let value = |value| LearnSpec {
            source: LearnSource::Value(value),
            target: LearnTarget::Match(Subfield::whole(FieldId::Reg1)),
            width: 32,
        };
        let learn_requests =
            (0..count).map(|n| learn(|action| action.specs = Box::new([value(n)])));
        let traversal = Switch::of_actions(&learn_requests.collect::<Vec<_>>()).translate(PACKET);
        traversal.error.map(|error| error.to_string())
    };
    assert_eq!(learns(1024), None);
    assert_eq!(
        learns(1025).as_deref(),
        Some("the packet needs more than 1024 learn requests or refreshes, which is the limit")
    );
}
