//! What the README and the guide say is what there is: fields and defaults, make targets, phases, reasons, annotations, the sample, and
//! the output of the demo.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};
use sts_plus_api::{crds, names};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table under a heading, as cells.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let section = text.split_once(heading).unwrap_or_else(|| panic!("no {heading}")).1;
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table
        .skip(2)
        .map(|line| line.replace("\\|", "/").trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

fn spec() -> Value {
    let crd = serde_json::to_value(crds().first().unwrap()).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap().clone()
}

fn field<'a>(spec: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(spec, |schema, name| schema.pointer(&format!("/properties/{name}")))
}

/// Words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_field_of_the_readme_is_in_the_crd_with_its_default() {
    let (readme, spec) = (read("README.md"), spec());
    let rows = rows(&readme, "## Fields");
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let path = row[0].trim_matches('`');
        let schema = field(&spec, path).unwrap_or_else(|| panic!("{path} is not in the CRD"));
        let default = schema.get("default").filter(|value| !value.is_object()).unwrap_or(&Value::Null);
        let said = match row[1].as_str() {
            "" => Value::Null,
            word => serde_json::from_str(word).unwrap_or_else(|_| json!(word)),
        };
        assert_eq!(*default, said, "the default of {path}");
    }
}

#[test]
fn every_field_of_the_crd_is_in_the_readme() {
    let (readme, spec) = (read("README.md"), spec());
    let section = readme.split_once("## Fields").unwrap().1.split_once("\n## ").unwrap().0.to_owned();
    let said: BTreeSet<&str> = quoted(&section).flat_map(|word| word.split('.')).collect();
    let mut missing = Vec::new();
    for parent in ["", "check", "check.query", "check.query.tls"] {
        let schema = if parent.is_empty() { &spec } else { field(&spec, parent).unwrap() };
        let names = schema["properties"].as_object().unwrap().keys();
        // The name of a query is told in the guide.
        missing.extend(names.filter(|name| *name != "name" && !said.contains(name.as_str())));
    }
    assert!(missing.is_empty(), "not in README.md, Fields: {missing:?}");
}

#[test]
fn every_make_target_that_is_named_exists() {
    let makefile = read("Makefile");
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/guide/operating.md",
        "docs/guide/checks.md",
        "docs/guide/security.md",
    ] {
        let text = read(document);
        let commands = text.lines().filter_map(|line| line.strip_prefix("$ ")).chain(quoted(&text));
        for command in commands.filter_map(|command| command.strip_prefix("make ")) {
            let targets = command.split('#').next().unwrap_or_default().split_whitespace();
            for target in targets.take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())) {
                assert!(makefile.contains(&format!("\n{target}:")), "{document}: make {target}");
            }
        }
    }
}

#[test]
fn phases_and_reasons_of_the_guide_are_those_of_the_api() {
    let (guide, spec) = (read("docs/guide/operating.md"), read("crates/api/src/conditions.rs"));
    let crd = serde_json::to_value(crds().first().unwrap()).unwrap();
    let phases =
        crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum").unwrap();
    let phases: BTreeSet<&str> = phases.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let table = rows(&guide, "## Where does it stand?");
    let said: BTreeSet<&str> = table.iter().flat_map(|row| row[0].split(", ")).collect();
    assert_eq!(said, phases);
    for row in rows(&guide, "## Nothing moves") {
        for reason in quoted(&row[0]) {
            assert!(spec.contains(&format!("    {reason},\n")), "{reason} is no reason");
        }
    }
}

#[test]
fn annotations_that_are_named_exist() {
    let known = [
        names::CLAIM,
        names::WRITTEN_PARTITION,
        names::ALLOW_PARTITION,
        names::REFUSED_PARTITION,
        names::RELEASE,
        names::HOLD_SWITCH,
        names::APPROVE,
        names::RETRY,
        names::FINALIZER,
        names::CHECK_CREDENTIALS,
        "sts.plus/v1alpha1",
    ];
    for document in [
        "README.md",
        "docs/guide/operating.md",
        "docs/guide/checks.md",
        "docs/guide/security.md",
        "docs/adr/0002-hold-values.md",
    ] {
        let text = read(document);
        for (at, _) in text.match_indices("sts.plus/") {
            let name: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "./-".contains(*c)).collect();
            assert!(known.iter().any(|known| *known == name), "{document}: {name}");
        }
    }
}

#[test]
fn the_readme_shows_the_sample_and_the_output_of_the_demo() {
    let readme = read("README.md");
    assert!(readme.contains(read("config/samples/phasedrollout.yaml").trim_end()), "config/samples/phasedrollout.yaml");
    let piece = readme.split_once("```text\n").unwrap().1.split_once("\n```").unwrap().0;
    assert!(
        read("docs/demo.txt").contains(piece),
        "docs/demo.txt is the output of make demo; README.md shows a part of it"
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for document in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/guide/operating.md",
        "docs/guide/checks.md",
        "docs/guide/security.md",
        "docs/adr/README.md",
    ] {
        let text = read(document);
        let folder = root.join(document).parent().unwrap().to_owned();
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap();
            let path = target.split('#').next().unwrap();
            assert!(
                target.starts_with("http") || path.is_empty() || folder.join(path).exists(),
                "{document}: {target}"
            );
        }
    }
}
