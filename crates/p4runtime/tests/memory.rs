//! What a request costs before anybody has looked at it.

use allocation_counter::measure;
use prost::Message;
use shunt_p4runtime::wire::p4::v1::WriteRequest;

#[test]
fn a_request_of_empty_updates_takes_less_than_fifty_times_its_bytes() {
    // Field 4, of no bytes.
    let request = [0x22, 0].repeat(1 << 19);
    let info = measure(|| {
        let decoded = WriteRequest::decode(&request[..]);
        assert!(decoded.is_ok_and(|decoded| decoded.updates.len() == 1 << 19));
    });
    assert!(info.bytes_max < 50 * (request.len() as u64), "{info:?}");
}
