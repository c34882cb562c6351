//! Every kept input through its target, and proof that the targets see what they look for.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeMap, fs, panic, path::Path};

use sts_plus_api::{SuccessWhen, Verdict};
use sts_plus_fuzz::{TARGETS, Target, answer, answer::judge, substitution, target};
use sts_plus_gates::{
    decode::Reply,
    verdict::{Asked, Judgement},
};

/// Runs a target over its folder, and tells which input broke it.
fn kept(name: &str) {
    let Target { name, run } = target(name).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(panic::catch_unwind(|| run(&bytes)).is_ok(), "{} is broken by {}", name, file.display());
    }
}

macro_rules! over_the_corpus {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { kept(stringify!($name)); })*

        // spec: L023, L063
        #[test]
        fn no_target_is_left_out() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(tested, TARGETS.map(|target| target.name));
        }
    };
}

over_the_corpus!(rollout, state, answer, substitution, url, set, pod, refusal, versions);

fn breaks(run: impl FnOnce() + panic::UnwindSafe) -> bool {
    panic::catch_unwind(run).is_err()
}

/// A value pasted in as it is.
fn naive(template: &str, values: &BTreeMap<&'static str, String>) -> Option<String> {
    Some(template.replace("${pod}", values.get("pod")?))
}

/// Quotes are escaped, backslashes are not.
fn half(template: &str, values: &BTreeMap<&'static str, String>) -> Option<String> {
    Some(template.replace("${pod}", &values.get("pod")?.replace('"', "\\\"")))
}

#[test]
fn a_value_that_leaves_its_string_is_noticed() {
    let template = r#"up{pod="${pod}"} == 0"#;
    let fills: [(substitution::Fill, &[&str]); 2] =
        [(naive, &[r#"x"} or vector(1) or up{a=""#, r#"a"b"#]), (half, &[r#"x\"} or vector(1) #"#, "a\\nb", "a\\"])];
    for (fill, values) in fills {
        substitution::holds(template, "web-1", fill);
        for value in values {
            assert!(breaks(|| substitution::holds(template, value, fill)), "{value:?}");
        }
    }
}

// spec: L063
#[test]
fn a_verdict_on_a_broken_answer_is_noticed() {
    let inputs: [&[u8]; 5] = [
        b"503 application/json - NoData\n{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}",
        b"200 text/html - NoData\n<html>",
        b"200 application/json - NoData\n{\"status\":\"error\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}",
        b"200 application/json - NoData\n{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[1]}}",
        b"200 application/json - NoData\n{\"status\":\"success\",\"warnings\":[\"w\"],\"data\":{\"resultType\":\"vector\",\"result\":[]}}",
    ];
    for input in inputs {
        let (reply, success_when) = answer::read(input);
        answer::holds(&reply, success_when, judge);
        let worse = |_: &Reply, _: Asked<'_>| Judgement {
            verdict: Verdict::NoData,
            passed: true,
            ..Judgement::error("no series".to_owned())
        };
        assert!(breaks(|| answer::holds(&reply, SuccessWhen::NoData, worse)), "{reply:?}");
    }
}

#[test]
fn a_token_in_a_sentence_is_noticed() {
    let (reply, success_when) = answer::read(b"401 text/plain - NoData\nnot t0ken-t0ken");
    let worse = |reply: &Reply, _: Asked<'_>| Judgement::error(String::from_utf8_lossy(&reply.body).into_owned());
    answer::holds(&reply, success_when, judge);
    assert!(breaks(|| answer::holds(&reply, success_when, worse)));
}
