//! Packet-in reasons: actions can specify all of them, OpenFlow 1.3 can report three.

use shunt_pipeline::PacketInReason;

use crate::error::ErrorCode;

/// Returns the reason that a controller action specifies.
pub(super) const fn from_action(number: u8) -> Result<PacketInReason, ErrorCode> {
    Ok(match number {
        0 => PacketInReason::NoMatch,
        1 => PacketInReason::Action,
        2 => PacketInReason::InvalidTtl,
        3 => PacketInReason::ActionSet,
        4 => PacketInReason::Group,
        5 => PacketInReason::PacketOut,
        _ => return Err(ErrorCode::ActionArgument),
    })
}

/// Returns the number of a reason in a controller action.
pub(super) const fn of_action(reason: PacketInReason) -> u8 {
    match reason {
        PacketInReason::NoMatch => 0,
        PacketInReason::Action => 1,
        PacketInReason::InvalidTtl => 2,
        PacketInReason::ActionSet => 3,
        PacketInReason::Group => 4,
        PacketInReason::PacketOut => 5,
    }
}

/// Returns the number in OpenFlow 1.3; other reasons become `OFPR_ACTION`.
pub(crate) const fn of_packet_in(reason: PacketInReason) -> u8 {
    match reason {
        PacketInReason::NoMatch => 0,
        PacketInReason::InvalidTtl => 2,
        PacketInReason::Action
        | PacketInReason::ActionSet
        | PacketInReason::Group
        | PacketInReason::PacketOut => 1,
    }
}

/// Returns the reason of an OpenFlow 1.3 packet-in.
pub(in crate::wire) const fn from_packet_in(number: u8) -> Result<PacketInReason, ErrorCode> {
    Ok(match number {
        0 => PacketInReason::NoMatch,
        1 => PacketInReason::Action,
        2 => PacketInReason::InvalidTtl,
        _ => return Err(ErrorCode::BadType),
    })
}
