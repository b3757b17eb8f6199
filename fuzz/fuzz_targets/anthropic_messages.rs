#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hermod_fuzz::decoder("anthropic_messages", input));
