//! Each built section of the specification and each built lesson of `spec.txt` is shown by a test that says so: `// spec: pr§5, L083`.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use walkdir::WalkDir;

const LIST: &str = include_str!("../spec.txt");
/// What a tag begins with, in a line of its own above the attributes of a test.
const TAG: &str = "// spec: ";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The ids of the list and whether each is built.
fn listed() -> BTreeMap<&'static str, bool> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut ids = BTreeMap::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let (id, state) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        assert!(["built", "config", "jobs"].contains(&state), "{id} is {state:?}");
        assert!(words.next().is_some(), "{id} does not say what it is about");
        assert!(ids.insert(id, state == "built").is_none(), "{id} is listed twice");
    }
    ids
}

/// Where a tag stands, and its ids.
struct Tag {
    place: String,
    ids: Vec<String>,
}

/// What makes a test on each minor of the functions that it lists.
const MACRO: &str = "on_both_minors!(";

/// The name of the function that a line declares.
fn declared(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("#[test] ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// True if a macro of the file makes tests of this function.
fn is_listed(function: &str, text: &str) -> bool {
    let lists = text.split(MACRO).skip(1).filter_map(|rest| rest.split(");").next());
    lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == function)
}

/// The tags of a file. Directly below each stands a test: a function with the attribute of one, or one that a macro makes a test.
fn tags(name: &str, text: &str) -> Vec<Tag> {
    let lines: Vec<&str> = text.lines().collect();
    let tag_of = |(at, line): (usize, &&str)| {
        let ids = line.trim_start().strip_prefix(TAG)?;
        let place = format!("{name}:{}", at + 1);
        let below = lines.get(at + 1..).unwrap_or_default().iter().take_while(|line| !line.trim().is_empty());
        let head: Vec<&str> = below.copied().collect();
        let end = head.iter().position(|line| declared(line).is_some());
        let end = end.unwrap_or_else(|| panic!("{place}: no function stands below the tag"));
        let function = head.get(end).and_then(|line| declared(line)).unwrap_or_default();
        let has_attribute = head.iter().take(end + 1).any(|line| {
            let line = line.trim_start();
            line.starts_with("#[test]") || line.starts_with("#[tokio::test") || line == "#[rstest]"
        });
        assert!(has_attribute || is_listed(function, text), "{place}: {function} is no test");
        Some(Tag { place, ids: ids.split(',').map(|id| id.trim().to_owned()).collect() })
    };
    lines.iter().enumerate().filter_map(tag_of).collect()
}

fn all_tags() -> Vec<Tag> {
    let root = Path::new(ROOT);
    let sources = ["crates", "testcluster"].into_iter().flat_map(|folder| WalkDir::new(root.join(folder)));
    let files = sources.map(|entry| entry.expect("a folder can be read").into_path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let tags_of = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source is text");
        tags(&path.strip_prefix(root).unwrap_or(&path).display().to_string(), &text)
    };
    files.flat_map(tags_of).collect()
}

#[test]
fn whatever_is_built_is_shown_by_a_test() {
    let listed = listed();
    let shown: BTreeSet<String> = all_tags().into_iter().flat_map(|tag| tag.ids).collect();
    let missing: Vec<_> =
        listed.iter().filter(|(id, built)| **built && !shown.contains(**id)).map(|(id, _)| *id).collect();
    assert!(missing.is_empty(), "built, and no test has the tag: {}", missing.join(", "));
}

#[test]
fn each_tag_names_what_is_built() {
    let listed = listed();
    for tag in all_tags() {
        for id in tag.ids {
            assert_eq!(listed.get(id.as_str()), Some(&true), "{}: {id} is not built, or not in spec.txt", tag.place);
        }
    }
}

#[test]
fn a_tag_above_a_test_is_read() {
    let heads = ["#[test]\nfn shows()", "#[rstest]\n#[case(1)]\n#[tokio::test]\nasync fn shows()", "async fn shows()"];
    for head in heads {
        let found = tags("file", &format!("{MACRO}other, shows);\n\n{TAG}L001, L002\n{head} {{}}\n"));
        assert_eq!(found.iter().map(|tag| tag.ids.join(" ")).collect::<Vec<_>>(), ["L001 L002"], "{head}");
    }
}

#[test]
#[should_panic(expected = "helper is no test")]
fn a_tag_above_a_helper_is_found() {
    tags("file", &format!("{TAG}L001\nfn helper() {{}}\n\n#[test]\nfn shows() {{ helper(); }}\n"));
}

#[test]
#[should_panic(expected = "no function stands below the tag")]
fn a_tag_that_stands_alone_is_found() {
    tags("file", &format!("{TAG}L001\n\n#[test]\nfn shows() {{}}\n"));
}
