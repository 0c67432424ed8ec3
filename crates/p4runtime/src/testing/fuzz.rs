//! Entry points of fuzz targets: whatever comes by the wire is refused or kept, and nothing panics.

use std::time::Duration;

use prost::{Message, bytes::Bytes};

use super::MemoryDevice;
use crate::{
    codec::decode,
    program::{Program, p4info_text},
    schema::Schema,
    server::{Store, write},
    wire::{
        p4::{
            config::v1::P4Info,
            v1::{ReadRequest, WriteRequest},
        },
        read_request, write_request,
    },
};

/// Any bytes as a P4Info: it is a schema, or it is refused.
pub fn fuzz_p4info(data: &[u8]) {
    if let Ok(info) = P4Info::decode(data) {
        // What is not refused is a schema; that is all that is asked.
        let _ = Schema::read(&info);
        let _ = p4info_text(&info);
    }
}

/// Any bytes as a write to the tables of the LTM program: what is taken can be said again.
///
/// # Panics
///
/// When an entry is kept that the program has no meaning for, or the bytes say one thing to the parser
/// of common requests and another to that of all.
pub fn fuzz_write(data: &[u8]) {
    let whole = Bytes::copy_from_slice(data);
    if let Some(read) = read_request(&whole) {
        assert_eq!(ReadRequest::decode(data), Ok(read), "the parsers differ");
    }
    let request = WriteRequest::decode(data);
    if let Some(parsed) = write_request(&whole) {
        assert_eq!(request.as_ref(), Ok(&parsed), "the parsers differ");
    }
    let Ok(request) = request else { return };
    let program = Program::default();
    let Ok(schema) = Schema::read(&program.p4info()) else { return };
    let (mut store, mut device) = (Store::new(schema), MemoryDevice::default());
    let results = write(&mut store, &mut device, request, Duration::ZERO);
    let failed =
        results.map_or(0, |results| results.iter().filter(|result| result.is_err()).count());
    let memory = device.0.lock();
    for entry in memory.entries.values() {
        assert!(decode(&program, entry).is_ok(), "{failed} failed, and this was kept: {entry:?}");
    }
}
