//! Faults that were found by reading and by trying, each told with what a user would have seen, and with the right value.

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSetStatus, Reason, UpgradeStep, Verdict, VersionPhase, crds};
use sts_plus_decide::{OwnerView, VersionsObserved, decide_versions};

use super::stories::installed;
use super::world::World;
use crate::owner::check;

/// Checks that pass with so many in a row, and fail after so many tries.
fn checked(passes: i32, tries: i32) -> Value {
    let mut check = check();
    (check["successThreshold"], check["maxTries"]) = (json!(passes), json!(tries));
    json!({ "check": check })
}

fn passes(world: &World) -> i32 {
    let cycle = world.status.upgrade.as_ref().and_then(|upgrade| upgrade.cycle.as_ref());
    cycle.map_or(0, |cycle| cycle.consecutive_passes)
}

/// The canary of version 2 has passed so many times of `of`.
fn passed(times: i32, of: i32, tries: i32) -> World {
    let mut world = installed(&checked(of, tries));
    world.owner.template("h2");
    world.run_until(|world| passes(world) == times);
    assert_eq!(passes(&world), times, "{world:?}");
    world
}

/// The container of the canary starts again, which takes no time.
fn restart_canary(world: &mut World) {
    let now = world.now;
    world.child_mut("web-v2").pods[0].ready_since = Some(now);
}

/// All three passes that let the version go on were made since `from`.
fn three_passes_since(mut world: World, from: Timestamp, what: &str) {
    world.run_until(|world| world.status.upgrade.as_ref().is_none_or(|upgrade| upgrade.step == UpgradeStep::Rolling));
    let made = world.status.checks.iter().filter(|check| check.passed && check.time >= from).count();
    assert!(made >= 3, "{what}: {made} of three passes were made since then {world:?}");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{what} {world:?}");
}

/// Two of three checks had passed, the operator was away, and the canary started again meanwhile: one more pass promoted it.
// spec: es§3
#[test]
fn passes_of_a_canary_that_started_again_unseen_do_not_count() {
    let mut world = passed(2, 3, 20);
    world.pass(2);
    restart_canary(&mut world);
    let from = world.now;
    world.pass(10);
    three_passes_since(world, from, "an absence");
}

/// The query was corrected after two passes of the old one, and one pass of the new one promoted the version.
// spec: es§3
#[test]
fn passes_of_another_query_do_not_count() {
    let mut world = passed(2, 3, 20);
    let mut other = checked(3, 20)["check"].clone();
    other["query"]["expr"] = json!("slow > 0");
    world.owner.strategy("check", &other);
    let from = world.now;
    three_passes_since(world, from, "another query");
}

/// It was paused after two passes, the canary started again in the pause, and one pass after it promoted the version.
// spec: es§3
#[test]
fn passes_from_before_a_pause_do_not_count() {
    for restarts in [false, true] {
        let mut world = passed(2, 3, 20);
        world.owner.pause(true);
        world.round();
        world.pass(20);
        if restarts {
            restart_canary(&mut world);
        }
        world.round();
        world.pass(20);
        let from = world.now;
        world.owner.pause(false);
        three_passes_since(world, from, "a pause");
    }
}

/// The operator was away for ten minutes after two passes, and the third one promoted the version: nothing said how the canary had been meanwhile.
// spec: es§3
#[test]
fn passes_from_before_a_long_absence_of_the_operator_do_not_count() {
    let mut world = passed(2, 3, 20);
    world.pass(600);
    let from = world.now;
    three_passes_since(world, from, "ten minutes");
}

/// A Prometheus that answers two times of three, and three passes in a row are needed: after four answers, none of which was a refusal, the
/// version was stale.
// spec: es§3, L066
#[test]
fn a_prometheus_that_answers_two_times_of_three_makes_no_version_stale() {
    let mut world = installed(&checked(3, 4));
    world.answers = Some(&[Verdict::NoData, Verdict::NoData, Verdict::Error]);
    world.owner.template("h2");
    for _ in 0..300 {
        world.round();
        world.tick();
        world.pass(1);
    }
    assert_eq!((world.heard(Reason::VersionStale), world.heard(Reason::CanaryRetried)), (0, 0), "{world:?}");
    world.answers = None;
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{world:?}");
}

