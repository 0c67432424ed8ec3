//! Actions that read or write some bits of a field.

use super::super::{
    RuleTextError, RuleTextProblem,
    number::parse_as,
    slice::{ARROW, TextSlice},
    subfield::{self, Writes},
};
use crate::action::{Action, Subfield};

/// Parses `load:VALUE->FIELD[..]`; a field of more than 64 bits takes two loads.
pub(super) fn load(argument: TextSlice<'_>, writes: Writes) -> Result<Vec<Action>, RuleTextError> {
    let parts = argument.split_once("->");
    let (text, target) =
        parts.ok_or_else(|| argument.bad("load", "load:VALUE->FIELD[FIRST..LAST]"))?;
    let target = subfield::parse_target(target, writes)?;
    let value = value_for(target, text)?;
    let width = target.width;
    let halves = [(0, width.min(64)), (64, width.saturating_sub(64))];
    let part = |(offset, width): (u8, u8)| {
        let target = Subfield::new(target.field, target.offset.checked_add(offset)?, width)?;
        let value =
            u64::try_from(value.unbounded_shr(offset.into()) & u128::from(u64::MAX)).ok()?;
        Some(Action::Load { target, value })
    };
    Ok(halves.into_iter().filter_map(part).collect())
}

/// Reads a number that fits into bits of a field.
pub(super) fn value_for(target: Subfield, text: TextSlice<'_>) -> Result<u128, RuleTextError> {
    parse_as(text, "a value of this width", target.bits().unbounded_shr(target.offset.into()))
}

/// Parses `move:FIELD[..]->FIELD[..]`.
pub(super) fn parse_move(argument: TextSlice<'_>, writes: Writes) -> Result<Action, RuleTextError> {
    let parts = argument.split_once("->");
    let (source, target) =
        parts.ok_or_else(|| argument.bad("move", "move:FIELD[..]->FIELD[..]"))?;
    let (source, target) = (subfield::parse(source)?, subfield::parse_target(target, writes)?);
    of_one_width(source, target, argument)?;
    Ok(Action::Move { source, target })
}

/// Returns an error if two ranges of bits have different widths.
pub(super) fn of_one_width(
    source: Subfield,
    target: Subfield,
    at: TextSlice<'_>,
) -> Result<(), RuleTextError> {
    if source.width == target.width {
        return Ok(());
    }
    let (source_width, target_width) = (source.width, target.width);
    Err(at.error(RuleTextProblem::Widths { source_width, target_width }))
}

/// Parses `push:FIELD[..]`.
pub(super) fn push(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    subfield::parse(argument).map(Action::Push)
}

/// Parses `pop:FIELD[..]`.
pub(super) fn pop(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    subfield::parse_target(argument, Writes::Packet).map(Action::Pop)
}

/// Parses `check_pkt_larger(LENGTH)->FIELD[BIT]`.
pub(super) fn check_pkt_larger(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let parts = argument.split_once(ARROW).or_else(|| argument.split_once("->"));
    let form = "check_pkt_larger(LENGTH)->FIELD[BIT]";
    let (length, target) = parts.ok_or_else(|| argument.bad("check_pkt_larger", form))?;
    let length = parse_as(length, "a length", u16::MAX)?;
    Ok(Action::CheckPktLarger { length, target: one_bit(target)? })
}

/// Reads one bit that an action writes.
pub(super) fn one_bit(slice: TextSlice<'_>) -> Result<Subfield, RuleTextError> {
    let target = subfield::parse_target(slice, Writes::Packet)?;
    if target.width == 1 { Ok(target) } else { Err(slice.error(RuleTextProblem::ManyBits)) }
}
