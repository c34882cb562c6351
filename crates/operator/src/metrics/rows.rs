//! How rows are written: labels that are borrowed, one family after the other.

use std::collections::BTreeMap;
use std::fmt;

use kube::Resource;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::{Counts, Key};

/// Namespace and name of an object that is shown.
pub(super) type Shown<'a> = (&'a str, &'a str);

pub(super) fn shown<K: Resource>(object: &K) -> Option<Shown<'_>> {
    let metadata = object.meta();
    Some((metadata.namespace.as_deref()?, metadata.name.as_deref()?))
}

pub(super) fn key_of((namespace, name): &Key) -> Shown<'_> {
    (namespace, name)
}

pub(super) fn of((namespace, name): Shown<'_>) -> [(&'static str, &str); 2] {
    [("namespace", namespace), ("name", name)]
}

pub(super) fn with<'a>(
    (namespace, name): Shown<'a>,
    label: &'static str,
    value: &'a str,
) -> [(&'static str, &'a str); 3] {
    [("namespace", namespace), ("name", name), (label, value)]
}

pub(super) fn one_if(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

pub(super) fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    mut rows: impl Iterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    rows.try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
}

pub(super) fn counter<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    mut rows: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    rows.try_for_each(|(labels, value)| {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    })
}

/// Answers of Prometheus.
pub(super) fn checks(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &BTreeMap<Key, Counts>,
) -> fmt::Result {
    let rows = counts.iter().flat_map(|(key, counts)| {
        counts.checks.iter().map(|(verdict, count)| (with(key_of(key), "verdict", verdict), *count))
    });
    counter(encoder, name, help, rows)
}

/// Looks that ended with an error.
pub(super) fn errors(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &BTreeMap<Key, Counts>,
) -> fmt::Result {
    let rows = counts.iter().flat_map(|((namespace, name), counts)| {
        counts.errors.iter().map(move |(class, count)| {
            let labels = [("namespace", namespace.clone()), ("name", name.clone()), ("class", class.to_string())];
            (labels, *count)
        })
    });
    counter(encoder, name, help, rows)
}
