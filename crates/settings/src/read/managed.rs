//! `[bgp-managed]`: the fabric that the cluster-manager makes.
//! In: the section. Out: [`Managed`]. Invariant: a fabric that is asked for has a topology.
//! Not here: which networks are routed by it (`read`).

use model::Asn;
use model::network::{NoOverlay, Routing, Transport};

use super::{BOOL, Keys, is_dns_label, is_dns_subdomain};
use crate::limits::number;
use crate::reader::Reader;
use crate::{AutoTopology, Managed, Profile, SettingsError, Topology};

const TOPOLOGIES: &[(&str, Topology)] = &[
    ("full-mesh", Topology::FullMesh),
    ("route-reflector", Topology::RouteReflector),
    ("auto", Topology::Auto),
];

impl Keys<'_> {
    pub(super) fn managed(&mut self, transport: Transport) -> Result<Managed, SettingsError> {
        const SECTION: &str = "bgp-managed";
        let topology = self.0.word(SECTION, "topology", TOPOLOGIES)?;
        let auto = auto_topology(&mut self.0)?;
        let number = self
            .0
            .value::<i64>(SECTION, "as-number", "1 to 4294967294")?
            .unwrap_or(i64::from(Asn::DEFAULT.get()));
        let asn = Asn::try_from(number).map_err(|err| {
            self.0.wrong(
                SECTION,
                "as-number",
                &number.to_string(),
                &format!("invalid as-number: {err}"),
            )
        })?;
        let default_namespace = match self.0.word("openshift", "enable", BOOL)? {
            Some(true) => "openshift-frr-k8s",
            _ => "frr-k8s-system",
        };
        let frr_namespace = self
            .0
            .text(SECTION, "frr-namespace")?
            .unwrap_or_else(|| default_namespace.to_owned());
        if !is_dns_label(&frr_namespace) {
            let why = "invalid frr-namespace: allowed is a DNS label (lower-case letters, digits, dashes; at most 63)";
            return Err(self.0.wrong(SECTION, "frr-namespace", &frr_namespace, why));
        }
        let profile = self
            .0
            .word(
                SECTION,
                "profile",
                &[
                    ("resilient", Profile::Resilient),
                    ("compat", Profile::Compat),
                ],
            )?
            .unwrap_or(Profile::Resilient);
        let password_secret = self.0.text(SECTION, "password-secret")?;
        if let Some(name) = password_secret.as_deref().filter(|n| !is_dns_subdomain(n)) {
            let why = "invalid password-secret: allowed is the name of a Secret (lower-case letters, digits, dashes, dots; at most 253)";
            return Err(self.0.wrong(SECTION, "password-secret", name, why));
        }
        let managed = |options: NoOverlay| options.routing == Routing::Managed;
        if topology.is_none() && transport.no_overlay().is_some_and(managed) {
            let why = "topology is required when routing=managed; allowed: \"full-mesh\", \"route-reflector\", \"auto\"";
            return Err(self.0.wrong(SECTION, "topology", "", why));
        }
        Ok(Managed {
            topology,
            auto,
            asn,
            frr_namespace,
            profile,
            password_secret,
        })
    }
}

/// With equal numbers a fabric of that many nodes stays what it is; a larger lower one would be both at once.
fn auto_topology(r: &mut Reader<'_>) -> Result<AutoTopology, SettingsError> {
    const SECTION: &str = "bgp-managed";
    const BELOW: &str = "auto-full-mesh-below";
    let default = AutoTopology::default();
    let above = (SECTION, "auto-reflectors-above");
    let reflectors_above = number(r, above, default.reflectors_above, 3..=5000)?;
    let usual = default.full_mesh_below.min(reflectors_above);
    let full_mesh_below = number(r, (SECTION, BELOW), usual, 2..=5000)?;
    if full_mesh_below > reflectors_above {
        let why = format!(
            "more than auto-reflectors-above; allowed: a whole number from 2 to {reflectors_above}"
        );
        return Err(r.wrong(SECTION, BELOW, &full_mesh_below.to_string(), &why));
    }
    Ok(AutoTopology {
        reflectors_above,
        full_mesh_below,
    })
}
