//! libFuzzer over one target, named by the environment variable `STS_PLUS_FUZZ_TARGET`. It is run by `scripts/fuzz`.
#![no_main]
#![allow(missing_docs, clippy::expect_used, reason = "made by a macro; a message is all that is needed")]

use std::{
    panic::{self, AssertUnwindSafe},
    process,
    sync::{Mutex, OnceLock, PoisonError},
};

use libfuzzer_sys::fuzz_target;

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();
/// What the last panic said. One that is caught, as around the PromQL parser, is no finding.
static SAID: Mutex<String> = Mutex::new(String::new());

fn start() {
    let name = std::env::var("STS_PLUS_FUZZ_TARGET").expect("STS_PLUS_FUZZ_TARGET names a target");
    let target = sts_plus_fuzz::target(&name).expect("STS_PLUS_FUZZ_TARGET names no known target");
    RUN.get_or_init(|| target.run);
    // In place of the hook of libfuzzer-sys, which ends the process at every panic.
    panic::set_hook(Box::new(|panic| {
        *SAID.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

fuzz_target!(init: start(), |bytes: &[u8]| {
    let run = RUN.get().expect("a target was chosen");
    if panic::catch_unwind(AssertUnwindSafe(|| run(bytes))).is_err() {
        eprintln!("{}", SAID.lock().unwrap_or_else(PoisonError::into_inner));
        process::abort();
    }
});
