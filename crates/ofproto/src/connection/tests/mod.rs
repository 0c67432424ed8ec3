//! Tests of the connection, with both ends in one thread.

mod bundles;
mod events;
mod flow_monitor_order;
mod flow_monitors;
mod groups;
pub(crate) mod log;
mod malformed;
mod negotiation;
mod order;
mod ovs_ofctl;
mod queues;
mod roles;

use shunt_flow::Match;
use shunt_pipeline::{
    Action, Cookie, FlowFlags, FlowMod, FlowModCommand, Instructions, Priority, RuleFilter,
    TableId, TableSelector,
};

use self::log::logs_of;
use crate::{
    ErrorCode,
    message::{ErrorMessage, Message},
};

/// Returns a flow-mod that adds a rule without actions at `priority`.
fn add(priority: u16) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Add,
        table: TableSelector::One(TableId::FIRST),
        matching: Match::any(),
        priority: Priority::new(priority),
        cookie: Cookie::new(priority.into()),
        cookie_mask: 0,
        idle_timeout: std::time::Duration::ZERO,
        hard_timeout: std::time::Duration::ZERO,
        importance: 0,
        flags: FlowFlags::default(),
        out_port: shunt_flow::PortNo::ANY,
        out_group: RuleFilter::GROUP_ANY,
        instructions: Instructions::default(),
    }
}

/// Returns a flow-mod that adds a rule with notes of `length` bytes.
fn add_long(priority: u16, length: usize) -> FlowMod {
    let note = Action::Note(vec![7; length].into());
    let instructions = Instructions { apply: Box::new([note]), ..Instructions::default() };
    FlowMod { instructions, ..add(priority) }
}

/// Returns the code of an error message.
fn code(message: &Message) -> Option<ErrorCode> {
    let Message::Error(ErrorMessage { number, .. }) = message else { return None };
    ErrorCode::ALL.iter().copied().find(|code| code.number() == *number)
}
