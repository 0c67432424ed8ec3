#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_p4runtime::testing::fuzz_p4info(data));
