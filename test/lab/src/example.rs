//! An example of a physical network: what an administrator writes, and the routers beside the nodes.
//!
//! In: a folder with `noverlay.conf`, and where they are needed `objects.yaml` and `routers/NAME.conf` (frr.conf of a router,
//! whose address on the underlay is its router id). Out: the same in a lab. Addresses are those of the demonstration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::apiserver::kubectl;
use crate::daemons::Outward;
use crate::node::{frr, link};
use crate::run::until;
use crate::state::{Lab, Node, check_name, text};
use crate::values::Values;

/// Last bytes of addresses that routers may have.
const INDEXES: std::ops::Range<u32> = 101..250;

/// What a lab remembers of its example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Example {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Its routers, by name.
    pub(crate) routers: Vec<Node>,
}

impl Example {
    /// Reads which routers an example has.
    ///
    /// # Errors
    /// A folder without `noverlay.conf`, a router without an address that the lab can give it.
    pub(crate) fn read(folder: &Path, values: &Values) -> Result<Self> {
        let folder = std::path::absolute(folder)?;
        let config = folder.join("noverlay.conf");
        if !config.is_file() {
            bail!("--example {}: no {}", folder.display(), config.display());
        }
        let mut routers = Vec::new();
        for entry in std::fs::read_dir(folder.join("routers"))
            .into_iter()
            .flatten()
        {
            let path = entry?.path();
            let name = path.file_stem().map(|name| text(Path::new(name)));
            let name = name.with_context(|| text(&path))?;
            check_name("router", &name, 8)?;
            let config = std::fs::read_to_string(&path).with_context(|| text(&path))?;
            let index = index(&config, values).with_context(|| text(&path))?;
            routers.push(Node { name, index });
        }
        routers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { folder, routers })
    }

    /// Gateway mode and transport are as in its configuration: the lab has to know them, too.
    ///
    /// # Errors
    /// A configuration that cannot be read.
    pub(crate) fn apply_to(&self, outward: &mut Outward) -> Result<()> {
        let config = self.config()?;
        let says = |line: &str| config.lines().any(|other| other.trim() == line);
        if says("mode = local") {
            outward.gateway_mode = "local".to_owned();
        }
        if says("transport = geneve") {
            outward.transport = "geneve".to_owned();
        }
        Ok(())
    }

    /// Text of the configuration file of all daemons.
    pub(crate) fn config(&self) -> Result<String> {
        let file = self.folder.join("noverlay.conf");
        std::fs::read_to_string(&file).with_context(|| text(&file))
    }
}

/// Which address of the underlay is the router id.
fn index(config: &str, values: &Values) -> Result<u32> {
    let id = config
        .lines()
        .find_map(|line| line.trim().strip_prefix("bgp router-id "));
    let id = id.context("no line `bgp router-id ADDRESS`: it is the address of the router")?;
    let address: IpAddr = id
        .trim()
        .parse()
        .with_context(|| format!("bgp router-id {id}"))?;
    let found = INDEXES
        .into_iter()
        .find(|index| values.address(*index) == address);
    found.with_context(|| {
        let first = values.address(INDEXES.start);
        let last = values.address(INDEXES.end.saturating_sub(1));
        format!("bgp router-id {address}: {first} to {last} are possible")
    })
}

/// Starts the routers; the first is the default router of the outside host.
pub(crate) fn start_routers(lab: &Lab) -> Result<()> {
    let Some(example) = &lab.example else {
        return Ok(());
    };
    for router in &example.routers {
        start(lab, &example.folder, router).with_context(|| format!("router {}", router.name))?;
    }
    if let Some(first) = example.routers.first() {
        let via = lab.address(first);
        link::batch(
            &lab.namespace("outside"),
            &format!("route add default via {via}"),
        )?;
    }
    Ok(())
}

fn start(lab: &Lab, folder: &Path, router: &Node) -> Result<()> {
    std::fs::create_dir_all(lab.node_dir(&router.name))?;
    link::up_router(lab, router)?;
    frr::up(lab, router)?;
    let file = folder.join("routers").join(format!("{}.conf", router.name));
    frr::load(lab, &router.name, &file)
}

/// Applies what the administrator writes.
pub(crate) fn apply(lab: &Lab) -> Result<()> {
    let file = match &lab.example {
        Some(example) => example.folder.join("objects.yaml"),
        None => return Ok(()),
    };
    if !file.exists() {
        return Ok(());
    }
    let mut last = String::new();
    let done = until(
        Duration::from_secs(20),
        Duration::from_millis(300),
        || match kubectl(lab).args(["apply", "-f", &text(&file)]).run() {
            Ok(_) => Some(()),
            Err(error) => {
                last = format!("{error:#}");
                None
            }
        },
    );
    done.with_context(|| format!("applying {}: {last}", file.display()))
}

/// The router with this name.
pub(crate) fn router<'a>(lab: &'a Lab, name: &str) -> Result<&'a Node> {
    let all = lab.example.iter().flat_map(|example| &example.routers);
    let names: Vec<&str> = all.clone().map(|router| router.name.as_str()).collect();
    all.clone()
        .find(|router| router.name == name)
        .with_context(|| match names.as_slice() {
            [] => format!("no router {name}: only a lab of --example has routers"),
            names => format!("no router {name}; there are {}", names.join(", ")),
        })
}
