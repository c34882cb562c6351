//! What a run of many tests wants to count at its end: control planes that were started, and tests that skipped themselves. Each is a line in
//! the file that `STS_PLUS_REPORT` names; without that variable nothing is written.

use std::{env, fs, io::Write as _, path::Path, thread, time::Duration};

use anyhow::Context as _;

use crate::Minor;

const FILE: &str = "STS_PLUS_REPORT";

/// Says, there and on stderr, that the test of this thread has skipped itself, which its runner counts as passed. `why` names what is missing.
/// The thread is named after its test unless tests run one at a time.
///
/// # Panics
/// When the file cannot be written: a test that was skipped must not look like one that passed.
pub fn skipped(why: &str) {
    let line = skip_of(thread::current().name().unwrap_or("a test without a name"), why);
    eprintln!("{line}");
    let reported = report(&line);
    assert!(reported.is_ok(), "{reported:?}");
}

/// Says that a control plane has been started.
pub(crate) fn control_plane(minor: Minor, took: Duration) -> anyhow::Result<()> {
    report(&start_of(minor, took))
}

fn skip_of(test: &str, why: &str) -> String {
    format!("skipped {test}: {}", why.replace('\n', " "))
}

fn start_of(minor: Minor, took: Duration) -> String {
    format!("control-plane {minor} {:.1}", took.as_secs_f32())
}

fn report(line: &str) -> anyhow::Result<()> {
    env::var_os(FILE).filter(|file| !file.is_empty()).map_or(Ok(()), |file| append(Path::new(&file), line))
}

/// In one write, so that the lines of processes beside each other stay whole.
fn append(file: &Path, line: &str) -> anyhow::Result<()> {
    let opened = fs::File::options().create(true).append(true).open(file);
    opened
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .with_context(|| format!("{FILE}: cannot append to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_many_are_whole_and_have_the_form_that_scripts_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("report");
        let start = start_of(Minor::V1_36, Duration::from_millis(4321));
        let skip = skip_of("module::test", "no root,\nno image");
        thread::scope(|scope| {
            for line in [&start, &skip] {
                scope.spawn(|| (0..100).for_each(|_| append(&file, line).unwrap()));
            }
        });
        let text = fs::read_to_string(&file).unwrap();
        let count = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!(count("control-plane 1.36 4.3"), 100);
        assert_eq!(count("skipped module::test: no root, no image"), 100);
        assert_eq!(text.lines().count(), 200);
        let error = append(dir.path(), "").unwrap_err().to_string();
        assert!(error.contains("STS_PLUS_REPORT: cannot append to"), "{error}");
    }
}
