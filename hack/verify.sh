#!/usr/bin/env bash
# The gate of every commit: format, lints, documentation. hack/test calls it; generated files, arrows between packages
# and the like are tests of package xtask.
# Usage: hack/verify.sh [--alone] [--deny]
#   --alone  also checks each package by itself: what it uses is in its own manifest
#   --deny   also checks licences, sources, doubled packages and known vulnerabilities of dependencies; needs
#            cargo-deny (`hack/tools --for-tests` installs it); without --deny this is done where cargo-deny is found
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${NOVERLAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/noverlay}/target}"
step() { printf '==> verify: %s\n' "$*"; }
alone='' deny=''
for option in "$@"; do
  case $option in
  --alone) alone=1 ;;
  --deny) deny=1 ;;
  *) echo "hack/verify.sh: unknown option $option; allowed: --alone --deny" >&2; exit 2 ;;
  esac
done

# The same for lints and documentation, so that what they use is checked once.
features=noverlay/cluster-tests,lab/shared-build

step "format"
cargo fmt --all --check
step "lints (clippy, warnings are errors)"
CLIPPY_CONF_DIR="$PWD/hack" cargo clippy --quiet --locked --workspace --all-targets --features "$features" -- -D warnings
step "documentation (warnings are errors)"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --features "$features" --no-deps --document-private-items
if [ -n "$alone" ]; then
  step "each package by itself"
  for manifest in crates/*/Cargo.toml cmd/*/Cargo.toml; do
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
    cargo check --quiet --locked -p "$name"
  done
fi
if [ -n "$deny" ] || cargo deny --version >/dev/null 2>&1; then
  step "licences, sources and doubled packages of dependencies"
  cargo deny --log-level error --config hack/deny.toml --locked check licenses bans sources
  if timeout 60 cargo deny --log-level off --config hack/deny.toml fetch db >/dev/null 2>&1; then
    step "known vulnerabilities of dependencies"
    cargo deny --log-level error --config hack/deny.toml --locked check advisories
  elif [ -n "${GITHUB_ACTIONS:-}" ]; then
    step "the database of known vulnerabilities cannot be fetched"
    exit 1
  else
    step "known vulnerabilities of dependencies: not looked at, the database cannot be fetched from here"
  fi
fi
step "passed"
