//! The target `answers` for libFuzzer.
//! In: bytes that it makes up. Out: nothing, or a crash. Invariant: the same check as the stored inputs get.
//! Not here: the check.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::answers::check(bytes));
