#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_multicast::testing::fuzz_multicast(data));
