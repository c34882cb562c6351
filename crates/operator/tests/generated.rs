//! The committed YAML is what the generator prints.

use std::{fs, path::Path};

use sts_plus::manifests::{Options, crds, operator, render, to_yaml};

#[test]
fn the_committed_crds_are_what_the_generator_prints() {
    same("deploy/crds.yaml", &to_yaml(&crds().unwrap()).unwrap());
}

#[test]
fn the_committed_installation_is_what_the_generator_prints() {
    same("deploy/install.yaml", &to_yaml(&render(&Options::default()).unwrap()).unwrap());
}

#[test]
fn the_committed_deployment_is_what_the_generator_prints() {
    let options = Options { image: Some("sts-plus:latest".to_owned()), ..Options::default() };
    same("deploy/operator.yaml", &to_yaml(&operator(&options)).unwrap());
}

fn same(name: &str, generated: &str) {
    let committed =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap_or_default();
    let difference = committed.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        committed == generated,
        "{name} differs from the generator, first in line {}. Cure: `make manifests`, which runs\n  \
         cargo run -p sts-plus -- crds > deploy/crds.yaml\n  cargo run -p sts-plus -- manifests > deploy/install.yaml\n  \
         cargo run -p sts-plus -- manifests --image sts-plus:latest --operator-only > deploy/operator.yaml",
        difference.unwrap_or_else(|| committed.lines().count().min(generated.lines().count())) + 1,
    );
}
