//! The files of the crate build on one another in one direction: what can be read from the bottom up can be changed from the top down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut graph = imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let edges: usize = graph.values().map(BTreeSet::len).sum();
    assert!(graph.len() > 40 && edges > 150, "{} files, {edges} imports", graph.len());
    // What builds on nothing is taken away, over and over.
    loop {
        let free: BTreeSet<String> =
            graph.iter().filter(|(_, on)| on.is_empty()).map(|(name, _)| name.clone()).collect();
        if free.is_empty() {
            break;
        }
        graph.retain(|name, _| !free.contains(name));
        for on in graph.values_mut() {
            on.retain(|name| !free.contains(name));
        }
    }
    assert_eq!(graph, Graph::new(), "these are in a circle, or build on one");
}

/// Each file by the path of its module, with those that it imports.
fn imports(root: &Path) -> Graph {
    let mut files = BTreeMap::new();
    read(root, root, &mut files);
    let names: BTreeSet<String> = files.keys().cloned().collect();
    let of = |name: &str, text: &str| -> BTreeSet<String> {
        let uses = text.split("\nuse ").skip(1).filter_map(|rest| rest.split_once(';'));
        let paths = uses.flat_map(|(tree, _)| flatten("", tree));
        paths.filter_map(|path| file_of(name, &path, &names)).filter(|file| file != name).collect()
    };
    files.iter().map(|(name, text)| (name.clone(), of(name, text))).collect()
}

fn read(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().with_extension("");
            let name = name.to_str().unwrap().replace('/', "::");
            let name = name.strip_suffix("::mod").unwrap_or(&name).to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
            // What is exported again is imported first: who takes it from the top builds on the whole crate.
            files.insert(name, format!("\n{text}").replace("\npub use ", "\nuse "));
        }
    }
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn flatten(before: &str, tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((base, inner)) = tree.split_once('{') else { return vec![format!("{before}{tree}")] };
    let before = format!("{before}{base}");
    let inner = inner.trim_end().strip_suffix('}').unwrap();
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, sign) in inner.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(|part| flatten(&before, part)).collect()
}

/// The file that an imported path names.
fn file_of(name: &str, path: &str, files: &BTreeSet<String>) -> Option<String> {
    let path = match path.strip_prefix("crate::") {
        Some(path) => path.to_owned(),
        None if name == "lib" => path.to_owned(),
        None => format!("{name}::{path}"),
    };
    // An item of a file, or the file itself.
    let parts: Vec<&str> = path.split("::").collect();
    let file = (1..=parts.len()).rev().map(|length| parts[..length].join("::")).find(|part| files.contains(part));
    file.or_else(|| Some("lib".to_owned()))
}
