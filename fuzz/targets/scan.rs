//! The target `scan`: see [`consort_fuzz::scan`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| consort_fuzz::scan::check(data));
