//! Roles and asynchronous configuration (OpenFlow 1.3.5, 7.3.9, 7.3.10).

use bytes::BufMut;

use crate::{
    error::ErrorCode,
    message::{AsyncConfig, AsyncMasks, Generation, RoleMessage, RoleName},
    wire::ByteReader,
};

/// Reads the body of a role request or reply.
pub(in crate::wire) fn read(reader: &mut ByteReader<'_>) -> Result<RoleMessage, ErrorCode> {
    let role = reader.u32()?;
    reader.skip(4)?;
    let generation = Some(Generation(reader.u64()?));
    let role = match role {
        0 => RoleName::NoChange,
        1 => RoleName::Equal,
        2 => RoleName::Master,
        3 => RoleName::Slave,
        _ => return Err(ErrorCode::RoleUnknown),
    };
    Ok(RoleMessage { role, generation })
}

/// Writes the body of a role request or reply.
pub(in crate::wire) fn put(out: &mut Vec<u8>, message: RoleMessage) {
    out.put_u32(match message.role {
        RoleName::NoChange => 0,
        RoleName::Equal => 1,
        RoleName::Master => 2,
        RoleName::Slave => 3,
    });
    out.put_u32(0);
    out.put_u64(message.generation.unwrap_or(Generation::UNDEFINED).0);
}

/// Reads an asynchronous configuration.
pub(in crate::wire) fn read_async(reader: &mut ByteReader<'_>) -> Result<AsyncConfig, ErrorCode> {
    let [packet_in, port_status, flow_removed] = [pair(reader)?, pair(reader)?, pair(reader)?];
    Ok(AsyncConfig {
        master: AsyncMasks {
            packet_in: packet_in.0,
            port_status: port_status.0,
            flow_removed: flow_removed.0,
        },
        slave: AsyncMasks {
            packet_in: packet_in.1,
            port_status: port_status.1,
            flow_removed: flow_removed.1,
        },
    })
}

/// Reads the masks of masters and of slaves.
fn pair(reader: &mut ByteReader<'_>) -> Result<(u32, u32), ErrorCode> {
    Ok((reader.u32()?, reader.u32()?))
}

/// Writes an asynchronous configuration.
pub(in crate::wire) fn put_async(out: &mut Vec<u8>, config: &AsyncConfig) {
    let AsyncConfig { master, slave } = config;
    out.put_u32(master.packet_in);
    out.put_u32(slave.packet_in);
    out.put_u32(master.port_status);
    out.put_u32(slave.port_status);
    out.put_u32(master.flow_removed);
    out.put_u32(slave.flow_removed);
}
