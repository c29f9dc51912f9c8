//! `[ovn]` and `[ovnnorth]`.
//! In: the sections. Out: who builds the topology, and how the Northbound database is reached. Invariant: an `ssl:` address has
//! its three files. Not here: reading those files.

use super::Keys;
use crate::{Ovn, OvnNetworks, OvnNorth, OvnTopology, SettingsError, TlsPaths};

impl Keys<'_> {
    /// The Northbound database's address, the files for TLS, and what to say of files that nothing needs.
    pub(super) fn ovn_north(&mut self) -> Result<(OvnNorth, Option<String>), SettingsError> {
        const SECTION: &str = "ovnnorth";
        let address = self
            .0
            .text(SECTION, "address")?
            .unwrap_or_else(|| "unix:/var/run/ovn/ovnnb_db.sock".to_owned());
        let mut files = Vec::new();
        for key in ["client-privkey", "client-cert", "client-cacert"] {
            files.push((key, self.0.text(SECTION, key)?));
        }
        if !address.starts_with("ssl:") {
            let given = files.iter().any(|(_, file)| file.is_some());
            let idle = "[ovnnorth] client-privkey, client-cert and client-cacert have no effect: the address is not an ssl: one";
            let north = OvnNorth { address, tls: None };
            return Ok((north, given.then(|| idle.to_owned())));
        }
        let mut paths = Vec::new();
        for (key, file) in files {
            let why =
                format!("{key} is required with address {address}; allowed: a file in PEM form");
            let file = file.ok_or_else(|| self.0.wrong(SECTION, key, "", &why))?;
            paths.push(std::path::PathBuf::from(file));
        }
        let tls =
            <[_; 3]>::try_from(paths)
                .ok()
                .map(|[private_key, certificate, ca_certificate]| TlsPaths {
                    private_key,
                    certificate,
                    ca_certificate,
                });
        Ok((OvnNorth { address, tls }, None))
    }

    pub(super) fn ovn(&mut self) -> Result<Ovn, SettingsError> {
        let topology = self
            .0
            .word(
                "ovn",
                "topology",
                &[("adopt", OvnTopology::Adopt), ("build", OvnTopology::Build)],
            )?
            .unwrap_or(OvnTopology::Adopt);
        let networks = self.0.word(
            "ovn",
            "networks",
            &[("observe", OvnNetworks::Observe), ("own", OvnNetworks::Own)],
        )?;
        match (topology, networks) {
            (OvnTopology::Adopt, None) => Ok(Ovn {
                topology,
                networks: OvnNetworks::Observe,
            }),
            (OvnTopology::Build, None) => Ok(Ovn {
                topology,
                networks: OvnNetworks::Own,
            }),
            (OvnTopology::Build, Some(OvnNetworks::Observe)) => {
                let why = "networks must be \"own\" when topology=build (nobody else allocates node ids and subnets there)";
                Err(self.0.wrong("ovn", "networks", "observe", why))
            }
            (_, Some(networks)) => Ok(Ovn { topology, networks }),
        }
    }
}
