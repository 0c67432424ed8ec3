//! `learn`: adds a rule with values from the packet.
//!
//! The arguments list the matches and actions of the learned rule:
//!
//! - `FIELD[..]` matches the value that the packet has in the field.
//! - `FIELD[..]=FIELD[..]` matches the value that the packet has in the second field.
//! - `FIELD[..]=VALUE` matches a constant.
//! - `load:FIELD[..]->FIELD[..]` and `load:VALUE->FIELD[..]` write a field.
//! - `output:FIELD[..]` sends to the port in the field.
//!
//! The value of a whole field has the format of a match. The value of a part of a field is a
//! number.

use shunt_classifier::Priority;
use shunt_flow::{
    PortNo,
    field::Format,
    text::{MatchError, format_value, hex, parse_value},
};

use super::{
    super::{
        RuleTextError, RuleTextProblem,
        number::{self, parse_as},
        scope::Scope,
        slice::{Item, TextSlice},
        subfield::{self, Writes},
    },
    bits::{of_one_width, one_bit, value_for},
};
use crate::{
    action::{Action, LearnAction, LearnSource, LearnSpec, LearnTarget, Subfield},
    id::{Cookie, TableId},
};

/// Reads the arguments of `learn(..)`.
pub(super) fn parse(argument: TextSlice<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let mut learn = blank().ok_or_else(|| argument.bad("learn", LEARN_FORM))?;
    let mut specs = Vec::new();
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        let seconds = || parse_as(value, "a number of seconds", u16::MAX);
        match item.name.text() {
            "table" => learn.table = number::table(value)?,
            "priority" => learn.priority = Priority::new(parse_as(value, "a priority", u16::MAX)?),
            "cookie" => learn.cookie = Cookie::new(number::cookie(value)?),
            "idle_timeout" => learn.idle_timeout = seconds()?,
            "hard_timeout" => learn.hard_timeout = seconds()?,
            "fin_idle_timeout" => learn.fin_idle_timeout = seconds()?,
            "fin_hard_timeout" => learn.fin_hard_timeout = seconds()?,
            "send_flow_rem" => {
                item.no_argument("send_flow_rem")?;
                learn.send_flow_removed = true;
            }
            "delete_learned" => {
                item.no_argument("delete_learned")?;
                learn.delete_learned = true;
            }
            "limit" => learn.limit = parse_as(value, "a limit", u32::MAX)?,
            "result_dst" => learn.result = Some(one_bit(value)?),
            "load" => specs.push(load_spec(value)?),
            "output" => specs.push(output_spec(value)?),
            _ => specs.push(parse_match(item, scope)?),
        }
    }
    learn.specs = specs.into();
    Ok(Action::Learn(Box::new(learn)))
}

/// Returns a `learn` without matches and actions, for a rule of table 1.
fn blank() -> Option<LearnAction> {
    Some(LearnAction {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: Priority::DEFAULT,
        cookie: Cookie::new(0),
        table: TableId::new(1)?,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Box::default(),
    })
}

/// Parses `FIELD[..]`, `FIELD[..]=FIELD[..]` or `FIELD[..]=VALUE`.
fn parse_match(item: Item<'_>, scope: &Scope<'_>) -> Result<LearnSpec, RuleTextError> {
    let target = parse_short_subfield(item.name)?;
    let source = match item.argument {
        None => LearnSource::Field(target),
        Some(value) if subfield::is_named(value) => {
            let source = parse_short_subfield(value)?;
            of_one_width(source, target, value)?;
            LearnSource::Field(source)
        }
        Some(value) => LearnSource::Value(parse_learned_value(target, value, scope)?),
    };
    Ok(LearnSpec { source, width: target.width, target: LearnTarget::Match(target) })
}

/// Parses `load:FIELD[..]->FIELD[..]` or `load:VALUE->FIELD[..]`.
fn load_spec(argument: TextSlice<'_>) -> Result<LearnSpec, RuleTextError> {
    let parts = argument.split_once("->");
    let form = "load:VALUE->FIELD[..] or load:FIELD[..]->FIELD[..]";
    let (value, name) = parts.ok_or_else(|| argument.bad("learn", form))?;
    let target = subfield::parse_target(name, Writes::Packet)?;
    subfield::require_short(target).map_err(|problem| name.error(problem))?;
    let source = if subfield::is_named(value) {
        let source = parse_short_subfield(value)?;
        of_one_width(source, target, argument)?;
        LearnSource::Field(source)
    } else {
        LearnSource::Value(value_for(target, value)?)
    };
    Ok(LearnSpec { source, width: target.width, target: LearnTarget::Load(target) })
}

/// Parses `output:FIELD[..]`.
fn output_spec(argument: TextSlice<'_>) -> Result<LearnSpec, RuleTextError> {
    let source = parse_short_subfield(argument)?;
    let (width, source) = (source.width, LearnSource::Field(source));
    Ok(LearnSpec { source, width, target: LearnTarget::Output })
}

