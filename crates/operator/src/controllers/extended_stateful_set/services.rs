//! The Services of an ExtendedStatefulSet, as the API server has them. It writes nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt as _};
use sts_plus_api::{ExtendedStatefulSet, names};
use sts_plus_decide::ServiceView;

use super::Context;
use crate::client::deadline;
use crate::errors::Error;
use crate::watch::Caches;

/// What was read of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Services {
    /// The one of activeService.
    pub(super) active: Option<ServiceView>,
    /// The one of previewService.
    pub(super) preview: Option<ServiceView>,
    /// Those of the status that no field names any more.
    pub(super) former: Vec<ServiceView>,
    /// The resource version of each, by name; none of one that is not there.
    read: BTreeMap<String, Option<String>>,
}

impl Services {
    /// From the API server itself.
    pub(super) async fn read(owner: &ExtendedStatefulSet, context: &Context) -> Result<Self, Error> {
        let strategy = &owner.spec.update_strategy;
        let named = [&strategy.active_service, &strategy.preview_service];
        let noted = owner.status.iter().flat_map(|status| &status.services);
        let former: Vec<_> =
            noted.filter(|name| !named.iter().any(|named| named.as_deref() == Some(name.as_str()))).collect();
        let mut services = Self::default();
        services.active = services.one(owner, strategy.active_service.as_ref(), context).await?;
        services.preview = services.one(owner, strategy.preview_service.as_ref(), context).await?;
        for name in former {
            let found = services.one(owner, Some(name), context).await?;
            services.former.extend(found);
        }
        Ok(services)
    }

    /// False if the stream knows another state of one of them than was read: somebody has changed it, or made it, or deleted it.
    pub(super) fn are_unchanged(&self, namespace: &str, caches: &Caches) -> bool {
        let is_same = |(name, read): (&String, &Option<String>)| caches.service_version(namespace, name) == *read;
        !caches.know_services() || self.read.iter().all(is_same)
    }

    async fn one(
        &mut self,
        owner: &ExtendedStatefulSet,
        name: Option<&String>,
        context: &Context,
    ) -> Result<Option<ServiceView>, Error> {
        let Some(name) = name else { return Ok(None) };
        let services: Api<Service> = Api::namespaced(context.client.clone(), &owner.namespace().unwrap_or_default());
        let found = deadline(format!("reading Service {name}"), services.get_opt(name)).await?;
        self.read.insert(name.clone(), found.as_ref().and_then(kube::ResourceExt::resource_version));
        let selector = found.as_ref().and_then(|service| service.spec.as_ref()?.selector.as_ref());
        let version = selector.and_then(|selector| selector.get(names::VERSION).cloned());
        let is_ours =
            found.as_ref().is_some_and(|service| service.annotations().get(names::OWNER) == Some(&owner.name_any()));
        Ok(Some(ServiceView {
            name: name.clone(),
            exists: found.is_some(),
            is_ours,
            is_foreign: version.is_some() && !is_ours,
            version,
        }))
    }
}
