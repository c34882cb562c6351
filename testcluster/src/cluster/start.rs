//! The way from nothing to a cluster that is ready.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    Cluster, Parts,
    builder::{Settings, User},
    components::{Component, Plan, Ports},
    health::{Failure, Probes, Running, wait},
    home::Home,
    layout::Layout,
};
use crate::{
    assets::Assets,
    build::say,
    kubeconfig::{self, Caller, Server},
    pki::{Pki, random_hex},
    process::Process,
    report, stages,
};

const PATIENCE: Duration = Duration::from_mins(1);
const ATTEMPTS: u32 = 4;
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

pub(super) async fn start(settings: Settings) -> anyhow::Result<Cluster> {
    let minor = settings.minor;
    let assets = tokio::task::spawn_blocking(move || Assets::ensure(minor)).await??;
    let since = Instant::now();
    let home = Home::claim(settings.dir.as_deref(), &minor.to_string())?;
    let layout = Layout::new(home.dir());
    let users = users(&settings)?;
    let pki = prepare(&layout, &assets, &users)?;
    let mut attempt = 1;
    let parts = loop {
        match try_once(&settings, &assets, &layout, &pki, &users).await {
            Ok(parts) => break parts,
            Err(Failure::PortTaken) if attempt < ATTEMPTS => {
                attempt += 1;
                let _ = fs::remove_dir_all(layout.data("etcd"));
                let _ = fs::remove_dir_all(layout.logs());
                layout.create()?;
            }
            Err(Failure::PortTaken) => anyhow::bail!("no free ports in {ATTEMPTS} attempts"),
            Err(Failure::Other(error)) => {
                return Err(error.context(format!("Kubernetes {minor} did not start")));
            }
        }
    };
    let took = since.elapsed();
    say(&format!("Kubernetes {minor} is ready after {:.1} s", took.as_secs_f32()));
    report::control_plane(minor, took)?;
    Ok(Cluster::assemble(parts, home, settings, users, took))
}

fn users(settings: &Settings) -> anyhow::Result<Vec<User>> {
    let masters = vec!["system:masters".to_owned()];
    let mut wanted = vec![
        ("admin".to_owned(), masters.clone()),
        ("kwok".to_owned(), masters),
        ("system:kube-controller-manager".to_owned(), Vec::new()),
        ("system:kube-scheduler".to_owned(), Vec::new()),
    ];
    wanted.extend(settings.users.iter().cloned());
    wanted
        .into_iter()
        .map(|(name, groups)| {
            let token = random_hex(16)?;
            Ok(User { name, groups, token })
        })
        .collect()
}

fn prepare(layout: &Layout, assets: &Assets, users: &[User]) -> anyhow::Result<Pki> {
    layout.create()?;
    layout.link_kubectl(&assets.kube.join("kubectl"))?;
    layout.write_audit_policy()?;
    layout.write_tokens(users)?;
    fs::write(layout.config("stages.yaml"), stages::text(&assets.kwok.join("stages"))?)?;
    Pki::create(&layout.pki(""))
}

async fn try_once(
    settings: &Settings,
    assets: &Assets,
    layout: &Layout,
    pki: &Pki,
    users: &[User],
) -> Result<Parts, Failure> {
    let ports = Ports::choose()?;
    let server = Server { url: format!("https://127.0.0.1:{}", ports.api_server), ca: pki.ca.clone() };
    let admin_token = write_kubeconfigs(layout, &server, users)?;
    let etcd_name = format!("etcd-{}", random_hex(4)?);
    let plan = Plan { assets, layout, settings, ports, etcd_name: &etcd_name };
    let launches = plan.launches();
    let probes = Probes::new(&server, ports, &etcd_name, &admin_token)?;
    let mut running = Running::new();
    for component in [Component::Etcd, Component::ApiServer] {
        spawn(component, &launches, &mut running)?;
    }
    wait("etcd", PATIENCE, &mut running, || probes.check(Component::Etcd)).await?;
    // Once it serves, the API server takes another second for what the rest needs (roles above all); an admin and kwok need none of it.
    wait("kube-apiserver", PATIENCE, &mut running, || probes.check_serving()).await?;
    let nodes = settings.nodes;
    wait("first objects", PATIENCE, &mut running, || create_content(&probes, nodes)).await?;
    spawn(Component::Kwok, &launches, &mut running)?;
    wait("kube-apiserver", PATIENCE, &mut running, || probes.check(Component::ApiServer)).await?;
    for component in [Component::ControllerManager, Component::Scheduler] {
        spawn(component, &launches, &mut running)?;
    }
    for component in [Component::ControllerManager, Component::Scheduler, Component::Kwok] {
        wait(component.name(), PATIENCE, &mut running, || probes.check(component)).await?;
    }
    wait("nodes", PATIENCE, &mut running, || probes.check_content(nodes)).await?;
    Ok(Parts { running, launches, probes, server })
}

fn spawn(
    component: Component,
    launches: &std::collections::BTreeMap<Component, crate::process::Launch>,
    running: &mut Running,
) -> anyhow::Result<()> {
    let launch = launches.get(&component).context("every component has its command line")?;
    running.insert(component, Process::spawn(launch)?);
    Ok(())
}

/// Returns the token of the admin.
fn write_kubeconfigs(layout: &Layout, server: &Server, users: &[User]) -> anyhow::Result<String> {
    let mut admin = None;
    for user in users {
        let caller = Caller { token: &user.token, acts_as: None };
        if user.name == "admin" {
            admin = Some(user.token.clone());
            kubeconfig::write(&layout.kubeconfig(), server, &caller)?;
        }
        kubeconfig::write(&layout.user(&user.name), server, &caller)?;
    }
    admin.context("the admin is one of the users")
}

/// The nodes, and the storage class whose volumes kwok provides; can be repeated.
async fn create_content(probes: &Probes, nodes: usize) -> anyhow::Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "kwok-volume",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": "kwok.x-k8s.io/volume",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    });
    probes.create("/apis/storage.k8s.io/v1/storageclasses", &class).await?;
    for (number, zone) in (0..nodes).zip(ZONES.into_iter().cycle()) {
        probes.create("/api/v1/nodes", &node(number, zone)).await?;
    }
    Ok(())
}

fn node(number: usize, zone: &str) -> Value {
    let name = format!("node-{number}");
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": { "kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0" },
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": zone,
                "type": "kwok",
            },
        },
    })
}
