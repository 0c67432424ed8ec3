//! `multipath`, `bundle` and `bundle_load`: selection by a hash of the packet.

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::{
    BundleAction, BundleAlgorithm, HashFields, MultipathAction, MultipathAlgorithm,
};

use super::{
    action_type::nx,
    list::expect_len,
    nicira::{experimenter, narrow},
    subfield::{self, writable},
};
use crate::{
    error::ErrorCode,
    wire::{ByteReader, MessageLengthError, v13::port_no},
};

/// Maximum number of members of a bundle (`BUNDLE_MAX_MEMBERS` of Open vSwitch).
const MEMBERS_MAX: u16 = 2048;
/// The member type of a bundle: ports, as the header of `NXM_OF_IN_PORT`.
const MEMBERS_ARE_PORTS: u32 = 0x0000_0002;
/// Width of a port number in bits.
const PORT_BITS: u8 = 16;

/// `nx_hash_fields`, in the order of their numbers.
const FIELDS: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];

/// `nx_mp_algorithm`, in the order of their numbers.
const MULTIPATH_ALGORITHMS: [MultipathAlgorithm; 4] = [
    MultipathAlgorithm::ModuloN,
    MultipathAlgorithm::HashThreshold,
    MultipathAlgorithm::HighestRandomWeight,
    MultipathAlgorithm::IterativeHash,
];

/// `nx_bd_algorithm`, in the order of their numbers.
const BUNDLE_ALGORITHMS: [BundleAlgorithm; 2] =
    [BundleAlgorithm::ActiveBackup, BundleAlgorithm::HighestRandomWeight];

/// Returns the choice with a number, or an error if there is none.
fn read_choice<T: Copy>(choices: &[T], number: u16) -> Result<T, ErrorCode> {
    choices.get(usize::from(number)).copied().ok_or(ErrorCode::ActionArgument)
}

/// Writes the number of a choice.
fn put_choice<T: PartialEq>(out: &mut Vec<u8>, choices: &[T], choice: &T) {
    let number = choices.iter().position(|known| known == choice);
    // Each list has all variants of its type, so the choice is found. The lists are short.
    out.put_u16(number.and_then(|number| u16::try_from(number).ok()).unwrap_or(u16::MAX));
}

/// Reads the body of `NXAST_MULTIPATH`.
pub(super) fn read_multipath(body: &mut ByteReader<'_>) -> Result<MultipathAction, ErrorCode> {
    expect_len(body, 22)?;
    let (fields, basis) = (read_choice(&FIELDS, body.u16()?)?, body.u16()?);
    body.skip(2)?;
    let algorithm = read_choice(&MULTIPATH_ALGORITHMS, body.u16()?)?;
    let (link_max, argument) = (body.u16()?, body.u32()?);
    body.skip(2)?;
    let ofs_nbits = body.u16()?;
    let target = writable(subfield::read_packed(body, ofs_nbits)?)?;
    let is_too_narrow = u32::from(link_max).checked_shr(target.width.into()).unwrap_or(0) != 0;
    if is_too_narrow {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(MultipathAction { fields, basis, algorithm, link_max, argument, target })
}

/// Writes `NXAST_MULTIPATH`.
pub(super) fn put_multipath(out: &mut Vec<u8>, action: &MultipathAction) {
    experimenter(out, nx::MULTIPATH, |out| {
        put_choice(out, &FIELDS, &action.fields);
        out.put_u16(action.basis);
        out.put_u16(0);
        put_choice(out, &MULTIPATH_ALGORITHMS, &action.algorithm);
        out.put_u16(action.link_max);
        out.put_u32(action.argument);
        out.put_u16(0);
        out.put_u16(subfield::pack(action.target));
        subfield::put_header(out, action.target);
    });
}

/// The use that a bundle makes of the selected port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BundleResult {
    /// `NXAST_BUNDLE`: sends the packet to the port.
    Output,
    /// `NXAST_BUNDLE_LOAD`: writes the port number to a field.
    Load,
}

/// Reads the body of `NXAST_BUNDLE` or `NXAST_BUNDLE_LOAD`.
pub(super) fn read_bundle(
    body: &mut ByteReader<'_>,
    result: BundleResult,
) -> Result<BundleAction, ErrorCode> {
    let algorithm = read_choice(&BUNDLE_ALGORITHMS, body.u16()?)?;
    let (fields, basis) = (read_choice(&FIELDS, body.u16()?)?, body.u16()?);
    let (members_are, members_count) = (body.u32()?, body.u16()?);
    let (ofs_nbits, mut target) = (body.u16()?, ByteReader::new(body.bytes(4)?));
    let must_be_zero = body.u32()?;
    let is_known = members_are == MEMBERS_ARE_PORTS && members_count <= MEMBERS_MAX;
    if !is_known || must_be_zero != 0 {
        return Err(ErrorCode::ActionArgument);
    }
    let target = match result {
        BundleResult::Output if ofs_nbits != 0 || target.u32()? != 0 => {
            return Err(ErrorCode::ActionArgument);
        }
        BundleResult::Output => None,
        BundleResult::Load => {
            let target = writable(subfield::read_packed(&mut target, ofs_nbits)?)?;
            if target.width < PORT_BITS {
                return Err(ErrorCode::ActionArgument);
            }
            Some(target)
        }
    };
    let member = |_| body.u16().map(port_no::widen);
    let members = (0..members_count).map(member).collect::<Result<_, MessageLengthError>>()?;
    Ok(BundleAction { fields, basis, algorithm, members, target })
}

/// Writes `NXAST_BUNDLE` or `NXAST_BUNDLE_LOAD`.
pub(super) fn put_bundle(out: &mut Vec<u8>, action: &BundleAction) {
    let subtype = if action.target.is_some() { nx::BUNDLE_LOAD } else { nx::BUNDLE };
    experimenter(out, subtype, |out| {
        put_choice(out, &BUNDLE_ALGORITHMS, &action.algorithm);
        put_choice(out, &FIELDS, &action.fields);
        out.put_u16(action.basis);
        out.put_u32(MEMBERS_ARE_PORTS);
        // An action of 64 KiB or more fails when the message is finished: see `length::fill`.
        out.put_u16(u16::try_from(action.members.len()).unwrap_or(u16::MAX));
        match action.target {
            Some(target) => {
                out.put_u16(subfield::pack(target));
                subfield::put_header(out, target);
            }
            None => out.put_bytes(0, 6),
        }
        out.put_u32(0);
        action.members.iter().for_each(|port: &PortNo| out.put_u16(narrow(*port)));
    });
}
