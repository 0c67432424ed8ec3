//! Actions by name.
//!
//! Some names of OpenFlow 1.0 stand for several actions of 1.3: `enqueue` is a queue, an output
//! and the old queue again; `mod_vlan_vid` pushes the tag that it writes if there is none.

use shunt_flow::text::nearest_of;

use super::{RuleTextError, RuleTextProblem, argument, header, names, piece::Item, scope::Scope};
use crate::Action;

/// Reads one action other than `drop` and `clone`; `name` is its name in lower case.
pub(super) fn parse(
    name: &str,
    item: Item<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Action>, RuleTextError> {
    let argument = item.argument_or_end();
    match name {
        "enqueue" => argument::enqueue(argument, scope),
        "load" => header::load(argument),
        "mod_vlan_vid" => header::vlan_vid(argument, scope, header::Tag::PushIfNone),
        "mod_vlan_pcp" => header::vlan_pcp(argument, scope, header::Tag::PushIfNone),
        "set_vlan_vid" => header::vlan_vid(argument, scope, header::Tag::Present),
        "set_vlan_pcp" => header::vlan_pcp(argument, scope, header::Tag::Present),
        _ => single(name, item, scope).map(|action| vec![action]),
    }
}

fn single(name: &str, item: Item<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let argument = item.argument_or_end();
    match name {
        "output" => argument::output(argument, scope),
        "controller" => argument::controller(argument),
        "resubmit" => argument::resubmit(argument, scope),
        "set_queue" => argument::set_queue(argument),
        "pop_queue" => item.no_argument("pop_queue").map(|()| Action::PopQueue),
        "note" => argument::note(argument),
        "exit" => item.no_argument("exit").map(|()| Action::Exit),
        "push_vlan" => argument::push_vlan(argument),
        "pop_vlan" | "strip_vlan" => item.no_argument("pop_vlan").map(|()| Action::PopVlan),
        "dec_ttl" => argument::dec_ttl(argument),
        "set_field" => header::set_field(argument),
        "move" => header::moved(argument),
        "mod_nw_tos" => header::tos(argument),
        "mod_tp_src" => header::transport(argument, scope, header::End::Source),
        "mod_tp_dst" => header::transport(argument, scope, header::End::Target),
        _ => match header::field_of(name) {
            Some(field) => header::whole(field, argument),
            None => port(item, scope),
        },
    }
}

/// A port alone is an output to it.
fn port(item: Item<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let name = item.name.text();
    if item.argument.is_none()
        && let Some(port) = scope.find_port(name)
    {
        return argument::output_to(port, item.name);
    }
    let nearest = nearest_of(name, names::ACTIONS.iter().copied());
    Err(item.name.error(RuleTextProblem::UnknownAction { name: name.to_owned(), nearest }))
}
