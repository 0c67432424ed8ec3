#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_pipeline::text::testing::fuzz_rule_text(data));
