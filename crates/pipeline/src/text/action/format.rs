//! Actions as `ovs-ofctl dump-flows` prints them.

use shunt_flow::text::{PortNames, format_port, format_value, hex};

use super::{
    super::{number::dotted_hex, subfield},
    conntrack, hash, header, learn, number, output,
};
use crate::action::Action;

/// Prints a list of actions. An empty list is printed as `drop`.
pub(in super::super) fn format_list(actions: &[Action], ports: &dyn PortNames) -> String {
    if actions.is_empty() {
        return "drop".to_owned();
    }
    format_each(actions, ports).join(",")
}

/// Prints each action of a list. The three actions of an `enqueue` are one text.
pub(in super::super) fn format_each(actions: &[Action], ports: &dyn PortNames) -> Vec<String> {
    let (mut texts, mut rest) = (Vec::new(), actions);
    loop {
        rest = match rest {
            [
                Action::SetQueue(queue),
                Action::Output { port, max_len: 0 },
                Action::PopQueue { ends_enqueue: true },
                rest @ ..,
            ] => {
                texts.push(format!("enqueue:{}:{queue}", format_port(*port, ports)));
                rest
            }
            [action, rest @ ..] => {
                texts.push(format_action(action, ports));
                rest
            }
            [] => return texts,
        };
    }
}

/// Prints one action.
#[must_use]
pub fn format_action(action: &Action, ports: &dyn PortNames) -> String {
    match action {
        Action::Output { port, max_len } => output::format_output(*port, *max_len, ports),
        Action::OutputField { source, .. } => format!("output:{}", subfield::format(*source)),
        Action::OutputTruncated { port, max_len } => {
            format!("output(port={},max_len={max_len})", format_port(*port, ports))
        }
        Action::Controller(action) => output::format_controller(action),
        Action::Resubmit { port, table } => output::format_resubmit(*port, *table, ports),
        Action::SetField { field, value, mask } => {
            format!("set_field:{}->{}", format_value(*field, *value, *mask), field.name())
        }
        Action::Load { target, value } => {
            format!("load:{}->{}", hex((*value).into()), subfield::format(*target))
        }
        Action::Move { source, target } => {
            format!("move:{}->{}", subfield::format(*source), subfield::format(*target))
        }
        Action::Push(source) => format!("push:{}", subfield::format(*source)),
        Action::Pop(target) => format!("pop:{}", subfield::format(*target)),
        Action::CheckPktLarger { length, target } => {
            format!("check_pkt_larger({length})->{}", subfield::format(*target))
        }
        Action::Learn(learn) => learn::format(learn),
        Action::Multipath(action) => hash::format_multipath(action),
        Action::Bundle(action) => hash::format_bundle(action, ports),
        Action::Ct(ct) => conntrack::format_ct(ct),
        Action::Nat(nat) => conntrack::format_nat(nat),
        Action::Clone(actions) => format!("clone({})", format_list(actions, ports)),
        Action::Sample(sample) => number::format_sample(sample, ports),
        Action::FinTimeout { idle, hard } => number::format_fin_timeout(*idle, *hard),
        Action::DecTtl { controllers } => header::format_dec_ttl(controllers),
        Action::SetNwTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::SetTpSrc(port) => format!("mod_tp_src:{port}"),
        Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
        Action::CopyTtlOut => "copy_ttl_out".to_owned(),
        Action::CopyTtlIn => "copy_ttl_in".to_owned(),
        Action::PushVlan { ethertype } => format!("push_vlan:{ethertype:#06x}"),
        Action::PopVlan => "pop_vlan".to_owned(),
        Action::PushMpls { ethertype } => format!("push_mpls:{ethertype:#06x}"),
        Action::PopMpls { ethertype } => format!("pop_mpls:{ethertype:#06x}"),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".to_owned(),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::PopQueue { .. } => "pop_queue".to_owned(),
        Action::Group(group) => format!("group:{group}"),
        Action::Meter(meter) => format!("meter:{meter}"),
        Action::Conjunction { id, clause, clauses_count } => {
            format!("conjunction({id},{}/{clauses_count})", u16::from(*clause) + 1)
        }
        Action::Note(bytes) => format!("note:{}", dotted_hex(bytes)),
        Action::CtClear => "ct_clear".to_owned(),
        Action::Exit => "exit".to_owned(),
    }
}
