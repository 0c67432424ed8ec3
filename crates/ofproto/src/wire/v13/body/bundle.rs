//! Bundle messages (ONF EXT-230): control messages and messages inside add messages.

use bytes::{BufMut, Bytes};

use crate::{
    error::ErrorCode,
    message::{BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleId, Message, Xid},
    wire::{
        ByteReader,
        header::Header,
        v13::{
            VERSION,
            codec::{decode, encode},
            kind,
        },
    },
};

/// Commands in the order of their numbers.
const COMMANDS: [BundleCommand; 8] = [
    BundleCommand::Open,
    BundleCommand::Opened,
    BundleCommand::Close,
    BundleCommand::Closed,
    BundleCommand::Commit,
    BundleCommand::Committed,
    BundleCommand::Discard,
    BundleCommand::Discarded,
];

/// Reads the body of a bundle control message; ignores its properties.
pub(in crate::wire) fn read_control(
    reader: &mut ByteReader<'_>,
) -> Result<BundleControl, ErrorCode> {
    let bundle = BundleId(reader.u32()?);
    let (command, flags) = (reader.u16()?, reader.u16()?);
    *reader = ByteReader::new(&[]);
    let command = COMMANDS.get(usize::from(command)).ok_or(ErrorCode::BundleType)?;
    Ok(BundleControl { bundle, command: *command, flags: read_flags(flags)? })
}

/// Reads the flags of a bundle from their bits.
fn read_flags(bits: u16) -> Result<BundleFlags, ErrorCode> {
    if bits & !3 != 0 {
        return Err(ErrorCode::BundleFlags);
    }
    Ok(BundleFlags { atomic: bits & 1 != 0, ordered: bits & 2 != 0 })
}

/// Returns the bits of the flags of a bundle.
fn flags_bits(flags: BundleFlags) -> u16 {
    u16::from(flags.atomic) | u16::from(flags.ordered) << 1
}

/// Writes the body of a bundle control message.
pub(in crate::wire) fn put_control(out: &mut Vec<u8>, control: BundleControl) {
    out.put_u32(control.bundle.0);
    let number = COMMANDS.iter().position(|command| *command == control.command);
    // Every command is in the list.
    out.put_u16(number.and_then(|number| u16::try_from(number).ok()).unwrap_or(u16::MAX));
    out.put_u16(flags_bits(control.flags));
}

/// Offset of the inner message in a bundle-add message.
const BUNDLED_AT: usize = Header::LEN + 16;

/// Returns the inner message of a decoded bundle-add message, with its header.
pub(crate) fn bundled_message(addition: &Bytes) -> Bytes {
    addition.slice_ref(bundled_bytes(addition))
}

/// Returns the inner message of an encoded bundle-add message, with its header.
pub(in crate::wire) fn bundled_bytes(addition: &[u8]) -> &[u8] {
    let inside = addition.get(BUNDLED_AT..).unwrap_or_default();
    let length = Header::parse(inside).map_or(0, |header| usize::from(header.length));
    inside.get(..length).unwrap_or(inside)
}

/// Returns whether a bundle can hold messages of type `kind`.
const fn is_bundlable(kind: u8) -> bool {
    matches!(kind, kind::PACKET_OUT | kind::FLOW_MOD | kind::GROUP_MOD | kind::PORT_MOD)
}

/// Reads the body of a bundle-add message; ignores its properties.
pub(in crate::wire) fn read_add(
    xid: Xid,
    reader: &mut ByteReader<'_>,
) -> Result<BundleAdd, ErrorCode> {
    let bundle = BundleId(reader.u32()?);
    reader.skip(2)?;
    let flags = reader.u16()?;
    let bytes = reader.rest();
    *reader = ByteReader::new(&[]);
    let header = Header::parse(bytes).ok_or(ErrorCode::BundleMessageLength)?;
    let length = usize::from(header.length);
    let inside = bytes.get(..length).filter(|_| length >= Header::LEN);
    let inside = inside.ok_or(ErrorCode::BundleMessageLength)?;
    if header.xid != xid {
        return Err(ErrorCode::BundleMessageXid);
    }
    if header.version != VERSION || !is_bundlable(header.kind) {
        return Err(ErrorCode::BundleMessageUnsupported);
    }
    let flags = read_flags(flags)?;
    let (xid, message) = decode(inside)?;
    Ok(BundleAdd { bundle, flags, xid, message: Box::new(message) })
}

/// Writes the body of a bundle-add message.
///
/// An inner message that is not allowed or too long is left out; no switch accepts the result.
pub(in crate::wire) fn put_add(out: &mut Vec<u8>, add: &BundleAdd) {
    out.put_u32(add.bundle.0);
    out.put_u16(0);
    out.put_u16(flags_bits(add.flags));
    if matches!(*add.message, Message::BundleAdd(_)) {
        return;
    }
    if let Ok(message) = encode(add.xid, &add.message) {
        out.extend_from_slice(&message);
    }
}
