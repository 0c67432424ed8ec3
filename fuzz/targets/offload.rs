#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_datapath::testing::fuzz_offload(data));
