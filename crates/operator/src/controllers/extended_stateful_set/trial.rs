//! What the API server makes of the template, found out by dry runs: whether it takes it, and whether it comes to what a version already
//! is, since what is not written is filled in. It writes nothing.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use serde_json::{Value, json};
use sts_plus_api::{VersionStrategyType, names};
use sts_plus_decide::{ChildView, TemplateView, VersionsObserved, child_name};

use super::child::{self, Mode};
use super::known::Known;
use super::observe::Scene;
use super::render::{FIRST_ORDINAL, FOR_LIFE};
use super::{Context, Findings, render, sentence};
use crate::errors::{Class, Error, cut, told};

/// What was found out about the template of one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trial {
    /// Why the API server refuses it.
    problem: Option<String>,
    /// The digest of the version that it comes to, if it is written in another way.
    comes_to: Option<String>,
    /// True if the problem says nothing about the template and passes by itself: it is tried again at the next look.
    passes: bool,
}

impl Trial {
    pub(super) fn tell(&self, template: &mut TemplateView) {
        template.problem.clone_from(&self.problem);
        if let Some(hash) = &self.comes_to {
            template.hash.clone_from(hash);
        }
    }
}

/// Tries the template, unless the result is known: StatefulSets that exist with exactly this template have taken it.
pub(super) async fn of(scene: &Scene, context: &Context) -> Result<Trial, Error> {
    let observed = &scene.observed;
    let Some(candidate) = candidate(observed) else { return Ok(Trial::default()) };
    let is_known = |known: &Known| {
        !known.trial.passes && known.generation == observed.owner.generation && known.sets == scene.uids()
    };
    let known =
        |Findings(known): &mut Findings| known.as_ref().filter(|known| is_known(known)).map(|it| it.trial.clone());
    if let Some(trial) = context.slots.findings(scene.uid(), known) {
        return Ok(trial);
    }
    match tried(candidate, scene, context).await {
        Err(Error::Api { source, .. }) if passes(&source) => {
            let told = cut(&told(&source), sentence::BYTES).to_owned();
            let problem = format!(
                "what the API server makes of spec.template cannot be found out now, it is tried again: {told}"
            );
            Ok(Trial { problem: Some(problem), comes_to: None, passes: true })
        }
        outcome => outcome,
    }
}

async fn tried(candidate: Candidate<'_>, scene: &Scene, context: &Context) -> Result<Trial, Error> {
    let observed = &scene.observed;
    if observed.children.iter().all(|child| child.hash != observed.template.hash)
        && let Some(hash) = same(scene, context).await?
    {
        return Ok(Trial { comes_to: Some(hash), ..Trial::default() });
    }
    Ok(Trial { problem: problem(candidate, scene, context).await?, ..Trial::default() })
}

/// A StatefulSet that the template is to be tried on: name, version and zone.
type Candidate<'o> = (String, i32, Option<&'o str>);

/// The one that it is tried on. None if all that are there have taken it.
fn candidate(observed: &VersionsObserved) -> Option<Candidate<'_>> {
    let (template, owner) = (&observed.template, &observed.owner);
    let kind = owner.spec.update_strategy.kind;
    let next = owner.status.last_version.saturating_add(1);
    let with_hash = observed.children.iter().find(|child| child.hash == template.hash);
    let version = with_hash.map_or(next, |child| child.version);
    let has_taken = |child: &ChildView| child.hash == template.hash && child.settings == template.settings;
    // In place every zone has to take it, and those that are there may be other ones than the first of the list.
    let on = match kind {
        VersionStrategyType::InPlace if !observed.children.is_empty() => {
            Some(observed.children.iter().find(|child| !has_taken(child))?)
        }
        _ if with_hash.is_some_and(has_taken) => return None,
        _ => with_hash,
    };
    let first = owner.spec.all_zones().first().map(String::as_str);
    Some(match on {
        Some(child) => (child.name.clone(), version, child.zone.as_deref()),
        None => (child_name(&owner.name, kind, version, first), version, first),
    })
}

/// The digest of the version that the template would leave as it is.
async fn same(scene: &Scene, context: &Context) -> Result<Option<String>, Error> {
    let mut asked = BTreeSet::new();
    for child in &scene.observed.children {
        if asked.insert(child.version) && would_leave(child, scene, context).await? {
            return Ok(Some(child.hash.clone()));
        }
    }
    Ok(None)
}

