#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_pipebench::testing::fuzz_coflow_trace(data));
