//! The demo itself, run as `make demo` runs it: it ends well, tells what it promises, and leaves nothing behind. It checks by itself
//! that no pod moves that must not.

use std::{
    path::Path,
    process::{Command, Stdio},
};

// spec: pr§4, es§3, L164
#[test]
fn the_demo_shows_a_stopped_release_and_its_fix_then_versions_side_by_side() {
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
        "Second act",
        "db-v1    1.27    made, 3 pods wanted",
        "Ready: version 1 has all 3 pods available",
        "db-v2    1.28    1 pod wanted: the canary",
        "value 0   no data  pass 2/2",
        "db-v2    1.28    3 pods wanted",
        "versions 1 and 2 have all 3 pods Ready, both of them",
        "db-v1    gone",
        "Ready: version 2 has all 3 pods available",
        "db-v3    1.29    1 pod wanted: the canary",
        "value 12  data     FAIL, try 3 of 3",
        "Failed: version 3 is stale",
        "db-v3-0: 3 checks without 2 consecutive passes",
        "version 2 has the 3 pods that it had before",
        "scale ests/db --replicas=4",
        "allows only odd numbers",
        "s, both acts",
        "everything that was started or installed is gone",
    ];
    let mut rest = &*text;
    for part in told {
        let at = rest.find(part).unwrap_or_else(|| panic!("not told, or not in this order: {part}\n{text}"));
        rest = &rest[at + part.len()..];
    }
    for part in ["promoted   version 2 is in charge", "marked fissile.cloudfoundry.org/stale: \"true\""] {
        assert!(text.contains(part), "not told: {part}\n{text}");
    }
    let longest = text.lines().filter(|line| !line.starts_with('$')).map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest <= 120), "a line of {longest:?} characters\n{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal");
}
