//! How many pods: the limits of `spec.scaling`, and their spread over zones.

use sts_plus_api::{ExtendedStatefulSetSpec, Scaling, ScalingPolicy, ZoneReplicas};

/// Whether a number of replicas is allowed.
#[must_use]
pub fn is_allowed(scaling: &Scaling, count: i32) -> bool {
    count >= scaling.min.unwrap_or(0).max(0)
        && scaling.max.is_none_or(|max| count <= max)
        && (!scaling.odd_only || count % 2 == 1)
}

/// The number of replicas where none is written: the minimum, else 1, made odd upward. Nothing if no number is allowed.
#[must_use]
pub fn lowest(scaling: &Scaling) -> Option<i32> {
    let least = scaling.min.unwrap_or(1).max(0).min(scaling.max.unwrap_or(i32::MAX));
    [Some(least), least.checked_add(1)].into_iter().flatten().find(|count| is_allowed(scaling, *count))
}

/// The allowed number that is nearest to `count`, the lower one of two. Nothing if no number is allowed.
#[must_use]
pub fn nearest(scaling: &Scaling, count: i32) -> Option<i32> {
    let (min, max) = (scaling.min.unwrap_or(0).max(0), scaling.max.unwrap_or(i32::MAX));
    if min > max {
        return None;
    }
    let within = count.clamp(min, max);
    [Some(within), within.checked_sub(1), within.checked_add(1)]
        .into_iter()
        .flatten()
        .find(|count| is_allowed(scaling, *count))
}

/// The replicas that are wanted, and those that were written if they are others. `Err` is the number that is refused, or nothing if
/// no number is allowed at all; the API server lets neither happen.
pub(super) fn wanted(spec: &ExtendedStatefulSetSpec) -> Result<Wanted, Option<i32>> {
    let Some(written) = spec.written_replicas() else {
        return lowest(&spec.scaling).map(|replicas| Wanted { replicas, written: None }).ok_or(None);
    };
    if is_allowed(&spec.scaling, written) {
        return Ok(Wanted { replicas: written, written: Some(written) });
    }
    match spec.scaling.policy {
        ScalingPolicy::Reject => Err(Some(written)),
        ScalingPolicy::Clamp => {
            let nearest = nearest(&spec.scaling, written).ok_or(None)?;
            Ok(Wanted { replicas: nearest, written: Some(written) })
        }
    }
}

/// How many replicas are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) replicas: i32,
    pub(super) written: Option<i32>,
}

/// The pods that are wanted in each zone; none if no number is allowed.
pub(super) fn zones(spec: &ExtendedStatefulSetSpec) -> Vec<(Option<String>, i32)> {
    wanted(spec).map(|wanted| spread(spec, wanted.replicas)).unwrap_or_default()
}

/// The zones in their order, each with its pods. One without a name if there are no zones.
pub(super) fn spread(spec: &ExtendedStatefulSetSpec, replicas: i32) -> Vec<(Option<String>, i32)> {
    let zones = spec.all_zones();
    let Ok(count) = i32::try_from(zones.len()) else { return Vec::new() };
    if count == 0 {
        return vec![(None, replicas)];
    }
    let share = |index: i32| match spec.zone_replicas {
        ZoneReplicas::PerZone => replicas,
        ZoneReplicas::Spread => replicas / count + i32::from(index < replicas % count),
    };
    (0..count).zip(zones).map(|(index, zone)| (Some(zone.clone()), share(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cube() -> impl Iterator<Item = Scaling> {
        let limits = || (-1..=7).map(|limit| (limit >= 0).then_some(limit));
        limits().flat_map(move |min| {
            limits().flat_map(move |max| {
                [false, true].map(|odd_only| Scaling { min, max, odd_only, policy: ScalingPolicy::Clamp })
            })
        })
    }

    /// Every limit from 0 to 7 or none, odd or not, every count from 0 to 9, against the plainest reading of the words.
    // spec: es§2, L024
    #[test]
    fn the_whole_cube() {
        let mut seen = 0;
        for scaling in cube() {
            let all: Vec<i32> = (0..=40).filter(|count| is_allowed(&scaling, *count)).collect();
            for count in 0..=9 {
                let expected = all.iter().copied().min_by_key(|allowed| ((allowed - count).abs(), *allowed));
                assert_eq!(nearest(&scaling, count), expected, "{scaling:?} {count}");
                seen += 1;
            }
            let from = scaling.min.unwrap_or(1);
            let expected = all.iter().copied().find(|allowed| *allowed >= from).or_else(|| all.last().copied());
            assert_eq!(lowest(&scaling), expected, "{scaling:?}");
            for odd in all.iter().filter(|_| scaling.odd_only) {
                assert_eq!(odd % 2, 1);
            }
        }
        assert_eq!(seen, 9 * 9 * 2 * 10);
    }

    // spec: es§2, L148
    #[test]
    fn a_clamped_count_stays_where_it_was_brought_to() {
        for scaling in cube() {
            for count in 0..=9 {
                let Some(once) = nearest(&scaling, count) else { continue };
                assert_eq!(nearest(&scaling, once), Some(once));
            }
        }
    }

    fn spec(zones: &[&str], zone_replicas: &str) -> ExtendedStatefulSetSpec {
        serde_json::from_value(serde_json::json!({
            "az": zones, "zoneReplicas": zone_replicas, "template": { "spec": { "template": {} } },
        }))
        .unwrap()
    }

    // spec: es§1
    #[test]
    fn what_is_left_over_goes_to_the_first_zones() {
        let counts = |spec: &ExtendedStatefulSetSpec, n| spread(spec, n).iter().map(|(_, n)| *n).collect::<Vec<_>>();
        assert_eq!(counts(&spec(&["a", "b", "c"], "Spread"), 7), [3, 2, 2]);
        assert_eq!(counts(&spec(&["a", "b", "c"], "Spread"), 2), [1, 1, 0]);
        assert_eq!(counts(&spec(&["a", "b", "c"], "PerZone"), 2), [2, 2, 2]);
        assert_eq!(counts(&spec(&[], "Spread"), 4), [4]);
    }
}
