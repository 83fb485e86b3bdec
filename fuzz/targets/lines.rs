//! The target `lines`: see [`consort_fuzz::lines`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| consort_fuzz::lines::check(data));