/// Reads bits of a field that `learn` can name.
fn parse_short_subfield(slice: TextSlice<'_>) -> Result<Subfield, RuleTextError> {
    let bits = subfield::parse(slice)?;
    subfield::require_short(bits).map_err(|problem| slice.error(problem))
}

/// Reads the value that a learned rule matches or writes.
fn parse_learned_value(
    target: Subfield,
    text: TextSlice<'_>,
    scope: &Scope<'_>,
) -> Result<u128, RuleTextError> {
    let field = target.field;
    if subfield::whole_name(target).is_none() {
        return value_for(target, text);
    }
    let value = if field.info().format == Format::Port {
        port_value(target, scope.port(text)?)
    } else {
        let (value, mask) =
            parse_value(field, text.text()).map_err(|error| text.error(error.into()))?;
        if mask != field.value_max() {
            return Err(text.error(MatchError::Unmaskable(field.name()).into()));
        }
        Some(value)
    };
    // `vlan_vid` and `in_port` have fewer bits in a `learn` than in a flow key.
    value.filter(|value| value & !target.bits() == 0).ok_or_else(|| {
        let (of, max, text_found) = ("a value of this width", target.bits(), text.text());
        text.error(RuleTextProblem::BadNumber { of, max, text: text_found.to_owned() })
    })
}

/// Returns a port number as bits of a field.
///
/// In 16 bits, a reserved port has its number of OpenFlow 1.0.
fn port_value(target: Subfield, port: PortNo) -> Option<u128> {
    match port.reserved_name() {
        Some(_) => Some(u128::from(port.number()) & target.bits()),
        None => Some(u128::from(port.number())).filter(|_| PortNo::widened(port.number()) == port),
    }
}

/// Prints `learn`.
pub(super) fn format(learn: &LearnAction) -> String {
    let mut items = vec![format!("table={}", learn.table)];
    let mut number = |name: &str, value: u16| {
        if value != 0 {
            items.push(format!("{name}={value}"));
        }
    };
    number("idle_timeout", learn.idle_timeout);
    number("hard_timeout", learn.hard_timeout);
    number("fin_idle_timeout", learn.fin_idle_timeout);
    number("fin_hard_timeout", learn.fin_hard_timeout);
    if learn.priority != Priority::DEFAULT {
        items.push(format!("priority={}", learn.priority));
    }
    if learn.send_flow_removed {
        items.push("send_flow_rem".to_owned());
    }
    if learn.delete_learned {
        items.push("delete_learned".to_owned());
    }
    if learn.cookie != Cookie::new(0) {
        items.push(format!("cookie={}", learn.cookie));
    }
    if learn.limit != 0 {
        items.push(format!("limit={}", learn.limit));
    }
    if let Some(bit) = learn.result {
        items.push(format!("result_dst={}", subfield::format(bit)));
    }
    items.extend(learn.specs.iter().map(format_spec));
    format!("learn({})", items.join(","))
}

/// Formats one spec of a `learn` action.
fn format_spec(spec: &LearnSpec) -> String {
    match (&spec.target, &spec.source) {
        (LearnTarget::Match(target), LearnSource::Field(source)) if source == target => {
            subfield::format(*target)
        }
        (LearnTarget::Match(target), LearnSource::Value(value)) => {
            format_match_value(*target, *value)
        }
        (LearnTarget::Match(target), source) => {
            format!("{}={}", subfield::format(*target), format_source(source))
        }
        (LearnTarget::Load(target), source) => {
            format!("load:{}->{}", format_source(source), subfield::format(*target))
        }
        (LearnTarget::Output, source) => format!("output:{}", format_source(source)),
    }
}

/// Formats the source of a spec: a field or a value.
fn format_source(source: &LearnSource) -> String {
    match source {
        LearnSource::Field(source) => subfield::format(*source),
        LearnSource::Value(value) => hex(*value),
    }
}

/// Prints a value of a learned rule.
/// A whole field is printed in the format of the field.
fn format_match_value(target: Subfield, value: u128) -> String {
    let field = target.field;
    let number = u32::try_from(value).ok().filter(|_| field.info().format == Format::Port);
    match (subfield::whole_name(target), number) {
        (None, _) => format!("{}={}", subfield::format(target), hex(value)),
        (Some(name), None) => format!("{name}={}", format_value(field, value, field.value_max())),
        (Some(name), Some(number)) if target.width == field.width() => {
            format!("{name}={}", PortNo::new(number))
        }
        (Some(name), Some(number)) => format!("{name}={}", PortNo::widened(number)),
    }
}

/// The form of a `learn` action, for error messages.
const LEARN_FORM: &str = "learn(table=TABLE,FIELD[..]=VALUE,..,load:VALUE->FIELD[..],..)";
