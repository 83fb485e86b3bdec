//! The target `envelope`: see [`consort_fuzz::envelope`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| consort_fuzz::envelope::check(data));
