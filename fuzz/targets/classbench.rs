#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_nuevomatch::testing::fuzz_classbench(data));