/// What was refused stays counted between errors.
// spec: es§3, L024
#[test]
fn a_refused_canary_is_stale_however_often_prometheus_fails_to_answer() {
    for answers in [&[Verdict::Data, Verdict::Error][..], &[Verdict::Data, Verdict::NoData, Verdict::Error]] {
        let mut world = installed(&checked(3, 4));
        world.answers = Some(answers);
        world.owner.template("h2");
        world.run_until(|world| world.heard(Reason::VersionStale) > 0);
        assert_eq!((world.heard(Reason::VersionStale), world.status.current_version), (1, Some(1)), "{world:?}");
    }
}

/// One of two checks had passed when the canary was away for a moment (it was paused, the query was corrected, Prometheus was started again). The
/// two passes after that did not fit into the tries that were left, and the version was stale.
// spec: es§3
#[test]
fn what_breaks_the_streak_of_a_canary_and_is_no_refusal_gives_its_tries_back() {
    type Break = fn(&mut World);
    let breaks: [(&str, Break); 4] = [
        ("away", |world| {
            let now = world.now;
            let pod = &mut world.child_mut("web-v2").pods[0];
            (pod.ready, pod.ready_since) = (false, Some(now));
            world.round();
            world.pass(1);
            world.tick();
        }),
        ("paused", |world| {
            world.owner.pause(true);
            world.round();
            world.pass(20);
            world.owner.pause(false);
        }),
        ("another query", |world| {
            let mut other = checked(2, 2)["check"].clone();
            other["query"]["expr"] = json!("slow > 0");
            world.owner.strategy("check", &other);
        }),
        ("an error", |world| {
            world.answers = Some(&[Verdict::Error]);
            for _ in 0..6 {
                world.round();
                world.pass(1);
            }
            world.answers = None;
        }),
    ];
    let mut wrong = Vec::new();
    for (what, disturb) in breaks {
        let mut world = passed(1, 2, 2);
        disturb(&mut world);
        world.settle();
        if world.heard(Reason::VersionStale) > 0 || world.status.current_version != Some(2) {
            wrong.push(format!("{what}: {:?} {}", world.status.phase, world.status.message));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Version 2 of h2 is stale, for its checks or its pods.
fn stale(is_bad: bool) -> World {
    let mut world = installed(&json!({ "check": check(), "canaryWatchSeconds": 60 }));
    if is_bad {
        world.bad.insert("h2".into());
    } else {
        world.failing.insert("h2".into());
    }
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)));
    world
}

/// The status was lost, by a restore without it, while version 2 was stale. The operator gave its template the number 3 and started the canaries
/// that had failed again, without a retry.
// spec: es§3, L024
#[test]
fn a_version_that_is_marked_stale_stays_so_when_the_status_is_lost() {
    for is_bad in [false, true] {
        let mut world = stale(is_bad);
        let reason = world.child("web-v2").stale.clone();
        world.status = ExtendedStatefulSetStatus::default();
        world.settle();
        assert!(!world.has("web-v3"), "{world:?}");
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Failed, Some(1)), "{world:?}");
        assert_eq!((&world.child("web-v2").stale, world.child("web-v2").replicas), (&reason, 0), "{world:?}");
        (world.failing, world.bad) = Default::default();
        world.settle();
        assert_eq!(world.status.phase, VersionPhase::Failed, "without a retry: {world:?}");
        world.owner.retry("1");
        world.settle();
        assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{world:?}");
    }
}

/// And what comes next is a new version, or the one that runs.
// spec: es§3
#[test]
fn the_next_template_goes_on_from_a_stale_version_of_a_lost_status() {
    for (hash, version) in [("h3", 3), ("h1", 1)] {
        let mut world = stale(false);
        world.status = ExtendedStatefulSetStatus::default();
        world.settle();
        world.owner.template(hash);
        world.settle();
        assert_eq!(
            (world.status.phase, world.status.current_version),
            (VersionPhase::Ready, Some(version)),
            "{world:?}"
        );
    }
}

