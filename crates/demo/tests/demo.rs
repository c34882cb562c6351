//! The demo itself, run as `make demo` runs it: it ends well, tells what it promises, and leaves nothing behind. It checks by itself
//! that no pod moves that must not.

use std::{
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn the_demo_shows_a_good_release_a_stopped_one_and_its_fix() {
    let demo = Path::new(env!("CARGO_BIN_EXE_demo"));
    let operator = demo.with_file_name("sts-plus");
    assert!(operator.is_file(), "{} is missing: `cargo build --workspace` first", operator.display());
    let output = Command::new(demo).env_remove("KUBECONFIG").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let told = [
        "HoldEnforced=True",
        "held by the API server",
        "pass 2/2  before anything moves",
        "web-0 may roll",
        "Completed: all 3 pods carry",
        "value 12  data     FAIL, try 4 of 4",
        "phase      Failed: web-2",
        "partition 0 was not granted",
        "web-0 and web-1 are the pods they were before the release",
        "web-2 is replaced without checks",
        "pass 2/2  after the last pod",
        "events (of the operator, by the API server's audit log)",
        "everything that was started or installed is gone",
    ];
    let mut rest = &*text;
    for part in told {
        let at = rest.find(part).unwrap_or_else(|| panic!("not told, or not in this order: {part}\n{text}"));
        rest = &rest[at + part.len()..];
    }
    let longest = text.lines().filter(|line| !line.starts_with('$')).map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest <= 120), "a line of {longest:?} characters\n{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal");
}
