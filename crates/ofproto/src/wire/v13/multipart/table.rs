//! `OFPMP_TABLE` (OpenFlow 1.3.5, 7.3.5.4).

use bytes::BufMut;
use shunt_pipeline::TableId;

use crate::{error::ErrorCode, message::TableStatistics, wire::Reader};

pub(super) fn read(reader: &mut Reader<'_>) -> Result<TableStatistics, ErrorCode> {
    let table = TableId::new(reader.u8()?).ok_or(ErrorCode::BadTableId)?;
    reader.skip(3)?;
    let (active, lookups, matches) = (reader.u32()?, reader.u64()?, reader.u64()?);
    Ok(TableStatistics { table, active, lookups, matches })
}

pub(super) fn put(out: &mut Vec<u8>, table: &TableStatistics) {
    out.put_u8(table.table.number());
    out.put_bytes(0, 3);
    out.put_u32(table.active);
    out.put_u64(table.lookups);
    out.put_u64(table.matches);
}
