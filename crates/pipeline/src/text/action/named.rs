//! Actions by name.
//!
//! Some actions of OpenFlow 1.0 become several actions of OpenFlow 1.3. `enqueue` sets a queue,
//! outputs the packet, and restores the queue. `mod_vlan_vid` first pushes a tag if the packet has
//! none.

use shunt_flow::text::nearest_of;

use super::{
    super::{
        RuleTextError, RuleTextProblem, names,
        number::{group, meter},
        scope::Scope,
        slice::Item,
        subfield::Writes,
    },
    bits, conntrack, hash, header, learn, number, output,
};
use crate::action::Action;

/// Reads one action other than `drop` and `clone`; `name` is in lower case.
pub(super) fn parse(
    name: &str,
    item: Item<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Action>, RuleTextError> {
    let argument = item.argument_or_end();
    match name {
        "enqueue" => output::enqueue(argument, scope),
        "load" => bits::load(argument, Writes::Packet),
        "mod_vlan_vid" => header::vlan_vid(argument, scope, header::VlanTagPolicy::PushIfNone),
        "mod_vlan_pcp" => header::vlan_pcp(argument, scope, header::VlanTagPolicy::PushIfNone),
        "set_vlan_vid" => header::vlan_vid(argument, scope, header::VlanTagPolicy::Present),
        "set_vlan_pcp" => header::vlan_pcp(argument, scope, header::VlanTagPolicy::Present),
        _ => parse_single(name, item, scope).map(|action| vec![action]),
    }
}

/// Parses one action by its name.
fn parse_single(name: &str, item: Item<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let argument = item.argument_or_end();
    match name {
        "output" => output::output(argument, scope),
        "controller" => output::controller(argument),
        "resubmit" => output::resubmit(argument, scope),
        "bundle" => hash::bundle(argument, scope),
        "bundle_load" => hash::bundle_load(argument, scope),
        "multipath" => hash::multipath(argument),
        "learn" => learn::parse(argument, scope),
        "ct" => conntrack::ct(argument),
        "nat" => Err(item.name.error(RuleTextProblem::OutsideCt("nat"))),
        "move" => bits::parse_move(argument, Writes::Packet),
        "push" => bits::push(argument),
        "pop" => bits::pop(argument),
        "check_pkt_larger" => bits::check_pkt_larger(argument),
        "set_queue" => output::set_queue(argument),
        "group" => group(argument).map(Action::Group),
        "meter" => meter(argument).map(Action::Meter),
        "conjunction" => number::conjunction(argument),
        "fin_timeout" => number::fin_timeout(argument),
        "sample" => number::sample(argument, scope),
        "note" => number::note(argument),
        "set_field" => header::set_field(argument, scope.writes()),
        "mod_nw_tos" => header::tos(argument),
        "mod_nw_ttl" | "set_nw_ttl" => header::ttl(argument).map(Action::SetNwTtl),
        "mod_tp_src" => header::transport(argument, scope, header::End::Source),
        "mod_tp_dst" => header::transport(argument, scope, header::End::Target),
        "dec_ttl" => header::dec_ttl(item.argument),
        "push_vlan" => header::push_vlan(argument),
        "push_mpls" => header::push_mpls(argument),
        "pop_mpls" => header::pop_mpls(argument),
        "set_mpls_ttl" => header::ttl(argument).map(Action::SetMplsTtl),
        _ => match (alone(name), header::field_of(name)) {
            (Some((name, action)), _) => item.no_argument(name).map(|()| action),
            (None, Some(field)) => header::whole(field, argument),
            (None, None) => port(item, scope),
        },
    }
}

/// Actions that take no argument.
fn alone(name: &str) -> Option<(&'static str, Action)> {
    Some(match name {
        "pop_queue" => ("pop_queue", Action::PopQueue { ends_enqueue: false }),
        "exit" => ("exit", Action::Exit),
        "pop_vlan" | "strip_vlan" => ("pop_vlan", Action::PopVlan),
        "dec_mpls_ttl" => ("dec_mpls_ttl", Action::DecMplsTtl),
        "copy_ttl_out" => ("copy_ttl_out", Action::CopyTtlOut),
        "copy_ttl_in" => ("copy_ttl_in", Action::CopyTtlIn),
        "ct_clear" => ("ct_clear", Action::CtClear),
        _ => return None,
    })
}

/// Reads a port without an action name, which is an output to the port.
fn port(item: Item<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let name = item.name.text();
    if let Some(port) = scope.find_port(name) {
        return match item.argument {
            None => output::output_to(port, item.name),
            Some(argument) => Err(argument.bad("output", "the port alone, or output:PORT")),
        };
    }
    let nearest = nearest_of(name, names::ACTIONS.iter().copied());
    Err(item.name.error(RuleTextProblem::UnknownAction { name: name.to_owned(), nearest }))
}
