#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_flow::testing::packet::fuzz_extract(data));
