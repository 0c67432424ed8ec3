#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shuntd::testing::fuzz_host_statistics(data));
