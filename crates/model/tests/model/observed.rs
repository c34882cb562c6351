//! The model does what was observed on live control planes (rows O1–O12 and O38–O41 of native-statefulset.md). No operator here.

use sts_plus_model::world::{SET, template_of};
use sts_plus_model::{Deed, Loop, World};

use crate::story::{CRASHING, GOOD, HOLD};

/// What is given, what is done, and what the pods and the two revisions are afterwards.
struct Row {
    name: &'static str,
    replicas: i32,
    parallel: bool,
    start: i32,
    partition: i32,
    act: fn(&mut World),
    layout: &'static str,
    equal: bool,
}

fn native(row: &Row) -> World {
    let mut world = World::empty();
    world.policy = false;
    world.add_set(SET, row.replicas, 1);
    let set = world.sets.get_mut(SET).unwrap();
    (set.parallel, set.start, set.partition) = (row.parallel, row.start, Some(row.partition));
    world.settle(600);
    world
}

fn template(world: &mut World, template: u32) {
    world.set_template(SET, template);
    world.settle(600);
}

fn scale(world: &mut World, replicas: i32) {
    world.scale(SET, replicas);
    world.settle(600);
}

fn partition(world: &mut World, partition: i32) {
    world.set_partition(SET, Some(partition));
    world.settle(600);
}

fn delete(world: &mut World, ordinal: i32) {
    world.delete_pod(SET, ordinal);
    world.settle(600);
}

fn template_and_scale(world: &mut World) {
    world.edit(SET, "both", |set| (set.template, set.replicas) = (2, 5));
    world.settle(600);
}

/// O39, O40: the top pod on a template that crashes, then the fix.
fn broken_top(world: &mut World, top: i32) {
    world.releases.insert(2, CRASHING);
    template(world, 2);
    partition(world, top);
    partition(world, HOLD);
    template(world, 3);
}

const ROW: Row =
    Row { name: "", replicas: 3, parallel: false, start: 0, partition: HOLD, act: |_| {}, layout: "", equal: false };

fn rows() -> Vec<Row> {
    let mut rows = numbered();
    rows.extend(repairs());
    rows
}

fn numbered() -> Vec<Row> {
    vec![
        Row { name: "O1", partition: 3, act: template_and_scale, layout: "0:1 1:1 2:1 3:2 4:2", ..ROW },
        Row { name: "O2", act: template_and_scale, layout: "0:1 1:1 2:1 3:1 4:1", ..ROW },
        Row {
            name: "O3",
            replicas: 2,
            partition: 3,
            act: |w| {
                template(w, 3);
                scale(w, 4);
            },
            layout: "0:1 1:1 2:1 3:3",
            ..ROW
        },
        Row {
            name: "O4",
            partition: 3,
            act: |w| {
                template(w, 2);
                scale(w, 0);
                assert_eq!(w.sets[SET].status.current, w.sets[SET].status.update);
                scale(w, 3);
            },
            layout: "0:2 1:2 2:2",
            equal: true,
            ..ROW
        },
        Row {
            name: "O5",
            partition: 1,
            act: |w| {
                template(w, 2);
                template(w, 3);
            },
            layout: "0:1 1:3 2:3",
            ..ROW
        },
        Row {
            name: "O6",
            partition: 1,
            act: |w| {
                template(w, 2);
                template(w, 3);
                partition(w, 3);
                delete(w, 2);
            },
            layout: "0:1 1:3 2:1",
            ..ROW
        },
        Row { name: "O7", replicas: 2, partition: 2, act: early_hold, layout: "0:1 1:2", ..ROW },
        Row { name: "O10", partition: 3, act: toggled, layout: "0:1 1:1 2:1", equal: true, ..ROW },
        Row { name: "O11 held", start: 5, partition: 6, act: |w| template(w, 2), layout: "5:1 6:1 7:1", ..ROW },
        Row {
            name: "O11 open",
            start: 5,
            partition: 6,
            act: |w| {
                template(w, 2);
                partition(w, 1);
            },
            layout: "5:1 6:2 7:2",
            ..ROW
        },
    ]
}

fn early_hold(world: &mut World) {
    template(world, 2);
    world.set_partition(SET, Some(0));
    world.run(600, |w| w.sets[SET].layout() == "0:2! 1:2");
    world.set_partition(SET, Some(2));
    delete(world, 0);
}

fn toggled(world: &mut World) {
    template(world, 2);
    template(world, 1);
    let set = &world.sets[SET];
    assert_eq!((set.status.update.as_deref(), set.status.updated_replicas), (Some("web-r1"), 3));
}

fn bad_then_back(world: &mut World) {
    world.releases.insert(2, CRASHING);
    template(world, 2);
    partition(world, 2);
    template(world, 1);
}

fn repairs() -> Vec<Row> {
    let mut rows = reverts();
    rows.extend(fixes());
    rows
}

fn reverts() -> Vec<Row> {
    vec![
        Row {
            name: "O8 stays bad",
            act: |w| {
                bad_then_back(w);
                assert_eq!(w.sets[SET].status.updated_replicas, 2);
                partition(w, 3);
            },
            layout: "0:1 1:1 2:2!",
            equal: true,
            ..ROW
        },
        Row {
            name: "O8 deleted",
            act: |w| {
                bad_then_back(w);
                partition(w, 3);
                delete(w, 2);
            },
            layout: "0:1 1:1 2:1",
            equal: true,
            ..ROW
        },
        Row { name: "O9", parallel: true, act: bad_then_back, layout: "0:1 1:1 2:1", equal: true, ..ROW },
        Row { name: "O38", act: |w| remade(w, false), layout: "0:1 1:1 2:1", equal: true, ..ROW },
        Row { name: "O38 dies", act: |w| remade(w, true), layout: "0:1 1:2 2:1", equal: true, ..ROW },
    ]
}

