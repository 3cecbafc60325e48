#![no_main]

#[path = "../src/stream_link.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
