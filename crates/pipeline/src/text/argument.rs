//! Arguments of actions that send a packet somewhere, or say how.

use shunt_flow::{PortNo, text::integer};

use super::{
    RuleTextError, RuleTextProblem,
    number::{self, parse_as},
    piece::Piece,
    scope::Scope,
    subfield,
};
use crate::{Action, ControllerAction, PacketInReason, TableId};

/// Bytes of a packet-in when the rule names no number (`OFPCML_NO_BUFFER`).
pub(super) const WHOLE_PACKET: u16 = u16::MAX;

/// Names of the reasons of packet-ins.
pub(super) const REASONS: [(&str, PacketInReason); 6] = [
    ("no_match", PacketInReason::NoMatch),
    ("action", PacketInReason::Action),
    ("invalid_ttl", PacketInReason::InvalidTtl),
    ("action_set", PacketInReason::ActionSet),
    ("group", PacketInReason::Group),
    ("packet_out", PacketInReason::PacketOut),
];

/// `output:PORT`, `output:FIELD[..]`, `output(port=PORT,max_len=BYTES)`.
pub(super) fn output(argument: Piece<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    if argument.is_empty() {
        return Err(argument.error(bad(argument, "output", "output:PORT")));
    }
    if let Some(port) = scope.find_port(argument.text()) {
        return output_to(port, argument);
    }
    if argument.text().contains('=') {
        return truncated(argument, scope);
    }
    let source = subfield::parse(argument).map_err(|error| match error.problem {
        // A single word is more likely to be a port.
        RuleTextProblem::UnknownField { name, nearest: None } => {
            argument.error(RuleTextProblem::UnknownPort { name })
        }
        _ => error,
    })?;
    Ok(Action::OutputField { source, max_len: WHOLE_PACKET })
}

/// Sends to a port.
pub(super) fn output_to(port: PortNo, at: Piece<'_>) -> Result<Action, RuleTextError> {
    match port {
        PortNo::CONTROLLER => Ok(Action::Output { port, max_len: WHOLE_PACKET }),
        PortNo::NORMAL => Err(at.error(RuleTextProblem::NotYet("normal"))),
        PortNo::ANY => Err(at.error(RuleTextProblem::BadPort { port, action: "output" })),
        _ if port > PortNo::MAX && port.reserved_name().is_none() => {
            Err(at.error(RuleTextProblem::BadPort { port, action: "output" }))
        }
        _ => Ok(Action::Output { port, max_len: 0 }),
    }
}

/// `output(port=PORT,max_len=BYTES)`: only to a single port, and at least an Ethernet header.
fn truncated(argument: Piece<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let (mut port, mut max_len) = (None, None);
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        match item.name.text() {
            "port" => port = Some(single_port(value, scope, "output")?),
            "max_len" => max_len = Some(parse_as(value, "a length", u32::MAX)?),
            _ => return Err(item.name.error(bad(item.name, "output", TRUNCATED_FORM))),
        }
    }
    match (port, max_len) {
        (Some(port), Some(max_len)) if max_len >= ETHERNET_HEADER => {
            Ok(Action::OutputTruncated { port, max_len })
        }
        _ => Err(argument.error(bad(argument, "output", TRUNCATED_FORM))),
    }
}

/// `enqueue:PORT:QUEUE`, `enqueue(PORT,QUEUE)`: an output between a change of queue and back.
pub(super) fn enqueue(
    argument: Piece<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<Action>, RuleTextError> {
    let parts = argument.split_once(":").or_else(|| argument.split_once(","));
    let (port, queue) =
        parts.ok_or_else(|| argument.error(bad(argument, "enqueue", "enqueue:PORT:QUEUE")))?;
    let port = single_port(port, scope, "enqueue")?;
    Ok(vec![set_queue(queue)?, Action::Output { port, max_len: 0 }, Action::PopQueue])
}

/// `set_queue:QUEUE`.
pub(super) fn set_queue(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    parse_as(argument, "a queue", u32::MAX).map(Action::SetQueue)
}

/// `controller`, `controller:BYTES`, `controller(KEY=VALUE..)`.
///
/// What an output to the controller can say is one: that is how it is kept and printed.
pub(super) fn controller(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    let mut action = ControllerAction {
        max_len: WHOLE_PACKET,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::default(),
    };
    if integer(argument.text()).is_some() {
        action.max_len = parse_as(argument, "a length", u16::MAX)?;
        return Ok(simplest(action));
    }
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        match item.name.text() {
            "max_len" => action.max_len = parse_as(value, "a length", u16::MAX)?,
            "id" => action.controller_id = parse_as(value, "a controller's id", u16::MAX)?,
            "reason" => action.reason = reason(value)?,
            "userdata" => action.userdata = number::parse_dotted_hex(value)?,
            "pause" => return Err(item.name.error(RuleTextProblem::NotYet("pause"))),
            "meter_id" => return Err(item.name.error(RuleTextProblem::NotYet("meter"))),
            _ => return Err(item.name.error(bad(item.name, "controller", CONTROLLER_FORM))),
        }
    }
    Ok(simplest(action))
}

