#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_ovsdb::testing::fuzz_replies(data));
