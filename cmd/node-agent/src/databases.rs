//! The OVSDB databases of the node.
//! In: settings. Out: what a client is configured with. Invariant: an address that cannot be one is refused at the start;
//! a server or a file that is not there yet is waited for.
//! Not here: sessions (`ovsdb`).

use std::time::Duration;

use anyhow::Context;
use model::{NetworkName, NodeName};
use ovsdb::{ClientConfig, Endpoint, MonitorTable, TlsFiles};
use settings::{OvnTopology, Settings};

/// The Northbound database of a node, over TLS where `[ovnnorth] address` says so. Key and certificates are read at each connection.
///
/// # Errors
/// When `[ovnnorth] address` is none.
pub fn north(settings: &Settings, node: &NodeName) -> anyhow::Result<ClientConfig> {
    let tables = match settings.ovn.topology {
        OvnTopology::Build => ovn::north::monitor(),
        OvnTopology::Adopt => {
            let keys = plan_node::beside::north::keys(&NetworkName::default_network(), node);
            ovn::north::monitor_beside(&keys)
        }
    };
    let mut config = config(&settings.ovn_north.address, ovn::north::DATABASE, tables)
        .with_context(|| format!("[ovnnorth] address = {:?}", settings.ovn_north.address))?;
    config.tls = settings.ovn_north.tls.as_ref().map(|paths| TlsFiles {
        private_key: paths.private_key.clone(),
        certificate: paths.certificate.clone(),
        ca_certificate: paths.ca_certificate.clone(),
    });
    Ok(config)
}

/// The Southbound database.
pub(crate) fn south(settings: &Settings) -> anyhow::Result<ClientConfig> {
    let address = &settings.ovn_south;
    config(address, ovn::south::DATABASE, ovn::south::monitor())
        .with_context(|| format!("[ovnsouth] address = {address:?}"))
}

/// The configuration database of the local Open vSwitch.
pub(crate) fn switch(settings: &Settings) -> anyhow::Result<ClientConfig> {
    let address = format!("unix:{}", settings.ovs_rundir.join("db.sock").display());
    config(&address, ovn::switch::DATABASE, ovn::switch::monitor())
        .with_context(|| format!("[ovs] rundir = {:?}", settings.ovs_rundir))
}

fn config(
    address: &str,
    name: &'static str,
    tables: Vec<MonitorTable>,
) -> anyhow::Result<ClientConfig> {
    let endpoint: Endpoint = address.parse()?;
    let mut config = ClientConfig::new(endpoint, name);
    config.tables = tables;
    // A local database that is restarted is back at once: so are we.
    config.max_backoff = Duration::from_millis(500);
    Ok(config)
}
