//! The `sample` action in its three forms (`nx_action_sample`, `nx_action_sample2`).

use bytes::BufMut;
use shunt_flow::PortNo;
use shunt_pipeline::{SampleAction, SampleDirection};

use super::{
    action_type::nx,
    list::expect_len,
    nicira::{experimenter, narrow},
};
use crate::{
    error::ErrorCode,
    wire::{ByteReader, v13::port_no},
};

/// Reads the body of `NXAST_SAMPLE`, `NXAST_SAMPLE2` or `NXAST_SAMPLE3`.
pub(super) fn read(body: &mut ByteReader<'_>, subtype: u16) -> Result<SampleAction, ErrorCode> {
    expect_len(body, if subtype == nx::SAMPLE { 14 } else { 22 })?;
    let probability = body.u16()?;
    let mut action = SampleAction {
        probability,
        collector_set_id: body.u32()?,
        observation_domain_id: body.u32()?,
        observation_point_id: body.u32()?,
        sampling_port: None,
        direction: None,
    };
    if subtype != nx::SAMPLE {
        let port = port_no::widen(body.u16()?);
        action.sampling_port = Some(port).filter(|port| *port != PortNo::ANY);
    }
    // The second form has no direction. Open vSwitch ignores all its bytes after the port.
    if subtype == nx::SAMPLE3 {
        let direction = body.u8()?;
        if body.rest().iter().any(|byte| *byte != 0) {
            return Err(ErrorCode::MustBeZero);
        }
        action.direction = match direction {
            0 => None,
            1 => Some(SampleDirection::Ingress),
            2 => Some(SampleDirection::Egress),
            _ => return Err(ErrorCode::ActionArgument),
        };
    }
    if probability == 0 {
        return Err(ErrorCode::ActionArgument);
    }
    Ok(action)
}

/// Writes the shortest form that can express the action.
pub(super) fn put(out: &mut Vec<u8>, action: &SampleAction) {
    let subtype = match (action.sampling_port, action.direction) {
        (None, None) => nx::SAMPLE,
        (Some(_), None) => nx::SAMPLE2,
        (_, Some(_)) => nx::SAMPLE3,
    };
    experimenter(out, subtype, |out| {
        out.put_u16(action.probability);
        out.put_u32(action.collector_set_id);
        out.put_u32(action.observation_domain_id);
        out.put_u32(action.observation_point_id);
        if subtype != nx::SAMPLE {
            out.put_u16(narrow(action.sampling_port.unwrap_or(PortNo::ANY)));
            out.put_u8(match action.direction {
                None => 0,
                Some(SampleDirection::Ingress) => 1,
                Some(SampleDirection::Egress) => 2,
            });
        }
    });
}
