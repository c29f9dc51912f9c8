//! Development tasks of this workspace; the checks of its structure are its tests.
//! In: the checkout. Out: generated files under `manifests/`, or failures by name.
//! Invariant: nothing of the product depends on it.
//! Not here: building, testing, linting (`hack/verify.sh`).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

#[cfg(test)]
mod tidy;

/// The checkout's top folder; asked when it runs, for a program of a shared build may have been built for another checkout.
fn top() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    package
        .map_or_else(PathBuf::new, PathBuf::from)
        .join("../..")
}

fn main() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("crds") => write_crds(&top().join("manifests/crds")),
        other => bail!(
            "unknown task {other:?}; allowed: crds (writes manifests/crds from the Rust types)"
        ),
    }
}

fn write_crds(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in api::crds::files().context("cannot generate the CRDs")? {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
