//! A StatefulSet that is there cannot take every change. The API server refuses those with a text that names all other fields; here it
//! becomes one sentence with the field and the cure. It reads and tries, and never writes.

use serde_json::Value;

use super::observe::Scene;
use super::render::{FIRST_ORDINAL, FOR_LIFE};
use super::{Context, render, trial};
use crate::errors::{Error, cut, told};

/// How the API server's own words are cut.
pub(super) const BYTES: usize = 700;

/// Why the API server does not take `body` for the StatefulSet `name`, in words for people.
///
/// # Errors
///
/// What field it is could not be found out now. That is no word about the template: it is to be tried again.
pub(super) async fn words(
    name: &str,
    body: &Value,
    refused: &kube::Error,
    scene: &Scene,
    context: &Context,
) -> Result<String, Error> {
    let child = scene.observed.children.iter().find(|child| child.name == name);
    match child.filter(|_| is_for_life(refused)) {
        Some(child) => in_words(name, trial::changed(child, body, scene, context).await),
        None => Ok(cut(&in_short(refused), BYTES).to_owned()),
    }
}

/// What the trial has found out.
fn in_words(name: &str, changed: Result<Vec<&'static str>, Error>) -> Result<String, Error> {
    match changed {
        Ok(fields) => Ok(sentence(name, &fields.into_iter().filter(|field| *field != "template").collect::<Vec<_>>())),
        // The template has another fault as well, which is to be mended first.
        Err(Error::Api { source, .. }) if trial::is_refused(&source) => Ok(cut(&in_short(&source), BYTES).to_owned()),
        Err(error) => Err(error),
    }
}

/// A patch that does not fit comes back whole, in quotation marks, in front of the reason.
fn in_short(refused: &kube::Error) -> String {
    const BEFORE: &str = "patch: Invalid value: \"";
    let kube::Error::Api(status) = refused else { return told(refused) };
    let patch = status.message.split_once(BEFORE).map(|(_, rest)| rest);
    let end = patch.and_then(|rest| rest.match_indices("\": ").find(|(at, _)| !rest[..*at].ends_with('\\')));
    match (patch, end) {
        (Some(rest), Some((at, mark))) => {
            let reason = &rest[at + mark.len()..];
            format!("{} ({} {})", reason.trim_start_matches("strict decoding error: "), status.code, status.reason)
        }
        _ => told(refused),
    }
}

/// In place another number of the first pod: Kubernetes takes it, and deletes pods for it at once.
pub(super) fn of_first_ordinal(name: &str, body: &Value, scene: &Scene) -> Option<String> {
    let child = scene.observed.children.iter().find(|child| child.name == name)?;
    let there = i64::from(child.set.as_ref()?.start);
    (render::first_ordinal(body.get("spec")) != there).then(|| sentence(name, &[FIRST_ORDINAL]))
}

/// True if the answer is that a StatefulSet keeps something for life. Kubernetes 1.37 names each field, releases before it the whole spec.
fn is_for_life(refused: &kube::Error) -> bool {
    let kube::Error::Api(status) = refused else { return false };
    let is_named = |field: &str| FOR_LIFE.iter().any(|kept| field.strip_prefix("spec.") == Some(kept));
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| match cause.field.as_str() {
        "spec" => cause.reason == "FieldValueForbidden",
        field => is_named(field) && cause.message.contains("immutable"),
    })
}

fn sentence(name: &str, fields: &[&str]) -> String {
    let is_known = !fields.is_empty();
    let fields = if is_known { fields } else { &FOR_LIFE };
    let what = fields.iter().map(|field| format!("spec.template.spec.{field}")).collect::<Vec<_>>();
    let what = what.join(if is_known { " and " } else { " or " });
    // Pods that the new selector does not fit would be left alone under the names that are needed, and those whose numbers are not
    // wanted any more would go at once.
    let adopts = is_known && !fields.contains(&"selector") && !fields.contains(&FIRST_ORDINAL);
    let anew = if adopts {
        format!(
            ", or delete it with `kubectl delete statefulset {name} --cascade=orphan`: it is made anew with the new value, and its pods \
             move to it one at a time"
        )
    } else {
        ", or make another ExtendedStatefulSet with the new one".to_owned()
    };
    let claims = if fields.contains(&"volumeClaimTemplates") && is_known {
        "; claims that exist stay as they are: what is to be larger is edited there (PersistentVolumeClaim spec.resources)"
    } else {
        ""
    };
    format!(
        "{what} cannot be changed in place, StatefulSet {name} keeps it for life: take the change back{anew}{claims}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;

    use super::*;

    /// What was found out is kept until the next change; what was not is no sentence that could be.
    #[test]
    fn only_an_answer_about_the_template_is_a_sentence() {
        let answer = |code| {
            let status = Status::failure("spec.template: what it is", "").with_code(code);
            in_words("db", Err(Error::api("trying StatefulSet db", kube::Error::Api(status.boxed()))))
        };
        assert!(answer(400).unwrap().contains("spec.template: what it is"));
        for code in [403, 409, 429, 500, 503] {
            assert!(answer(code).is_err(), "{code}");
        }
        let (call, after) = ("trying StatefulSet db".to_owned(), Duration::from_secs(1));
        assert!(in_words("db", Err(Error::Deadline { call, after })).is_err());
        assert!(
            in_words("db", Ok(vec!["serviceName", "template"])).unwrap().starts_with("spec.template.spec.serviceName ")
        );
    }

    #[test]
    fn a_patch_that_comes_back_is_left_out() {
        let text = r#"StatefulSet.apps "db" is invalid: patch: Invalid value: "[{\"op\":\"add\"}]": strict decoding error: unknown field "spec.x""#;
        let refused = |text: &str| kube::Error::Api(Status::failure(text, "Invalid").with_code(422).boxed());
        assert_eq!(in_short(&refused(text)), r#"unknown field "spec.x" (422 Invalid)"#);
        assert_eq!(in_short(&refused("spec.replicas: 1")), "spec.replicas: 1 (422 Invalid)");
    }

    #[test]
    fn the_sentence_names_the_field_and_a_cure_that_works_for_it() {
        let claims = sentence("db", &["volumeClaimTemplates"]);
        assert!(claims.starts_with("spec.template.spec.volumeClaimTemplates cannot be changed in place"), "{claims}");
        assert!(claims.contains("--cascade=orphan") && claims.contains("PersistentVolumeClaim"), "{claims}");
        let selector = sentence("db", &["selector", "serviceName"]);
        assert!(selector.contains("spec.template.spec.selector and spec.template.spec.serviceName"), "{selector}");
        assert!(!selector.contains("orphan"), "{selector}");
        let ordinals = sentence("db", &[FIRST_ORDINAL]);
        assert!(ordinals.starts_with("spec.template.spec.ordinals.start cannot be changed in place"), "{ordinals}");
        assert!(ordinals.contains("take the change back") && !ordinals.contains("orphan"), "{ordinals}");
        assert!(sentence("db", &[]).contains("spec.template.spec.podManagementPolicy or "));
    }
}
