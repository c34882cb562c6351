//! The table of docs/laws.md: law, what searches it, how many states, which mutants break it.

use std::fmt::Write as _;
use std::{env, fs, path::PathBuf};

use super::{BOTH, FAULTS, OPENINGS, PEOPLE};
use crate::search_versions::{PLACES, SIDES};

/// Law, what it says in short, and what searches it besides the tests that are named after it.
const LAWS: [(&str, &str, &[By]); 12] = [
    ("S1", "the partition falls for one index, and for the revision it was approved for", &[By::Rollout, By::InPlace]),
    ("S2", "an approval needs all pods and fresh passes in a row", &[By::Rollout, By::InPlace]),
    ("S3", "at most one pod is unavailable because of us", &[By::Rollout, By::InPlace]),
    ("S4", "nothing falls because of an error, a default, a crash or a deletion", &[By::Rollout, By::InPlace]),
    ("S5", "with the policies on, no pod carries a revision unapproved", &[By::Rollout, By::InPlace]),
    ("S6", "a cycle fails only if an answer refused or a pod was broken", &By::ALL),
    ("S7", "after Pause nothing opens without a person", &[By::Rollout, By::InPlace]),
    ("S8", "what is taken back leaves, and is not started again", &[By::Rollout, By::InPlace]),
    ("S9", "a fix is not kept out by what it replaces", &By::ALL),
    ("S10", "Completed, RolledOut and Ready only when true", &By::ALL),
    ("S11", "every state comes to its end, or says for whom it waits", &By::ALL),
    (
        "S12",
        "the version in charge keeps its pods until a higher one is promoted, with its checks",
        &[By::SideBySide, By::InPlace],
    ),
];

/// A rollout of one set, or versions.
#[derive(Clone, Copy)]
enum By {
    Rollout,
    SideBySide,
    InPlace,
}

impl By {
    const ALL: [Self; 3] = [Self::Rollout, Self::SideBySide, Self::InPlace];

    /// Each search with the least number of its states.
    fn searches(self) -> Vec<(&'static str, usize)> {
        match self {
            Self::Rollout => [&PEOPLE, &FAULTS, &BOTH, &OPENINGS].map(|search| (search.name, search.floor)).to_vec(),
            Self::SideBySide => SIDES.iter().map(|search| (search.name, search.floor)).collect(),
            Self::InPlace => PLACES.iter().map(|search| (search.name, search.floor)).collect(),
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of the mutants of a law, as `crates/e2e/mutants.txt` lists them.
fn mutants(list: &str, law: &str) -> String {
    let prefix = format!("{}-", law.to_lowercase());
    let names = list.lines().filter(|line| line.starts_with(&prefix));
    let names: Vec<&str> = names.filter_map(|line| line.split(" @@ ").next()).collect();
    names.join(", ")
}

fn table() -> String {
    let list = fs::read_to_string(root().join("crates/e2e/mutants.txt")).unwrap();
    let mut text = String::from(
        "# Laws of the engine\n\nWritten by the test `laws_are_listed`; `STS_PLUS_WRITE_DOCS=1` writes it anew. Each state counts once \
         in a search and is run to its end.\n\n| law | says | searched by | states, at least | mutants |\n|---|---|---|---|---|\n",
    );
    for (law, says, searches) in LAWS {
        let searches: Vec<_> = searches.iter().flat_map(|by| by.searches()).collect();
        let by: Vec<&str> = searches.iter().map(|(name, _)| *name).collect();
        let states: usize = searches.iter().map(|(_, floor)| floor).sum();
        let _ = writeln!(text, "| {law} | {says} | {} | {states} | {} |", by.join("; "), mutants(&list, law));
    }
    text
}

#[test]
fn laws_are_listed() {
    let path = root().join("docs/laws.md");
    if env::var_os("STS_PLUS_WRITE_DOCS").is_some() {
        fs::write(&path, table()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, table(), "docs/laws.md is out of date: run this test with STS_PLUS_WRITE_DOCS=1");
}

#[test]
fn the_daily_searches_have_a_million_states() {
    let states: usize = By::ALL.iter().flat_map(|by| by.searches()).map(|(_, floor)| floor).sum();
    assert!(states >= 1_000_000, "{states}");
}
