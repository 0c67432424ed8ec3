#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_ofproto::testing::fuzz_openflow(data));