/// Somebody wrote a whole log file into the retry annotation, and the operator kept all of it in the status of the object: 256 KiB of it, until
/// the API server refused the object as too large.
// spec: es§3, es§8, L114
#[test]
fn a_long_retry_token_is_kept_by_its_ends() {
    let mut world = stale(false);
    let long = |end: &str| format!("{}{end}", "x".repeat(200_000));
    world.owner.retry(&long("1"));
    world.settle();
    assert_eq!((world.heard(Reason::VersionStale), world.status.phase), (2, VersionPhase::Failed), "{world:?}");
    let kept = world.status.retry.clone().unwrap();
    assert!(kept.len() <= 100, "{} bytes of it are kept", kept.len());
    world.failing.clear();
    world.settle();
    assert_eq!(world.status.phase, VersionPhase::Failed, "the same value is no new try");
    world.owner.retry(&long("2"));
    world.settle();
    assert_eq!((world.status.phase, world.status.current_version), (VersionPhase::Ready, Some(2)), "{world:?}");
}

/// How long a name may be side by side, without zones, as the CRD has it.
fn longest_name() -> usize {
    let mut crds = crds();
    let crd = crds.remove(1);
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let rules = schema.x_kubernetes_validations.as_ref().unwrap();
    let rule = &rules.iter().find(|rule| rule.rule.contains("size(self.metadata.name)")).unwrap().rule;
    let (_, rest) = rule.split_once("== 'InPlace' ? 0 : ").expect("what is left for the version");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    assert!(rule.contains("<= 52 || (oldSelf.hasValue()"), "{rule}");
    52 - digits.parse::<usize>().unwrap()
}

/// A name of 49 characters was accepted, and nine upgrades later the tenth was refused for good, since `<name>-v10` has one character too many:
/// nothing but another object with another name helps then.
// spec: es§1, es§3, L115
#[test]
fn a_name_that_is_accepted_has_room_for_a_million_versions() {
    let plan = |name: &str, last_version: i32| {
        let mut world = World::new(&json!({}));
        world.status.last_version = last_version;
        let observed = world.observe(None);
        let owner = OwnerView { name: name.to_owned(), ..observed.owner.clone() };
        decide_versions(&VersionsObserved { owner, ..observed }, world.now)
    };
    let name = "a".repeat(longest_name());
    for last in [0, 9, 99, 999_998] {
        let plan = plan(&name, last);
        assert_ne!(plan.status.phase, VersionPhase::Blocked, "{}", plan.status.message);
    }
}

/// All pods of version 1 broke, version 2 came into charge, and version 1 was "being removed" for ever: the StatefulSet controller removes no pod
/// while one below it is not Ready.
// spec: es§3
#[test]
fn a_version_of_which_several_pods_are_broken_is_removed() {
    let mut world = installed(&json!({}));
    world.bad.insert("h1".into());
    world.tick();
    world.owner.template("h2");
    world.settle();
    assert_eq!((world.status.phase, world.children.len()), (VersionPhase::Ready, 1), "{world:?}");
}

/// The operator was away for longer than a step may take, and killed after it had asked for the canary: version 2 was stale before its canary was
/// there.
// spec: es§3, L075
#[test]
fn a_canary_that_a_crash_kept_from_being_noted_has_all_its_time() {
    let mut world = installed(&json!({ "canaryWatchSeconds": 60 }));
    world.owner.template("h2");
    let is_canary =
        |world: &World| world.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == UpgradeStep::Canary);
    world.run_until(is_canary);
    assert_eq!(world.child("web-v2").replicas, 0, "{world:?}");
    world.pass(100);
    world.round_until(1);
    assert_eq!(world.child("web-v2").replicas, 1, "{world:?}");
    world.settle();
    assert_eq!((world.status.phase, world.heard(Reason::VersionStale)), (VersionPhase::Ready, 0), "{world:?}");
}

/// The status was lost while the first version did not come up: nobody was woken at the end of the time that it has, and it was never said.
// spec: es§3
#[test]
fn the_time_of_an_install_has_an_end_also_when_the_status_was_lost() {
    let mut world = World::new(&json!({ "canaryWatchSeconds": 60 }));
    world.bad.insert("h1".into());
    world.run_until(|world| world.has("web-v1") && !world.child("web-v1").pods.is_empty());
    world.status = ExtendedStatefulSetStatus::default();
    world.round();
    let wake = world.wake.expect("it looks again");
    assert!(wake.duration_since(world.now).as_secs() <= 60, "{world:?}");
}
