//! `[kubernetes] service-cidrs` and `[default] udn-allowed-default-services`.
//! In: the keys. Out: ranges and names of Services. Invariant: without the key they are OVN-Kubernetes' own two.
//! Not here: whether there are such Services.

use std::collections::BTreeSet;

use model::{ObjectKey, Prefix};

use super::{Keys, is_dns_label};
use crate::SettingsError;

/// What OVN-Kubernetes allows where nothing is said.
const DEFAULT: &str = "default/kubernetes,kube-system/kube-dns";

impl Keys<'_> {
    /// Ranges of Services, and those of the default network that networks of users may use.
    pub(super) fn services(&mut self) -> Result<(Vec<Prefix>, BTreeSet<ObjectKey>), SettingsError> {
        let form = "prefixes such as 10.96.0.0/16, separated by commas";
        let ranges = self.0.list("kubernetes", "service-cidrs", form)?;
        Ok((ranges.unwrap_or_default(), self.allowed_services()?))
    }

    fn allowed_services(&mut self) -> Result<BTreeSet<ObjectKey>, SettingsError> {
        const KEY: &str = "udn-allowed-default-services";
        let text = self.0.text("default", KEY)?;
        let text = text.as_deref().unwrap_or(DEFAULT);
        let names = text.split(',').map(str::trim);
        names
            .map(|name| {
                let parts = name.split_once('/');
                let parts = parts.filter(|(of, name)| is_dns_label(of) && is_dns_label(name));
                let (namespace, name) = parts.ok_or_else(|| {
                    let why = "allowed: names of Services such as kube-system/kube-dns, separated by commas";
                    self.0.wrong("default", KEY, name, why)
                })?;
                Ok(ObjectKey::new(namespace, name))
            })
            .collect()
    }
}
