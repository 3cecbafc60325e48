#![no_main]

#[path = "../src/ring_hostile.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
