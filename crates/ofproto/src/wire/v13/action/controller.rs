//! The `controller` action in its two forms: fixed, and with properties.

use bytes::BufMut;
use shunt_pipeline::{Action, ControllerAction, MeterId, PacketInReason};

use super::{action_type::nx, list::expect_len, nicira::experimenter};
use crate::{
    error::ErrorCode,
    wire::{
        ByteReader,
        v13::{property, reason},
    },
};

/// `nx_action_controller2_prop_type`.
mod property_type {
    pub(super) const MAX_LEN: u16 = 0;
    pub(super) const CONTROLLER_ID: u16 = 1;
    pub(super) const REASON: u16 = 2;
    pub(super) const USERDATA: u16 = 3;
    pub(super) const PAUSE: u16 = 4;
    pub(super) const METER_ID: u16 = 5;
}

/// Reads the body of `NXAST_CONTROLLER`.
pub(super) fn read(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    expect_len(body, 6)?;
    let (max_len, controller_id) = (body.u16()?, body.u16()?);
    let reason = reason::from_action(body.u8()?)?;
    let action = ControllerAction {
        max_len,
        controller_id,
        reason,
        userdata: Box::default(),
        meter: None,
        pause: false,
    };
    Ok(Action::Controller(Box::new(action)))
}

/// Default of the `max_len` property; the constants below are other defaults.
const DEFAULT_MAX_LEN: u16 = u16::MAX;
const DEFAULT_CONTROLLER_ID: u16 = 0;
const DEFAULT_REASON: PacketInReason = PacketInReason::Action;
/// `NX_CTLR_NO_METER`.
const NO_METER: u32 = 0;

/// Reads the body of `NXAST_CONTROLLER2`.
pub(super) fn read_properties(body: &mut ByteReader<'_>) -> Result<Action, ErrorCode> {
    if body.bytes(6).map_err(|_| ErrorCode::ActionLength)? != [0; 6] {
        return Err(ErrorCode::MustBeZero);
    }
    let mut action = ControllerAction {
        meter: None,
        pause: false,
        max_len: DEFAULT_MAX_LEN,
        controller_id: DEFAULT_CONTROLLER_ID,
        reason: DEFAULT_REASON,
        userdata: Box::default(),
    };
    while !body.is_empty() {
        let (kind, mut value) = property::read(body)?;
        match kind {
            property_type::MAX_LEN => action.max_len = property::u16(&mut value)?,
            property_type::CONTROLLER_ID => action.controller_id = property::u16(&mut value)?,
            property_type::REASON => {
                action.reason = reason::from_action(property::u8(&mut value)?)?;
            }
            property_type::USERDATA => action.userdata = value.rest().into(),
            property_type::PAUSE => action.pause = true,
            property_type::METER_ID => {
                let meter = property::u32(&mut value)?;
                action.meter = (meter != NO_METER).then_some(MeterId::new(meter));
            }
            _ => return Err(ErrorCode::PropertyType),
        }
    }
    Ok(Action::Controller(Box::new(action)))
}

/// Writes the shorter form if it can express the action.
pub(super) fn put(out: &mut Vec<u8>, action: &ControllerAction) {
    let reason = reason::of_action(action.reason);
    if action.userdata.is_empty() && !action.pause && action.meter.is_none() {
        experimenter(out, nx::CONTROLLER, |out| {
            out.put_u16(action.max_len);
            out.put_u16(action.controller_id);
            out.put_u8(reason);
        });
        return;
    }
    experimenter(out, nx::CONTROLLER2, |out| {
        out.put_bytes(0, 6);
        if action.max_len != DEFAULT_MAX_LEN {
            property::put_u16(out, property_type::MAX_LEN, action.max_len);
        }
        if action.controller_id != DEFAULT_CONTROLLER_ID {
            property::put_u16(out, property_type::CONTROLLER_ID, action.controller_id);
        }
        if action.reason != DEFAULT_REASON {
            property::put(out, property_type::REASON, &[reason]);
        }
        if !action.userdata.is_empty() {
            property::put(out, property_type::USERDATA, &action.userdata);
        }
        if action.pause {
            property::put(out, property_type::PAUSE, &[]);
        }
        if let Some(meter) = action.meter {
            property::put(out, property_type::METER_ID, &meter.number().to_be_bytes());
        }
    });
}
