//! The `learn` action (`nx_action_learn`, `nx_action_learn2`, `nx_flow_mod_spec`).
//!
//! A header of fixed length precedes the specifications. Each specification has a 16-bit header:
//!
//! ```text
//!  15 14   13    12 11   10 ..... 0
//! +-----+-----+-------+-----------+
//! |  0  | src |  dst  |   width   |   src: 0 field, 1 value; dst: 0 match, 1 load, 2 output
//! +-----+-----+-------+-----------+
//! ```
//!
//! The source follows: a field and an offset, or a value in units of 16 bits. The target follows
//! the source: a field and an offset, or no bytes for an output. A header of zero begins the
//! padding.

use bytes::BufMut;
use shunt_pipeline::{
    Cookie, LearnAction, LearnSource, LearnSpec, LearnTarget, Priority, Subfield, TableId,
};

use super::{
    action_type::nx,
    nicira::experimenter,
    subfield::{self, put_in_place, read_in_place, writable},
};
use crate::{
    error::ErrorCode,
    wire::{ByteReader, v13::oxm::pull_header},
};

/// `NX_LEARN_F_*`.
mod flag {
    pub(super) const SEND_FLOW_REM: u16 = 1;
    pub(super) const DELETE_LEARNED: u16 = 1 << 1;
    pub(super) const WRITE_RESULT: u16 = 1 << 2;
}

/// Parts of the header of a specification (`NX_LEARN_*`).
mod spec {
    pub(super) const WIDTH: u16 = 0x7ff;
    pub(super) const TARGET: u16 = 3 << 11;
    pub(super) const TO_MATCH: u16 = 0;
    pub(super) const TO_LOAD: u16 = 1 << 11;
    pub(super) const TO_OUTPUT: u16 = 2 << 11;
    pub(super) const IS_VALUE: u16 = 1 << 13;
    pub(super) const RESERVED: u16 = 3 << 14;
}

/// Length of a field header and an offset, in bytes.
const PLACE_LEN: usize = 6;

/// The two wire formats of the `learn` action.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LearnVersion {
    /// The format `NXAST_LEARN`.
    Short,
    /// `NXAST_LEARN2`, with a limit and a result bit.
    Long,
}

/// Reads the body of `NXAST_LEARN` or `NXAST_LEARN2`.
pub(super) fn read(
    body: &mut ByteReader<'_>,
    version: LearnVersion,
) -> Result<LearnAction, ErrorCode> {
    let (idle_timeout, hard_timeout) = (body.u16()?, body.u16()?);
    let (priority, cookie) = (Priority::new(body.u16()?), Cookie::new(body.u64()?));
    let (flags, table, must_be_zero) = (body.u16()?, body.u8()?, body.u8()?);
    let (fin_idle_timeout, fin_hard_timeout) = (body.u16()?, body.u16()?);
    let mut known = flag::SEND_FLOW_REM | flag::DELETE_LEARNED;
    let (mut limit, mut result) = (0, None);
    if version == LearnVersion::Long {
        known |= flag::WRITE_RESULT;
        let offset;
        (limit, offset) = (body.u32()?, body.u16()?);
        if body.u16()? != 0 {
            return Err(ErrorCode::ActionMustBeZero);
        }
        result = read_result(body, offset, flags & flag::WRITE_RESULT != 0)?;
    }
    if flags & !known != 0 {
        return Err(ErrorCode::LearnFlags);
    }
    if must_be_zero != 0 {
        return Err(ErrorCode::LearnPadding);
    }
    Ok(LearnAction {
        idle_timeout,
        hard_timeout,
        priority,
        cookie,
        table: TableId::new(table).ok_or(ErrorCode::LearnTable)?,
        fin_idle_timeout,
        fin_hard_timeout,
        send_flow_removed: flags & flag::SEND_FLOW_REM != 0,
        delete_learned: flags & flag::DELETE_LEARNED != 0,
        limit,
        result,
        specs: read_specs(body)?,
    })
}

/// Reads the bit that gets the result of a `learn` action, if it has one.
fn read_result(
    body: &mut ByteReader<'_>,
    offset: u16,
    is_written: bool,
) -> Result<Option<Subfield>, ErrorCode> {
    match is_written {
        true => {
            let field = pull_header(body)?;
            writable(subfield::bits(field, offset, 1)?).map(Some)
        }
        false if offset == 0 => Ok(None),
        false => Err(ErrorCode::LearnResult),
    }
}

/// Reads the specs of a `learn` action, up to its padding.
fn read_specs(body: &mut ByteReader<'_>) -> Result<Box<[LearnSpec]>, ErrorCode> {
    let mut specs = Vec::new();
    while !body.is_empty() {
        let header = body.u16()?;
        if header == 0 {
            break;
        }
        specs.push(read_spec(body, header)?);
    }
    let is_padding = body.rest().iter().all(|byte| *byte == 0);
    if is_padding { Ok(specs.into()) } else { Err(ErrorCode::LearnPadding) }
}

