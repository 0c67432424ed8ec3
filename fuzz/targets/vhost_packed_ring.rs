#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_vhost_user::testing::fuzz_packed_ring(data));
