#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_bfd::testing::fuzz_bfd(data));
