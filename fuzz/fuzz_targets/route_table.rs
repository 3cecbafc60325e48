#![no_main]

#[path = "../src/route_table.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
