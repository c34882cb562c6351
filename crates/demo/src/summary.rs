//! The end of the story in a few lines: which pod was which, and what all of it cost.

use std::sync::Arc;

use testcluster::AuditEntry;

use crate::{
    played::BROKEN,
    scene::{Scene, short},
    second_act,
    tell::Tone,
    versions::Versions,
};

/// Tells which pod had which UID at which release, and what the operator wrote.
pub(crate) fn tell(scene: &Scene) -> anyhow::Result<()> {
    let tell = scene.watch.tell;
    tell.title("Summary of the first act");
    let mut tags: Vec<&str> = Vec::new();
    for (_, tag, _) in &scene.record.ready {
        if !tags.contains(&tag.as_str()) {
            tags.push(tag);
        }
    }
    let head: Vec<String> = tags.iter().map(|tag| format!("{:<14}", format!("nginx:{tag}"))).collect();
    tell.line(format!("  {:<8}{}", "pod", head.concat()).trim_end());
    for name in scene.pods.keys() {
        let cell = |tag: &&str| {
            let uid = scene.record.ready.iter().rfind(|(pod, of, _)| pod == name && of == tag).map(|(_, _, uid)| uid);
            uid.map_or_else(|| tell.paint(Tone::Dim, &format!("{:<14}", "never")), |uid| format!("{:<14}", short(uid)))
        };
        tell.line(format!("  {name:<8}{}", tags.iter().map(cell).collect::<Vec<_>>().concat()).trim_end());
    }
    let partitions: Vec<String> = scene.record.partitions.iter().map(ToString::to_string).collect();
    tell.line("");
    tell.line(&format!("  partition   {}", partitions.join(" ")));
    tell.line(&format!("  checks      {} answers of Prometheus", scene.record.checks));
    if let Some(writes) = scene.watch.stage.writes_of_the_operator()? {
        let count = |resource: &str, subresource: &str| {
            writes.iter().filter(|entry| entry.resource == resource && entry.subresource == subresource).count()
        };
        tell.line(&format!(
            "  writes      {} to the StatefulSet, {} to the status, {} events (of the operator, by the API server's audit log)",
            count("statefulsets", ""),
            count("phasedrollouts", "status"),
            count("events", "")
        ));
    }
    Ok(())
}

/// Tells which pods each version had.
pub(crate) fn tell_versions(scene: &Versions) -> anyhow::Result<()> {
    let tell = scene.watch.tell;
    tell.title("Summary of the second act");
    tell.line("  version  image         pods that were Ready");
    for (number, tag) in [("1", second_act::FIRST), ("2", second_act::GOOD), ("3", BROKEN)] {
        let of = format!("{}-v{number}-", second_act::NAME);
        let ready = scene.record.ready.iter().filter(|(pod, ..)| pod.starts_with(&of));
        let cells: Vec<String> =
            ready.map(|(pod, _, uid)| format!("{:<19}", format!("{pod} {}", short(uid)))).collect();
        tell.line(format!("  {number:<7}  {:<12}  {}", format!("nginx:{tag}"), cells.concat()).trim_end());
    }
    tell.line("");
    tell.line(&format!("  checks      {} answers of Prometheus", scene.record.checks));
    if let Some(writes) = scene.watch.stage.writes_of_the_operator()? {
        let to_status =
            |entry: &&Arc<AuditEntry>| entry.resource == "extendedstatefulsets" && entry.subresource == "status";
        let count = writes.iter().filter(to_status).count();
        tell.line(&format!("  writes      {count} to the status of the ExtendedStatefulSet"));
    }
    tell.line(&format!("  time        {:.0} s, both acts", tell.seconds()));
    tell.line("");
    Ok(())
}