fn simplest(action: ControllerAction) -> Action {
    let plain = action.controller_id == 0
        && action.reason == PacketInReason::Action
        && action.userdata.is_empty();
    if plain {
        Action::Output { port: PortNo::CONTROLLER, max_len: action.max_len }
    } else {
        Action::Controller(Box::new(action))
    }
}

fn reason(value: Piece<'_>) -> Result<PacketInReason, RuleTextError> {
    let named = REASONS.into_iter().find(|(name, _)| *name == value.text());
    let form = "reason=no_match|action|invalid_ttl|action_set|group|packet_out";
    named.map(|(_, reason)| reason).ok_or_else(|| value.error(bad(value, "controller", form)))
}

/// `resubmit:PORT`, `resubmit([PORT],[TABLE])`.
pub(super) fn resubmit(argument: Piece<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let form = "resubmit:PORT or resubmit([PORT],TABLE)";
    if argument.is_empty() {
        return Err(argument.error(bad(argument, "resubmit", form)));
    }
    let mut parts = argument.list();
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let port = next().map(|port| scope.port(port)).transpose()?;
    let table = next();
    if let Some(rest) = next() {
        let problem = match rest.text() {
            "ct" => RuleTextProblem::NotYet("ct"),
            _ => bad(rest, "resubmit", form),
        };
        return Err(rest.error(problem));
    }
    let table = match table {
        Some(number) if number.text() == "255" => None,
        Some(number) => Some(self::table(number)?),
        None => None,
    };
    Ok(Action::Resubmit { port: port.filter(|port| *port != PortNo::IN_PORT), table })
}

/// A table that rules may name.
pub(super) fn table(argument: Piece<'_>) -> Result<TableId, RuleTextError> {
    let number = integer(argument.text()).and_then(|number| u8::try_from(number).ok());
    number.and_then(TableId::new).ok_or_else(|| {
        let (text, max) = (argument.text().to_owned(), TableId::MAX.number().into());
        argument.error(RuleTextProblem::BadNumber { text, of: "a table", max })
    })
}

/// Value and mask of `write_metadata`.
pub(super) fn metadata(argument: Piece<'_>) -> Result<(u64, u64), RuleTextError> {
    let of = "metadata";
    match argument.split_once("/") {
        Some((value, mask)) => Ok((parse_as(value, of, u64::MAX)?, parse_as(mask, of, u64::MAX)?)),
        None => Ok((parse_as(argument, of, u64::MAX)?, u64::MAX)),
    }
}

/// `note[:HEX]`: padded as on the wire, where an action is a multiple of eight bytes.
pub(super) fn note(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    let mut bytes = number::parse_dotted_hex(argument)?.into_vec();
    let length = (bytes.len() + NOTE_HEADER).next_multiple_of(8) - NOTE_HEADER;
    bytes.resize(length, 0);
    Ok(Action::Note(bytes.into()))
}

/// `push_vlan:TPID`.
pub(super) fn push_vlan(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    match integer(argument.text()) {
        Some(0x8100) => Ok(Action::PushVlan { ethertype: 0x8100 }),
        Some(0x88a8) => Ok(Action::PushVlan { ethertype: 0x88a8 }),
        _ => {
            let form = "push_vlan:0x8100 or push_vlan:0x88a8";
            Err(argument.error(bad(argument, "push_vlan", form)))
        }
    }
}

/// `dec_ttl`, `dec_ttl(ID,..)`.
pub(super) fn dec_ttl(argument: Piece<'_>) -> Result<Action, RuleTextError> {
    if argument.is_empty() {
        return Ok(Action::DecTtl { controllers: Box::new([0]) });
    }
    let ids = argument.list().map(|id| parse_as(id, "a controller's id", u16::MAX));
    Ok(Action::DecTtl { controllers: ids.collect::<Result<_, _>>()? })
}

/// A port that is one port, whatever the packet.
fn single_port(
    piece: Piece<'_>,
    scope: &Scope<'_>,
    action: &'static str,
) -> Result<PortNo, RuleTextError> {
    let port = scope.port(piece)?;
    let single = port <= PortNo::MAX || matches!(port, PortNo::IN_PORT | PortNo::LOCAL);
    if single { Ok(port) } else { Err(piece.error(RuleTextProblem::BadPort { port, action })) }
}

/// That the piece is not what the action takes.
pub(super) fn bad(piece: Piece<'_>, action: &'static str, form: &'static str) -> RuleTextProblem {
    RuleTextProblem::BadArgument { action, text: piece.text().to_owned(), form }
}

const TRUNCATED_FORM: &str = "output(port=PORT,max_len=BYTES) with at least 14 bytes";
const CONTROLLER_FORM: &str = "controller(max_len=BYTES,id=ID,reason=REASON,userdata=HEX)";
/// Bytes that an output cannot cut off.
const ETHERNET_HEADER: u32 = 14;
/// Bytes of `struct nx_action_note` before the note.
const NOTE_HEADER: usize = 10;
