//! The third node's Northbound database is reached over TLS by its node-agent.
//!
//! In: a node. Out: key and certificates as `ovs-pki` would make them, arguments of ovsdb-server, a section of the configuration.
//! Invariant: every other node's is reached over its unix socket, as are all of them by OVN's own programs.
//! Not here: how they are started.

use std::path::Path;

use anyhow::{Context, Result};

use crate::run::tool;
use crate::state::{Lab, Node, text};

/// Index of the node, whatever its name.
const INDEX: u32 = 3;
const PORT: u16 = 6641;

/// Makes an authority and both certificates; returns the options of its ovsdb-server. Nothing for other nodes.
pub(super) fn server_arguments(lab: &Lab, node: &Node) -> Result<Vec<String>> {
    if node.index != INDEX {
        return Ok(Vec::new());
    }
    let dir = lab.node_dir(&node.name);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -x509";
    let file = |name: &str| text(&dir.join(name));
    let (ca_key, ca) = (file("nb-ca.key"), file("nb-ca.pem"));
    tool("openssl")
        .words(&format!(
            "req {key} -subj /CN=nb-ca -keyout {ca_key} -out {ca}"
        ))
        .run()?;
    for name in ["server", "client"] {
        let (own_key, own) = (
            file(&format!("nb-{name}.key")),
            file(&format!("nb-{name}.pem")),
        );
        tool("openssl")
            .words(&format!(
                "req {key} -subj /CN=nb-{name} -CA {ca} -CAkey {ca_key} -addext basicConstraints=CA:FALSE -keyout {own_key} -out {own}"
            ))
            .run()?;
    }
    Ok(vec![
        format!("--remote=pssl:{PORT}:127.0.0.1"),
        format!("--private-key={}", file("nb-server.key")),
        format!("--certificate={}", file("nb-server.pem")),
        format!("--ca-cert={ca}"),
    ])
}

/// Puts the client's files into the folder of a node-agent's configuration, which it has as /etc/noverlay; returns the
/// section that names them. Nothing for other nodes.
pub(crate) fn north_section(lab: &Lab, node: &str, folder: &Path) -> Result<String> {
    if lab.node(node)?.index != INDEX {
        return Ok(String::new());
    }
    for name in ["nb-client.key", "nb-client.pem", "nb-ca.pem"] {
        std::fs::copy(lab.node_dir(node).join(name), folder.join(name)).context(name)?;
    }
    Ok(format!(
        "
[ovnnorth]
address = ssl:127.0.0.1:{PORT}
client-privkey = /etc/noverlay/nb-client.key
client-cert = /etc/noverlay/nb-client.pem
client-cacert = /etc/noverlay/nb-ca.pem
"
    ))
}
