//! Printed rules parse to the same rule, wrong texts are refused, and no text causes a panic.

use proptest::{collection::vec, prelude::*, sample::select};
use shunt_flow::{
    FieldId, PortNo,
    text::{NoPortNames, PortNames},
};

use super::{
    RuleTextProblem, format_actions,
    names::ACTIONS,
    parse_actions, parse_group_mod, parse_meter_mod, parse_rule, parse_saved_rule,
    testing::{
        any_group_mod, any_instructions, any_meter_mod, assert_group_reads_back,
        assert_meter_reads_back, assert_reads_back, fuzz_rule_text,
    },
};
use crate::{
    action::{Action, CLONE_DEPTH_MAX},
    groups::group::GroupCommand,
    id::{Cookie, TableId},
    meters::meter::MeterCommand,
    tables::{
        flow_mod::{FlowMod, FlowModCommand, TableSelector},
        rule::Instructions,
    },
};

/// Ports with names that need quotes, look like numbers, or are keywords.
struct OddNames;

/// Names of ports that look like other words of a rule.
const ODD: [&str; 6] = ["eth0", "a,b", "7", "drop", "x (1)", "in_port"];

impl PortNames for OddNames {
    fn number(&self, name: &str) -> Option<PortNo> {
        let index = ODD.iter().position(|odd| *odd == name)?;
        u32::try_from(index).ok().map(PortNo::new)
    }

    fn name(&self, port: PortNo) -> Option<String> {
        let index = usize::try_from(port.number()).ok()?;
        ODD.get(index).map(|name| (*name).to_owned())
    }
}

