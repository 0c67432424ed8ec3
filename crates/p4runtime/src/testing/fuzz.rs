//! Fuzz targets: received bytes are refused or stored, and nothing panics.

use std::time::Duration;

use prost::{Message, bytes::Bytes};

use super::MemoryDevice;
use crate::{
    codec::decode,
    program::{Program, p4info_text},
    schema::Schema,
    server::{EntryStore, write},
    wire::{
        p4::{
            config::v1::P4Info,
            v1::{ReadRequest, WriteRequest},
        },
        read_request, write_request,
    },
};

/// Reads arbitrary bytes as a P4Info, which is refused or becomes a schema.
pub fn fuzz_p4info(data: &[u8]) {
    if let Ok(info) = P4Info::decode(data) {
        // A P4Info that is accepted has a schema; nothing else is checked.
        let _ = Schema::read(&info);
        let _ = p4info_text(&info);
    }
}

/// Executes arbitrary bytes as a write to the tables of the LTM program.
///
/// # Panics
///
/// If a stored entry cannot be decoded, or if the fast parser and prost disagree.
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
    let (mut store, mut device) = (EntryStore::new(schema), MemoryDevice::default());
    let results = write(&mut store, &mut device, request, Duration::ZERO);
    let failed =
        results.map_or(0, |results| results.iter().filter(|result| result.is_err()).count());
    let memory = device.0.lock();
    for entry in memory.entries.values() {
        assert!(
            decode(&program, entry).is_ok(),
            "{failed} updates were refused, but the device has an undecodable entry: {entry:?}"
        );
    }
}