/// Reads one spec of a `learn` action: its source and its use.
fn read_spec(body: &mut ByteReader<'_>, header: u16) -> Result<LearnSpec, ErrorCode> {
    let (target, is_value) = (header & spec::TARGET, header & spec::IS_VALUE != 0);
    let is_known = match target {
        spec::TO_MATCH | spec::TO_LOAD => true,
        spec::TO_OUTPUT => !is_value,
        _ => false,
    };
    if !is_known || header & spec::RESERVED != 0 {
        return Err(ErrorCode::LearnSpecification);
    }
    let bits = header & spec::WIDTH;
    let source_len = if is_value { value_len(bits) } else { PLACE_LEN };
    let target_len = if target == spec::TO_OUTPUT { 0 } else { PLACE_LEN };
    if body.len() < source_len.saturating_add(target_len) {
        return Err(ErrorCode::ActionLength);
    }
    let width = u8::try_from(bits).ok().filter(|width| (1..=128).contains(width));
    let source = if is_value {
        let bytes = body.bytes(value_len(bits))?;
        let value = bytes.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
        let beyond = 128_u32.saturating_sub(u32::from(width.unwrap_or(128)));
        LearnSource::Value(value & u128::MAX.unbounded_shr(beyond))
    } else {
        LearnSource::Field(read_in_place(body, bits)?)
    };
    let target = match target {
        spec::TO_MATCH => LearnTarget::Match(read_in_place(body, bits)?),
        spec::TO_LOAD => LearnTarget::Load(writable(read_in_place(body, bits)?)?),
        _ => LearnTarget::Output,
    };
    Ok(LearnSpec { source, target, width: width.ok_or(ErrorCode::SetFieldLength)? })
}

/// Returns the length of a value of `bits` bits, in bytes.
fn value_len(bits: u16) -> usize {
    usize::from(bits.div_ceil(16)).saturating_mul(2)
}

/// Writes the shorter form if it can express the action.
pub(super) fn put(out: &mut Vec<u8>, learn: &LearnAction) {
    let is_long = learn.limit != 0 || learn.result.is_some();
    let flags = [
        (learn.send_flow_removed, flag::SEND_FLOW_REM),
        (learn.delete_learned, flag::DELETE_LEARNED),
        (learn.result.is_some(), flag::WRITE_RESULT),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |bits, (_, bit)| bits | bit);
    experimenter(out, if is_long { nx::LEARN2 } else { nx::LEARN }, |out| {
        out.put_u16(learn.idle_timeout);
        out.put_u16(learn.hard_timeout);
        out.put_u16(learn.priority.number());
        out.put_u64(learn.cookie.number());
        out.put_u16(flags);
        out.put_u8(learn.table.number());
        out.put_u8(0);
        out.put_u16(learn.fin_idle_timeout);
        out.put_u16(learn.fin_hard_timeout);
        if is_long {
            out.put_u32(learn.limit);
            out.put_u16(learn.result.map_or(0, |result| result.offset.into()));
            out.put_u16(0);
        }
        if let Some(result) = learn.result {
            subfield::put_header(out, result);
        }
        learn.specs.iter().for_each(|spec| put_spec(out, spec));
    });
}

/// Writes one spec of a `learn` action.
fn put_spec(out: &mut Vec<u8>, learn: &LearnSpec) {
    let width = u16::from(learn.width);
    let source = match learn.source {
        LearnSource::Field(_) => 0,
        LearnSource::Value(_) => spec::IS_VALUE,
    };
    let target = match learn.target {
        LearnTarget::Match(_) => spec::TO_MATCH,
        LearnTarget::Load(_) => spec::TO_LOAD,
        LearnTarget::Output => spec::TO_OUTPUT,
    };
    out.put_u16(width | source | target);
    match &learn.source {
        LearnSource::Field(source) => put_in_place(out, *source),
        LearnSource::Value(value) => {
            let bytes = value.to_be_bytes();
            let start = bytes.len().saturating_sub(value_len(width));
            out.extend_from_slice(bytes.get(start..).unwrap_or_default());
        }
    }
    match &learn.target {
        LearnTarget::Match(target) | LearnTarget::Load(target) => put_in_place(out, *target),
        LearnTarget::Output => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_wrong_argument() {
        // The timeouts, the priority and the cookie come first.
        let check = |flags: u16, table: u8, rest: &[u8]| {
            let body = [&[0; 14][..], &flags.to_be_bytes(), &[table], rest].concat();
            read(&mut ByteReader::new(&body), LearnVersion::Short).map(drop)
        };
        // The padding, and the timeouts after FIN.
        let usual = [0, 0, 0, 0, 0];
        assert_eq!(check(3, 253, &usual), Ok(()));
        assert_eq!(check(4, 253, &usual), Err(ErrorCode::LearnFlags));
        assert_eq!(check(3, 254, &usual), Err(ErrorCode::LearnTable));
        assert_eq!(check(3, 253, &[1, 0, 0, 0, 0]), Err(ErrorCode::LearnPadding));
        assert_eq!(check(3, 253, &[0, 0, 0, 0, 0, 0, 0, 1]), Err(ErrorCode::LearnPadding));
        assert_eq!(check(3, 253, &[0, 0, 0, 0, 0, 0xc0, 1]), Err(ErrorCode::LearnSpecification));
        // All of them have the number that Open vSwitch sends.
        assert_eq!(ErrorCode::LearnTable.number(), ErrorCode::ActionArgument.number());
    }
}