proptest! {
    #[test]
    fn instructions_read_back_as_they_were_printed(instructions in any_instructions()) {
        assert_reads_back(&instructions);
    }

    #[test]
    fn groups_read_back_as_they_were_printed(request in any_group_mod()) {
        assert_group_reads_back(&request);
    }

    #[test]
    fn meters_read_back_as_they_were_printed(request in any_meter_mod()) {
        assert_meter_reads_back(&request);
    }

    #[test]
    fn ports_of_any_name_read_back(ports in vec(0..8_u32, 1..8)) {
        let output = |port: &u32| Action::Output { port: PortNo::new(*port), max_len: 0 };
        let truncated =
            |port: &u32| Action::OutputTruncated { port: PortNo::new(*port), max_len: 64 };
        let resubmit =
            |port: &u32| Action::Resubmit { port: Some(PortNo::new(*port)), table: None };
        let actions = ports.iter().flat_map(|port| [output(port), truncated(port), resubmit(port)]);
        let instructions = Instructions { apply: actions.collect(), ..Instructions::default() };
        let text = format_actions(&instructions, &OddNames);
        prop_assert_eq!(parse_actions(&text, &OddNames), Ok(instructions), "{}", text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(data in vec(any::<u8>(), 0..64)) {
        fuzz_rule_text(&data);
    }

    #[test]
    fn any_words_are_read_or_refused(words in vec(select(words()), 0..24)) {
        fuzz_rule_text(words.concat().as_bytes());
    }
}

/// Returns the words and punctuation of rule texts.
fn words() -> Vec<&'static str> {
    let marks = [
        ",",
        ",",
        ",",
        ":",
        "=",
        "(",
        ")",
        "->",
        "[",
        "]",
        "..",
        "/",
        "0",
        "1",
        "5",
        "0x1f",
        "-1",
        "ä",
        "\"",
        " ",
        "actions=",
        "ip,actions=",
        "tcp,",
        "table=",
        "priority=",
        "cookie=",
        "port=",
        "max_len=",
        "userdata=",
        "1.2.3.4",
        "01.02",
        "->reg0[",
        "ct(commit,",
        "nat(src=",
        "exec(",
        "learn(",
        "members:",
        "eth_src,",
        "group_id=1,type=select,",
        "bucket=",
        "meter=1,kbps,",
        "bands=type=drop,",
        "rate=",
    ];
    let fields = FieldId::all().map(FieldId::name);
    marks.into_iter().chain(ACTIONS.iter().copied()).chain(fields).collect()
}

/// Returns the problem of the text of a rule.
fn problem(command: FlowModCommand, text: &str) -> RuleTextProblem {
    parse_rule(command, text, &NoPortNames).unwrap_err().problem
}

fn flow_mod(command: FlowModCommand, text: &str) -> FlowMod {
    parse_rule(command, text, &NoPortNames).unwrap()
}

#[test]
fn clones_nest_up_to_the_bound() {
    let nested = |depth: usize| "clone(".repeat(depth) + "output:1" + &")".repeat(depth);
    assert!(parse_actions(&nested(CLONE_DEPTH_MAX), &NoPortNames).is_ok());
    let error = parse_actions(&nested(CLONE_DEPTH_MAX + 1), &NoPortNames).unwrap_err();
    assert_eq!(error.problem, RuleTextProblem::TooDeep { max: CLONE_DEPTH_MAX });
    assert_eq!(error.span, CLONE_DEPTH_MAX * 6..CLONE_DEPTH_MAX * 6 + 5);
    assert!(parse_actions(&nested(100_000), &NoPortNames).is_err());
}

#[test]
fn command_takes_items_that_it_can_use() {
    use FlowModCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let useless = |command, text| {
        assert!(matches!(problem(command, text), RuleTextProblem::UselessItem { .. }), "{text}");
    };
    useless(Add, "out_port=3,actions=drop");
    useless(Modify, "importance=3,actions=drop");
    useless(Delete, "priority=3");
    useless(Delete, "ip,actions=drop");
    useless(DeleteStrict, "idle_timeout=3");
    assert_eq!(problem(Add, "ip"), RuleTextProblem::ActionsMissing);
    assert_eq!(problem(ModifyStrict, "ip,actions"), RuleTextProblem::ActionsMissing);
    assert_eq!(flow_mod(DeleteStrict, "priority=3").priority.number(), 3);
    let delete = flow_mod(Delete, "out_port=LOCAL,out_group=7,table=3,ip");
    assert_eq!((delete.out_port, delete.out_group), (PortNo::LOCAL, 7));
    assert_eq!(delete.table, TableSelector::One(TableId::new(3).unwrap()));
}

#[test]
fn a_missing_table_means_the_first_or_all() {
    use FlowModCommand::{Add, Delete, Modify};
    let first = TableSelector::One(TableId::FIRST);
    assert_eq!(flow_mod(Add, "actions=drop").table, first);
    assert_eq!(flow_mod(Add, "table=255,actions=drop").table, first);
    assert_eq!(flow_mod(Modify, "actions=drop").table, TableSelector::All);
    assert_eq!(flow_mod(Delete, "").table, TableSelector::All);
    assert_eq!(flow_mod(Delete, "table=255").table, TableSelector::All);
    let reserved = RuleTextProblem::BadNumber { text: "254".into(), of: "a table", max: 253 };
    assert_eq!(problem(Delete, "table=254"), reserved);
}

/// OpenFlow 1.0 accepts actions on headers that the packets of a rule may lack.
#[test]
fn saved_rules_of_openflow_10_read_back() {
    let rules = [
        "udp,actions=pop_vlan",
        "actions=dec_ttl",
        "actions=mod_nw_src:1.2.3.4",
        "actions=mod_nw_ttl:4",
        "actions=mod_nw_ecn:1",
        "actions=dec_mpls_ttl",
        "actions=set_mpls_tc(4)",
        "actions=set_mpls_ttl(4)",
        "arp,actions=mod_nw_dst:1.2.3.4",
        "arp,actions=mod_tp_dst:5",
        "ipv6,actions=mod_nw_src:1.2.3.4",
        "actions=set_field:7->dl_vlan,pop_vlan",
        "actions=set_field:3->dl_vlan_pcp",
        "actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]",
        "actions=ct(commit)",
        "actions=fin_timeout(idle_timeout=5)",
        "actions=learn(table=1,NXM_OF_IP_SRC[])",
        "actions=clone(dec_ttl,pop_vlan)",
        "actions=write_actions(set_field:7->dl_vlan)",
    ];
    for text in rules {
        assert!(parse_rule(FlowModCommand::Add, text, &NoPortNames).is_err(), "{text}");
        let rule = parse_saved_rule(text).unwrap();
        assert_ne!(rule.instructions, Instructions::default(), "{text}");
        let printed = "actions=".to_owned() + &format_actions(&rule.instructions, &NoPortNames);
        let again = parse_saved_rule(&printed).unwrap();
        assert_eq!(again.instructions, rule.instructions, "{text}");
    }
    let tcp = parse_saved_rule("tcp,actions=mod_tp_src:5").unwrap();
    assert_eq!(*tcp.instructions.apply, [Action::SetTpSrc(5)]);
    let tagged = parse_saved_rule("dl_vlan=3,actions=mod_vlan_vid:5").unwrap();
    assert_eq!(tagged.instructions.apply.len(), 1, "the packet has a tag");
}

#[test]
fn a_saved_rule_keeps_its_enqueue() {
    for text in ["enqueue:2:5", "enqueue:LOCAL:7,set_queue:5,output:2,pop_queue"] {
        let saved = parse_saved_rule(&format!("actions={text}")).unwrap();
        assert_eq!(format_actions(&saved.instructions, &NoPortNames), text);
        let rule = parse_saved_rule(&format!("actions=clone({text})")).unwrap();
        assert_eq!(format_actions(&rule.instructions, &NoPortNames), format!("clone({text})"));
    }
    // As over OpenFlow 1.3, another rule has the three actions.
    let rule = flow_mod(FlowModCommand::Add, "actions=enqueue:2:5");
    let listed = "set_queue:5,output:2,pop_queue";
    assert_eq!(format_actions(&rule.instructions, &NoPortNames), listed);
}

#[test]
fn cookie_marks_new_and_selects_old_rules() {
    use FlowModCommand::{Add, Delete, Modify};
    let cookie = |command, text| {
        let rule = flow_mod(command, text);
        (rule.cookie, rule.cookie_mask)
    };
    assert_eq!(cookie(Add, "cookie=0x5,actions=drop"), (Cookie::new(5), 0));
    assert_eq!(cookie(Modify, "cookie=5,actions=drop"), (Cookie::new(5), 0));
    assert_eq!(cookie(Modify, "cookie=5/-1,actions=drop"), (Cookie::new(5), u64::MAX));
    assert_eq!(cookie(Delete, "cookie=5/0xff"), (Cookie::new(5), 0xff));
    assert_eq!(problem(Add, "cookie=5/1,actions=drop"), RuleTextProblem::MaskedCookie);
    assert_eq!(problem(Delete, "cookie=5"), RuleTextProblem::UnmaskedCookie);
}

/// A parser that takes quadratic time would not finish this test.
#[test]
fn a_megabyte_of_any_bytes_is_handled_quickly() {
    let around = |before: &str, part: &str, behind: &str| {
        let text = before.to_owned() + &part.repeat(1_000_000 / part.len()) + behind;
        drop(parse_rule(FlowModCommand::Add, &text, &NoPortNames));
        drop(parse_group_mod(GroupCommand::Add, &text, &NoPortNames));
        drop(parse_meter_mod(MeterCommand::Add, &text));
    };
    around("actions=", "clone(", "");
    around("actions=", "clone(output:1),", "");
    around("actions=", "a,", "");
    around("actions=", "a", "");
    around("actions=", "a(b)->c", "");
    around("actions=", "\"a,", "");
    around("actions=learn(", "reg0=1,", ")");
    around("ip,actions=ct(", "nat,", ")");
    around("ip,actions=ct(commit,nat(src=", ":", "))");
    around("actions=bundle(eth_src,0,hrw,ofport,members:", "1,", ")");
    around("group_id=1,type=all,", "bucket=1,", "");
    around("group_id=1,type=all,bucket=", "actions=", "");
    around("meter=1,kbps,bands=", "type=drop,rate=1,", "");
}
