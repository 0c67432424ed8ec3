//! Outputs, queues, packet-ins and resubmissions.

use shunt_flow::{
    PortNo,
    text::{PortNames, format_port, integer},
};

use super::super::{
    RuleTextError, RuleTextProblem,
    number::{self, dotted_hex, parse_as},
    scope::Scope,
    slice::TextSlice,
    subfield,
};
use crate::{
    action::{Action, ControllerAction, PacketInReason},
    id::{MeterId, TableId},
};

/// Parses `output:PORT`, `output:FIELD[..]` or `output(port=PORT,max_len=BYTES)`.
pub(super) fn output(argument: TextSlice<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    if argument.is_empty() {
        return Err(argument.bad("output", "output:PORT"));
    }
    if let Some(port) = scope.find_port(argument.text()) {
        return output_to(port, argument);
    }
    if argument.text().contains('=') {
        return parse_truncated(argument, scope);
    }
    let source = subfield::parse(argument).map_err(|error| match error.problem {
        // A word without a similar field name is more likely meant as a port.
        RuleTextProblem::UnknownField { name, nearest: None } => {
            argument.error(RuleTextProblem::UnknownPort { name })
        }
        _ => error,
    })?;
    Ok(Action::OutputField { source, max_len: WHOLE_PACKET })
}

/// Returns the output to a port, or an error if nothing can be sent to the port.
pub(super) fn output_to(port: PortNo, at: TextSlice<'_>) -> Result<Action, RuleTextError> {
    match port {
        PortNo::CONTROLLER => Ok(Action::Output { port, max_len: WHOLE_PACKET }),
        PortNo::ANY => Err(at.error(RuleTextProblem::BadPort { port, action: "output" })),
        _ if port > PortNo::MAX && port.reserved_name().is_none() => {
            Err(at.error(RuleTextProblem::BadPort { port, action: "output" }))
        }
        _ => Ok(Action::Output { port, max_len: 0 }),
    }
}

/// Parses `output(port=PORT,max_len=BYTES)`, which truncates the packet.
/// The length is at least that of an Ethernet header.
fn parse_truncated(argument: TextSlice<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let (mut port, mut max_len) = (None, None);
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        match item.name.text() {
            "port" => port = Some(single_port(value, scope, "output")?),
            "max_len" => max_len = Some(parse_as(value, "a length", u32::MAX)?),
            _ => return Err(item.name.bad("output", TRUNCATED_FORM)),
        }
    }
    match (port, max_len) {
        (Some(port), Some(max_len)) if max_len >= ETHERNET_HEADER => {
            Ok(Action::OutputTruncated { port, max_len })
        }
        _ => Err(argument.bad("output", TRUNCATED_FORM)),
    }
}

/// Prints an output to a port.
pub(super) fn format_output(port: PortNo, max_len: u16, ports: &dyn PortNames) -> String {
    match port {
        PortNo::CONTROLLER => format!("CONTROLLER:{max_len}"),
        _ if port.reserved_name().is_some() => port.to_string(),
        _ => format!("output:{}", format_port(port, ports)),
    }
}

/// Parses `enqueue:PORT:QUEUE` or `enqueue(PORT,QUEUE)`.
/// The result sets a queue, outputs the packet, and restores the queue.
pub(super) fn enqueue(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Action>, RuleTextError> {
    let parts = argument.split_once(":").or_else(|| argument.split_once(","));
    let (port, queue) = parts.ok_or_else(|| argument.bad("enqueue", "enqueue:PORT:QUEUE"))?;
    let port = single_port(port, scope, "enqueue")?;
    // A saved rule may be one of OpenFlow 1.0, which lists this action again.
    let end = Action::PopQueue { ends_enqueue: scope.is_saved() };
    Ok(vec![set_queue(queue)?, Action::Output { port, max_len: 0 }, end])
}

/// Parses `set_queue:QUEUE`.
pub(super) fn set_queue(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    parse_as(argument, "a queue", u32::MAX).map(Action::SetQueue)
}

/// Parses `controller`, `controller:BYTES` or `controller(KEY=VALUE..)`.
///
/// A `controller` that an output to port CONTROLLER can express is stored and printed as an output.
pub(super) fn controller(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let mut action = default_controller();
    if integer(argument.text()).is_some() {
        action.max_len = parse_as(argument, "a length", u16::MAX)?;
        return Ok(simplify(action));
    }
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        match item.name.text() {
            "max_len" => action.max_len = parse_as(value, "a length", u16::MAX)?,
            "id" => action.controller_id = parse_as(value, "a controller's id", u16::MAX)?,
            "reason" => action.reason = reason(value)?,
            "userdata" => action.userdata = number::parse_dotted_hex(value)?,
            "pause" => {
                item.no_argument("pause")?;
                action.pause = true;
            }
            "meter_id" => {
                let id = parse_as(value, "a meter", MeterId::MAX.number())?;
                action.meter = (id != 0).then(|| MeterId::new(id));
            }
            _ => return Err(item.name.bad("controller", CONTROLLER_FORM)),
        }
    }
    Ok(simplify(action))
}

