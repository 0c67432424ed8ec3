#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_memif::testing::fuzz_ring(data));
