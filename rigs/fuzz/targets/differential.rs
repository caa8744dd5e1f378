#![no_main]

use longhaul_fuzz::differential;

libfuzzer_sys::fuzz_target!(init: differential::check_examples(), |bytes: &[u8]| differential::run(bytes));