/// True if the StatefulSet stays as it is with `spec.template`, in all that makes a version.
async fn would_leave(child: &ChildView, scene: &Scene, context: &Context) -> Result<bool, Error> {
    // What somebody else wrote says nothing about the version.
    let mut noted = scene.observed.owner.status.sets_named(&child.name);
    if !noted.any(|set| set.generation == child.generation) {
        return Ok(false);
    }
    let zone = child.zone.as_deref();
    let body = scene.body(&scene.owner, &child.name, zone, child.version, child.replicas, names::HOLD);
    let there = read(child, scene, context).await?;
    match child::replace(&there, &body, Mode::Try, scene, context).await {
        Ok(wanted) => Ok(differences(&wanted, &there).is_empty()),
        Err(Error::Api { source, .. }) if is_refused(&source) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The fields of what makes a version that `body` changes in the StatefulSet, which does not take it. The API server says what the body comes to,
/// as a StatefulSet that is not made.
pub(super) async fn changed(
    child: &ChildView,
    body: &Value,
    scene: &Scene,
    context: &Context,
) -> Result<Vec<&'static str>, Error> {
    let there = read(child, scene, context).await?;
    let scratch = format!("{}-try", child.name);
    let mut another = body.clone();
    if let Some(metadata) = another.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), json!(scratch));
    }
    let wanted = child::make(&scratch, &another, Mode::Try, scene, context).await?;
    Ok(differences(&wanted, &there))
}

/// The StatefulSet as it was seen.
async fn read(child: &ChildView, scene: &Scene, context: &Context) -> Result<DynamicObject, Error> {
    let there = child::read(&child.name, scene, context).await?;
    if there.metadata.generation != Some(child.generation) {
        return Err(Error::Outdated { what: format!("StatefulSet {}", child.name) });
    }
    Ok(there)
}

fn differences(wanted: &DynamicObject, there: &DynamicObject) -> Vec<&'static str> {
    let is_changed = |field: &&str| match *field {
        FIRST_ORDINAL => starts_at(wanted) != starts_at(there),
        field => kept(wanted, field) != kept(there, field),
    };
    FOR_LIFE.into_iter().chain([FIRST_ORDINAL, "template"]).filter(is_changed).collect()
}

fn starts_at(set: &DynamicObject) -> i64 {
    render::first_ordinal(set.data.get("spec"))
}

/// A field of the spec. The status of a claim template says nothing.
fn kept(set: &DynamicObject, field: &str) -> Value {
    let mut value = set.data.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
    for claim in value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        claim.remove("status");
    }
    value
}

/// Why the API server refuses the StatefulSet that the template comes to.
async fn problem(candidate: Candidate<'_>, scene: &Scene, context: &Context) -> Result<Option<String>, Error> {
    let (name, version, zone) = candidate;
    if scene.observed.foreign.contains(&name) {
        // What is said about somebody else's StatefulSet is no word about the template.
        return Ok(None);
    }
    let body = scene.body(&scene.owner, &name, zone, version, 0, names::HOLD);
    if let Some(sentence) = sentence::of_first_ordinal(&name, &body, scene) {
        return Ok(Some(sentence));
    }
    let tried: Result<DynamicObject, Error> = if scene.sets.contains_key(&name) {
        let there = child::read(&name, scene, context).await?;
        child::replace(&there, &body, Mode::Try, scene, context).await
    } else {
        child::make(&name, &body, Mode::Try, scene, context).await
    };
    match tried {
        Ok(_) => Ok(None),
        Err(Error::Api { source, .. }) if is_refused(&source) => {
            sentence::words(&name, &body, &source, scene, context).await.map(Some)
        }
        Err(error) => Err(error),
    }
}

/// The API server has looked at the template and does not want it.
pub(super) fn is_refused(error: &kube::Error) -> bool {
    crate::errors::class_of(error) == Class::Invalid
}

/// Something else has kept the answer back: a quota, a policy, a webhook. It may let it through a moment later.
fn passes(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 403 || (status.code == 500 && status.message.contains("webhook"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_claim_template_is_no_change() {
        let of = |status: Value| {
            let claims = json!([{ "metadata": { "name": "data" }, "status": status }]);
            let set = json!({ "metadata": { "name": "db" }, "spec": { "volumeClaimTemplates": claims } });
            kept(&serde_json::from_value(set).unwrap(), "volumeClaimTemplates")
        };
        assert_eq!(of(json!({ "phase": "Pending" })), of(json!(null)));
    }
}