/// Returns a plain output instead of a controller action with defaults.
fn simplify(action: ControllerAction) -> Action {
    let max_len = action.max_len;
    if action == (ControllerAction { max_len, ..default_controller() }) {
        Action::Output { port: PortNo::CONTROLLER, max_len }
    } else {
        Action::Controller(Box::new(action))
    }
}

/// Returns a `controller` action with default options.
fn default_controller() -> ControllerAction {
    ControllerAction {
        max_len: WHOLE_PACKET,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::default(),
        meter: None,
        pause: false,
    }
}

/// Parses the reason of a packet-in.
fn reason(value: TextSlice<'_>) -> Result<PacketInReason, RuleTextError> {
    let named = PacketInReason::ALL.into_iter().find(|reason| reason.name() == value.text());
    let form = "reason=no_match|action|invalid_ttl|action_set|group|packet_out";
    named.ok_or_else(|| value.bad("controller", form))
}

/// Prints `controller`.
pub(super) fn format_controller(action: &ControllerAction) -> String {
    let mut items = Vec::new();
    if action.reason != PacketInReason::Action {
        items.push(format!("reason={}", action.reason.name()));
    }
    if action.max_len != WHOLE_PACKET {
        items.push(format!("max_len={}", action.max_len));
    }
    if action.controller_id != 0 {
        items.push(format!("id={}", action.controller_id));
    }
    if !action.userdata.is_empty() {
        items.push(format!("userdata={}", dotted_hex(&action.userdata)));
    }
    if action.pause {
        items.push("pause".to_owned());
    }
    if let Some(meter) = action.meter {
        items.push(format!("meter_id={meter}"));
    }
    format!("controller({})", items.join(","))
}

/// Parses `resubmit:PORT` or `resubmit([PORT],[TABLE])`.
pub(super) fn resubmit(
    argument: TextSlice<'_>,
    scope: &Scope<'_>,
) -> Result<Action, RuleTextError> {
    let form = "resubmit:PORT or resubmit([PORT],TABLE)";
    if argument.is_empty() {
        return Err(argument.bad("resubmit", form));
    }
    let mut parts = argument.list();
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let port = next().map(|port| scope.port(port)).transpose()?;
    let table = next();
    if let Some(rest) = next() {
        return Err(match rest.text() {
            "ct" => rest.error(RuleTextProblem::NotYet("resubmit(..,ct)")),
            _ => rest.bad("resubmit", form),
        });
    }
    let table = match table {
        Some(number) if number.text() == "255" => None,
        Some(number) => Some(number::table(number)?),
        None => None,
    };
    Ok(Action::Resubmit { port: port.filter(|port| *port != PortNo::IN_PORT), table })
}

/// Prints `resubmit`.
pub(super) fn format_resubmit(
    port: Option<PortNo>,
    table: Option<TableId>,
    ports: &dyn PortNames,
) -> String {
    let port_text = port.map_or_else(String::new, |port| format_port(port, ports));
    match (port, table) {
        (Some(_), None) => format!("resubmit:{port_text}"),
        (None, None) => "resubmit(,)".to_owned(),
        (_, Some(table)) => format!("resubmit({port_text},{table})"),
    }
}

/// Reads a port; refuses reserved ports that depend on the packet, such as ALL.
fn single_port(
    slice: TextSlice<'_>,
    scope: &Scope<'_>,
    action: &'static str,
) -> Result<PortNo, RuleTextError> {
    let port = scope.port(slice)?;
    let single = port <= PortNo::MAX || matches!(port, PortNo::IN_PORT | PortNo::LOCAL);
    if single { Ok(port) } else { Err(slice.error(RuleTextProblem::BadPort { port, action })) }
}

/// Bytes of a packet-in when the rule names no number (`OFPCML_NO_BUFFER`).
const WHOLE_PACKET: u16 = u16::MAX;
/// The form of an `output` that truncates packets, for error messages.
const TRUNCATED_FORM: &str = "output(port=PORT,max_len=BYTES) with at least 14 bytes";
/// The form of a `controller` action, for error messages.
const CONTROLLER_FORM: &str =
    "controller(max_len=BYTES,id=ID,reason=REASON,userdata=HEX,pause,meter_id=METER)";
/// Smallest length in bytes to which an output truncates.
const ETHERNET_HEADER: u32 = 14;
