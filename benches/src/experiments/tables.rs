//! Rules that experiments share: every kind of action, and large tables. The crate `shunt-kernels`
//! has the chains of tables.

use shunt_classifier::testing::workload::{Priorities, rules};
use shunt_flow::text::{NoPortNames, format_match};
pub(crate) use shunt_kernels::case::{Case, READ, SOURCE, chain};

/// Returns a case for each kind of action, in one table.
pub(crate) fn actions() -> Vec<Case> {
    let plain = |name: &str, actions: &str| case(name, actions, &[]);
    let select: &[&str] =
        &["group_id=1,type=select,bucket=weight:1,output:2,bucket=weight:2,output:2"];
    let indirect: &[&str] = &["group_id=1,type=indirect,bucket=output:2"];
    let mut metered = plain("meter", "output:2");
    // The meter instruction precedes all actions.
    metered.rules = vec![format!("udp,in_port=1,actions=meter:1,{READ},output:2")];
    metered.meters = &["meter=1,kbps,band=type=drop,rate=100000000"];
    let mut resubmitted = plain("resubmit", "resubmit(,1)");
    resubmitted.rules.push("table=1,udp,actions=output:2".to_owned());
    vec![
        plain("output", "output:2"),
        plain("set_field", "set_field:10.9.9.9->ip_dst,output:2"),
        plain("set_field of 4", SET_FOUR),
        plain("dec_ttl", "dec_ttl,output:2"),
        plain("push_vlan", "push_vlan:0x8100,set_field:4097->vlan_vid,output:2"),
        plain("push_mpls", "push_mpls:0x8847,output:2"),
        plain("4 registers", LOAD_FOUR),
        plain("clone", "clone(set_field:1->reg3),output:2"),
        resubmitted,
        case("group, indirect", "group:1", indirect),
        case("group, select", "group:1", select),
        metered,
        plain("multipath", "multipath(symmetric_l4,0,modulo_n,16,0,NXM_NX_REG2[]),output:2"),
        plain("NORMAL", "NORMAL"),
    ]
}

/// Actions that set four header fields.
const SET_FOUR: &str = "set_field:02:00:00:00:00:77->eth_src,set_field:02:00:00:00:00:78->eth_dst,\
                        set_field:10.9.9.8->ip_src,set_field:53->udp_dst,output:2";

/// Actions that set four registers.
const LOAD_FOUR: &str = "load:1->NXM_NX_REG2[],load:2->NXM_NX_REG3[],load:3->NXM_NX_REG4[0..7],\
                         move:NXM_NX_REG2[]->NXM_NX_REG5[],output:2";

fn case(name: &str, actions: &str, groups: &'static [&'static str]) -> Case {
    let rules = vec![format!("udp,in_port=1,actions={READ},{actions}")];
    Case { name: name.to_owned(), is_chain: false, groups, meters: &[], rules }
}

/// Returns rules over 600 masks in the syntax of `ovs-ofctl`.
///
/// All rules match an EtherType.
pub(crate) fn rules_with_many_masks(count: usize) -> Vec<String> {
    let all = rules(count, 600, Priorities::Random);
    let lines = all.iter().map(|(matching, rank)| {
        let matching = format_match(matching, &NoPortNames);
        format!("priority={},{matching},actions=output:2", rank.priority)
    });
    lines.collect()
}
