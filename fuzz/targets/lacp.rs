#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_lacp::testing::fuzz_lacp(data));
