#![no_main]

#[path = "../src/http1_limits.rs"]
mod http1_limits;
#[path = "../src/http1_client.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| target::run(input));
