#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_flow::testing::fuzz_match_text(data));
