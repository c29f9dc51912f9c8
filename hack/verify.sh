#!/usr/bin/env bash
# The gate of every commit: format, lints, documentation, generated files, each crate by itself.
# Usage: hack/verify.sh [--alone]     --alone also checks each package by itself (slow; .ci/run does)
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${NOVERLAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/noverlay}/target}"
step() { printf '==> verify: %s\n' "$*"; }

step "format"
cargo fmt --all --check
step "lints (clippy, warnings are errors)"
CLIPPY_CONF_DIR="$PWD/hack" cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
step "documentation (warnings are errors)"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps --document-private-items
if [ "${1:-}" = --alone ]; then
  step "each package by itself"
  for manifest in crates/*/Cargo.toml cmd/*/Cargo.toml; do
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    cargo check --quiet --locked -p "$name"
  done
fi
if cargo deny --version >/dev/null 2>&1; then
  step "licences and sources of dependencies"
  cargo deny --config hack/deny.toml check licenses bans sources
fi
step "passed"
