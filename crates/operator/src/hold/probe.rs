//! One dry run: a template change of a set, as somebody else would make it.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sts_plus_api::{Reason, names};
use sts_plus_decide::HoldState;

use crate::admission;
use crate::client::deadline;
use crate::errors::{Class, Error};
use crate::pace;
use crate::views::SetObject;

/// The partition that the dry run asks for: not the hold, so that the answer tells who wrote it, and high enough that not even a
/// server that forgot that it is a dry run would roll a pod.
const ASKED: i32 = names::HOLD - 1;

const HOLE: &str = "until then a second template change in mid-rollout, a partition written by others, or any change while the \
                    operator is down can roll pods unchecked";

/// What a dry run says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// What holds for each claimed set of the namespace.
    State(HoldState),
    /// It was refused by something that is not ours and may concern this set alone.
    Refused(HoldState),
    /// The set is gone, or is not one that the policies hold (any more): that it was not held says nothing.
    Unfit,
    /// It failed in a way that says nothing about the hold.
    Nothing,
}

/// Makes a dry run on one set.
pub(super) async fn find_out(client: &Client, namespace: &str, name: &str, uid: &str) -> Said {
    let sets: Api<SetObject> = Api::namespaced(client.clone(), namespace);
    let params =
        PatchParams { dry_run: true, field_manager: Some(names::MANAGER_HOLD.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(body(uid, pace::random()));
    match deadline(format!("dry run on StatefulSet {name}"), sets.patch(name, &params, &patch)).await {
        Ok(answer) if answer.partition() == Some(names::HOLD) => Said::State(HoldState::Enforced),
        Ok(answer) if !super::can_be_held(&answer) => Said::Unfit,
        Ok(_) => Said::State(why_not(client).await),
        Err(error) => refused(&error),
    }
}

fn body(uid: &str, random: u64) -> Value {
    json!({
        "metadata": {"uid": uid, "annotations": {names::PROBE: "true"}},
        "spec": {
            "template": {"metadata": {"annotations": {names::PROBE: random.to_string()}}},
            "updateStrategy": {"rollingUpdate": {"partition": ASKED}},
        },
    })
}

/// False if the API server says that it does not serve `MutatingAdmissionPolicy`.
pub(crate) async fn serves_mutating_policies(client: &Client) -> bool {
    let served = deadline(
        "reading what admissionregistration.k8s.io/v1 serves",
        client.list_api_group_resources("admissionregistration.k8s.io/v1"),
    )
    .await;
    served.map_or(true, |list| list.resources.iter().any(|resource| resource.name == "mutatingadmissionpolicies"))
}

async fn why_not(client: &Client) -> HoldState {
    if serves_mutating_policies(client).await {
        HoldState::NotEnforced(
            Reason::PolicyNotEffective,
            format!(
                "a dry run of a template change was not held: the admission policies are not installed, not bound, or removed. \
                 Install them with `make install`, or with what `sts-plus manifests` prints; {HOLE}"
            ),
        )
    } else {
        HoldState::NotEnforced(
            Reason::PolicyNotServed,
            format!(
                "the API server does not serve MutatingAdmissionPolicy as v1 (Kubernetes 1.36 or later does), and no \
                 validating policy stands in for it (`make install` brings it): the operator holds as soon as it sees a \
                 change; {HOLE}"
            ),
        )
    }
}

fn refused(error: &Error) -> Said {
    let text = error.to_string();
    match error.class() {
        _ if error.is_not_found() => Said::Unfit,
        // Another set has the name now.
        Class::Conflict => Said::Unfit,
        Class::Forbidden if text.contains(admission::TEMPLATE_REFUSED) => Said::State(HoldState::Refusing),
        Class::Forbidden if text.contains("cannot patch resource") => Said::Refused(HoldState::NotEnforced(
            Reason::Forbidden,
            format!("the operator may not patch StatefulSets, so it cannot find out whether the hold is kept: {text}"),
        )),
        Class::Forbidden | Class::Invalid => Said::Refused(HoldState::NotEnforced(
            Reason::Unknown,
            format!("the dry run that finds out whether the hold is kept was refused: {text}"),
        )),
        Class::Transient | Class::Bug => {
            tracing::debug!("{text}");
            Said::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, message: &str) -> Said {
        let status = Status::failure(message, "x").with_code(code).boxed();
        refused(&Error::api("dry run on StatefulSet web", kube::Error::Api(status)))
    }

    #[test]
    fn the_dry_run_changes_the_template_and_asks_for_a_partition_that_rolls_nothing() {
        let body = body("u", 7);
        assert_eq!(body["metadata"]["uid"], "u");
        assert_eq!(body["metadata"]["annotations"][names::PROBE], "true");
        assert_eq!(body["spec"]["template"]["metadata"]["annotations"][names::PROBE], "7");
        let asked = body["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap();
        assert!(asked < i64::from(names::HOLD) && asked > 1_000_000);
    }

    #[test]
    fn a_refusal_is_told_and_a_failure_says_nothing() {
        let forbidden = "statefulsets.apps \"web\" is forbidden: User \"x\" cannot patch resource \"statefulsets\"";
        assert!(matches!(answer(403, forbidden), Said::Refused(HoldState::NotEnforced(Reason::Forbidden, _))));
        let policy = format!("ValidatingAdmissionPolicy 'x' denied request: {}: …", admission::TEMPLATE_REFUSED);
        assert_eq!(answer(403, &policy), Said::State(HoldState::Refusing));
        let quota = answer(403, "exceeded quota: q");
        assert!(
            matches!(quota, Said::Refused(HoldState::NotEnforced(Reason::Unknown, text)) if text.contains("exceeded quota"))
        );
        assert_eq!(answer(503, "busy"), Said::Nothing);
        assert_eq!(answer(409, "changed"), Said::Unfit);
        assert_eq!(answer(404, "gone"), Said::Unfit);
    }
}
