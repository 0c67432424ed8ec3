//! A test of the memory use of an unchecked request.

use allocation_counter::measure;
use prost::Message;
use shunt_p4runtime::wire::p4::v1::WriteRequest;

#[test]
fn empty_updates_use_limited_memory() {
    // Field 4 without content.
    let request = [0x22, 0].repeat(1 << 19);
    let info = measure(|| {
        let decoded = WriteRequest::decode(&request[..]);
        assert!(decoded.is_ok_and(|decoded| decoded.updates.len() == 1 << 19));
    });
    assert!(info.bytes_max < 50 * (request.len() as u64), "{info:?}");
}
