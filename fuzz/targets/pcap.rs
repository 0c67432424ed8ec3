#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_testkit::fuzz::fuzz_pcap(data));
