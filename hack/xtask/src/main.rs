//! Development tasks of this workspace; the checks of its structure are its tests.
//! In: the checkout. Out: generated files under `manifests/`, or failures by name.
//! Invariant: nothing of the product depends on it. Not here: building, testing, linting (`hack/verify.sh`).

fn main() {}
