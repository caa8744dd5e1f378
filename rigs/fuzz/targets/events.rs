#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longhaul_fuzz::events::run(bytes));
