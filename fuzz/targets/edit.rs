//! The target `edit`: see [`consort_fuzz::edit`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| consort_fuzz::edit::check(data));