fn fixes() -> Vec<Row> {
    vec![
        Row {
            name: "O39 held",
            replicas: 4,
            act: |w| {
                broken_top(w, 3);
                partition(w, 3);
            },
            layout: "0:1 1:1 2:1 3:2!",
            ..ROW
        },
        Row {
            name: "O39 deleted",
            replicas: 4,
            act: |w| {
                broken_top(w, 3);
                partition(w, 3);
                delete(w, 3);
            },
            layout: "0:1 1:1 2:1 3:3",
            ..ROW
        },
        Row {
            name: "O39 Parallel",
            replicas: 4,
            parallel: true,
            act: |w| {
                broken_top(w, 3);
                partition(w, 3);
            },
            layout: "0:1 1:1 2:1 3:3",
            ..ROW
        },
        Row {
            name: "O40",
            replicas: 4,
            act: |w| {
                broken_top(w, 3);
                partition(w, 2);
                delete(w, 3);
            },
            layout: "0:1 1:1 2:3 3:3",
            ..ROW
        },
        Row {
            name: "O40 Parallel",
            replicas: 4,
            parallel: true,
            act: |w| {
                broken_top(w, 3);
                partition(w, 2);
            },
            layout: "0:1 1:1 2:3 3:3",
            ..ROW
        },
        Row {
            name: "O41 delete",
            replicas: 4,
            act: |w| {
                mixed_back(w);
                delete(w, 3);
            },
            layout: "0:1 1:1 2:4 3:1",
            equal: true,
            ..ROW
        },
        Row {
            name: "O41 open",
            replicas: 4,
            act: |w| {
                mixed_back(w);
                delete(w, 3);
                partition(w, 2);
            },
            layout: "0:1 1:1 2:1 3:1",
            equal: true,
            ..ROW
        },
    ]
}

fn remade(world: &mut World, dies: bool) {
    world.remake(SET, 2);
    let set = world.sets.get_mut(SET).unwrap();
    set.partition = Some(HOLD);
    world.settle(600);
    if dies {
        delete(world, 1);
    }
}

/// O41: pods 0 and 1 on template 1, 2 healthy on 4, 3 broken; the template goes back to 1 under the hold.
fn mixed_back(world: &mut World) {
    world.releases.insert(4, GOOD);
    template(world, 4);
    partition(world, 2);
    world.break_pod(SET, 3);
    partition(world, HOLD);
    template(world, 1);
}

#[test]
fn the_model_does_what_was_observed() {
    for row in rows() {
        let mut world = native(&row);
        (row.act)(&mut world);
        world.settle(600);
        let set = &world.sets[SET];
        let story = world.tale.story();
        assert_eq!(set.layout(), row.layout, "{}\n{story}", row.name);
        let equal = set.status.current == set.status.update;
        assert_eq!(equal, row.equal, "{}: current revision equals update revision\n{story}", row.name);
    }
}

/// B9: on 1.35.0 Parallel no longer heals a broken pod; on 1.37 broken pods go together.
#[test]
fn the_loops_of_the_versions_differ() {
    let cases =
        [(Loop::GateOff, "0:1 1:1 2:3 3:3"), (Loop::Gate135, "0:1 1:1 2:1 3:2!"), (Loop::Gate137, "0:1 1:1 2:3 3:3")];
    for (native_loop, layout) in cases {
        let row = Row { replicas: 4, parallel: true, ..ROW };
        let mut world = native(&row);
        world.native = native_loop;
        broken_top(&mut world, 3);
        partition(&mut world, 2);
        assert_eq!(world.sets[SET].layout(), layout, "{native_loop:?}");
    }
}

/// B6, seen on 1.37: a status does not tell yet of the pods that its sync has made and deleted. Where the controller looks next when they are
/// gone, it makes one anew by that status (B3), at the revision that is being left.
#[test]
fn a_sync_counts_what_it_has_found_and_not_what_it_does() {
    let row = Row { parallel: true, ..ROW };
    let mut world = native(&row);
    (world.native, world.grace) = (Loop::Gate137, 0);
    world.set_partition(SET, None);
    world.settle(600);
    world.tale.clear();
    world.edit(SET, "both", |set| (set.template, set.replicas) = (2, 2));
    world.sync(SET);
    let status = &world.sets[SET].status;
    assert_eq!((status.replicas, status.current_replicas), (3, 2), "of three, less the one that is rolled");
    world.settle(600);
    let made = world.tale.deeds().find_map(|deed| match deed {
        Deed::Created(pod, _, revision) => Some((pod.as_str(), template_of(revision))),
        _ => None,
    });
    assert_eq!(made, Some(("web-1", 1)));
}

/// O12: a second patch with the same test on the generation is refused; O14: status and pods do not bump the generation.
#[test]
fn a_generation_is_used_once() {
    let mut world = World::new(2);
    let generation = world.sets[SET].generation;
    world.delete_pod(SET, 1);
    world.settle(600);
    assert_eq!(world.sets[SET].generation, generation);
    world.set_template(SET, 2);
    world.sync(SET);
    let old = world.observe("gate").unwrap();
    world.set_partition(SET, Some(7));
    assert_eq!(world.sets[SET].partition, Some(HOLD), "the policy keeps it");
    world.scale(SET, 3);
    world.operate_on("gate", old, sts_plus_model::Stop::Never);
    assert_eq!(world.sets[SET].generation, generation + 2);
}
