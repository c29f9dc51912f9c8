//! What a reviewer should not have to look for: arrows, headers, generated files.
//! In: manifests and sources. Out: failures that name the file. Invariant: the tables below are the whole rule.
//! Not here: sizes of files; a reviewer decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::top;

/// Each package of ours, and the crates it may depend on: arrows point down, in the order of docs/ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("rib", &["model"]),
    ("frr", &["model"]),
    ("plan-cluster", &["model", "frr"]),
    ("plan-node", &["model"]),
    ("import", &["model", "rib"]),
    ("api", &["model"]),
    ("ovsdb", &["reconcile"]),
    ("ovn", &["model", "ovsdb"]),
    ("netlink", &["model"]),
    ("host", &["model", "reconcile"]),
    ("kube-edge", &["model", "api", "reconcile"]),
    ("frr-edge", &["model"]),
    ("reconcile", &[]),
    ("settings", &["model"]),
    ("telemetry", &[]),
    ("daemon", &["reconcile", "settings", "telemetry"]),
    ("offline", &["api", "model", "plan-cluster", "settings"]),
    // Development only.
    ("testkit", &["model", "offline", "plan-node"]),
    ("xtask", &["api"]),
    // They test us, so they share nothing with us.
    ("lab", &[]),
    ("journal", &[]),
];

/// Binaries and tests: any crate.
const OPEN: &[&str] = &[
    "cluster-manager",
    "node-agent",
    "frr-agent",
    "noverlay",
    "fuzz",
    "ovsdb-tests",
    "ovn-tests",
    "frr-tests",
    "frr-agent-tests",
    "kube-tests",
    "netns-tests",
    "import-tests",
    "vm-tests",
    "bench",
];

/// What tests of a crate may use beside its own arrows.
const DEV_ARROWS: &[(&str, &[&str])] = &[
    ("plan-cluster", &["testkit"]),
    ("offline", &["testkit"]),
    ("plan-node", &["import", "testkit"]),
    ("import", &["plan-node", "testkit"]),
    ("frr", &["api"]),
    ("lab", &["journal"]),
];

/// Foreign crates that decide nothing and are banned where decisions are made.
const PURE: &[&str] = &["model", "rib", "frr", "import", "plan-cluster", "plan-node"];
const BANNED_IN_PURE: &[&str] = &[
    "tokio",
    "kube",
    "k8s-openapi",
    "tracing",
    "serde",
    "serde_json",
    "rtnetlink",
    "netlink-packet-route",
    "netlink-sys",
    "nix",
];

fn manifests() -> Vec<PathBuf> {
    let mut out = vec![
        top().join("hack/xtask/Cargo.toml"),
        top().join("fuzz/Cargo.toml"),
    ];
    for folder in ["crates", "cmd", "test"] {
        for entry in std::fs::read_dir(top().join(folder)).unwrap() {
            let path = entry.unwrap().path().join("Cargo.toml");
            if path.exists() {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

struct Package {
    name: String,
    deps: BTreeSet<String>,
    dev: BTreeSet<String>,
}

fn packages() -> Vec<Package> {
    manifests()
        .iter()
        .map(|path| {
            let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
            let keys = |section: &str| -> BTreeSet<String> {
                table
                    .get(section)
                    .and_then(toml::Value::as_table)
                    .map(|t| t.keys().cloned().collect())
                    .unwrap_or_default()
            };
            Package {
                name: table["package"]["name"].as_str().unwrap().to_owned(),
                deps: keys("dependencies"),
                dev: keys("dev-dependencies"),
            }
        })
        .collect()
}

#[test]
fn arrows_point_down() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let dev: BTreeMap<&str, &[&str]> = DEV_ARROWS.iter().copied().collect();
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package.name.as_str();
        if OPEN.contains(&name) {
            continue;
        }
        let Some(allowed) = arrows.get(name) else {
            wrong.push(format!("{name} is in no table of hack/xtask/src/tidy.rs"));
            continue;
        };
        for dep in package.deps.iter().filter(|d| ours.contains(d.as_str())) {
            if !allowed.contains(&dep.as_str()) {
                wrong.push(format!("{name} -> {dep} is not an allowed arrow"));
            }
        }
        let more = dev.get(name).copied().unwrap_or_default();
        for dep in package.dev.iter().filter(|d| ours.contains(d.as_str())) {
            if !allowed.contains(&dep.as_str()) && !more.contains(&dep.as_str()) {
                wrong.push(format!("{name} -> {dep} is not an allowed arrow for tests"));
            }
        }
        if PURE.contains(&name) {
            for dep in package
                .deps
                .iter()
                .filter(|d| BANNED_IN_PURE.contains(&d.as_str()))
            {
                wrong.push(format!("{name} decides and may not use {dep}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") {
                sources(&path, out);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let mut files = Vec::new();
    for folder in ["crates", "cmd", "fuzz", "hack/xtask", "test"] {
        sources(&top().join(folder), &mut files);
    }
    assert!(files.len() > 20);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("//!"),
            "{} has no //! header",
            file.display()
        );
        for mark in [concat!("TO", "DO"), concat!("FIX", "ME")] {
            for line in text.lines().filter(|l| l.contains(mark)) {
                assert!(
                    line.contains(&format!("{mark}(")),
                    "{}: a {mark} without area and reason: {line}",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn every_package_stands_in_the_architecture() {
    let text = std::fs::read_to_string(top().join("docs/ARCHITECTURE.md")).unwrap();
    for package in packages() {
        assert!(
            text.contains(&format!("`{}`", package.name)),
            "{} is missing in docs/ARCHITECTURE.md",
            package.name
        );
    }
}

#[test]
fn hack_test_runs_every_test_package() {
    let script = std::fs::read_to_string(top().join("hack/test")).unwrap();
    let run: BTreeSet<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("tests "))
        .flat_map(|line| {
            line.split(" -p ")
                .skip(1)
                .filter_map(|rest| rest.split(' ').next())
        })
        .collect();
    let mut tests = Vec::new();
    for entry in std::fs::read_dir(top().join("test")).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        if let Ok(text) = std::fs::read_to_string(path) {
            let table: toml::Table = text.parse().unwrap();
            tests.push(table["package"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert!(tests.len() > 5, "{tests:?}");
    for name in tests {
        assert!(
            run.contains(name.as_str()),
            "hack/test has no line `tests -p {name}`: nobody runs its tests"
        );
    }
}

/// A file beside a test program's `main.rs` that is no module of it is built by nobody.
#[test]
fn every_file_of_a_test_program_is_a_module_of_it() {
    let mut seen = 0;
    for manifest in manifests() {
        let Ok(programs) = std::fs::read_dir(manifest.parent().unwrap().join("tests")) else {
            continue;
        };
        for program in programs.map(|entry| entry.unwrap().path()) {
            let Ok(main) = std::fs::read_to_string(program.join("main.rs")) else {
                continue;
            };
            for file in std::fs::read_dir(&program).unwrap() {
                let file = file.unwrap().path();
                let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
                if file.extension().is_some_and(|e| e == "rs") && name != "main" {
                    let line = format!("mod {name};");
                    assert!(
                        main.lines().any(|l| l.trim() == line),
                        "{} is built by nobody",
                        file.display()
                    );
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 20, "{seen} files");
}

/// `test = false` saves the linking of a program without tests; it must not hide one.
#[test]
fn what_is_not_built_as_a_test_has_none() {
    let mut seen = 0;
    for path in manifests() {
        let table: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let folder = path.parent().unwrap();
        let is_off =
            |target: &toml::Value| target.get("test").and_then(toml::Value::as_bool) == Some(false);
        let mut files = Vec::new();
        if table.get("lib").is_some_and(is_off) {
            sources(&folder.join("src"), &mut files);
        }
        for bin in table
            .get("bin")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            if is_off(bin) {
                files.push(folder.join(bin["path"].as_str().unwrap()));
            }
        }
        for path in files {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                !text.contains("#[test]") && !text.contains("::test]"),
                "{}: the manifest says test = false",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} files");
}

#[test]
fn the_checked_in_crds_are_the_generated_ones() {
    let folder = top().join("manifests/crds");
    let mut seen = BTreeSet::new();
    for (name, text) in api::crds::files().unwrap() {
        let there = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(
            there == text,
            "manifests/crds/{name} has drifted: run `cargo run -p xtask -- crds`"
        );
        seen.insert(name);
    }
    for place in ["", "noverlay/"] {
        for entry in std::fs::read_dir(folder.join(place)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{place}{}", entry.file_name().into_string().unwrap());
            assert!(
                seen.contains(&name)
                    || name.ends_with("kustomization.yaml")
                    || entry.path().is_dir(),
                "manifests/crds/{name} is generated by nothing"
            );
        }
    }
}

/// A shared build folder serves checkouts one after the other: a program that remembers where it was built looks into another one.
#[test]
fn no_program_remembers_the_checkout_it_was_built_from() {
    let word = concat!("env!(\"CARGO_MANIFEST", "_DIR\")");
    let mut files = Vec::new();
    for folder in ["crates", "cmd", "fuzz", "hack/xtask", "test"] {
        sources(&top().join(folder), &mut files);
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains(word),
            "{}: tests run in the folder of their package, relative paths are enough",
            path.display()
        );
    }
}

/// Reasons are given for exactly the recorded cases that differ; whatever else is counted is counted right.
#[test]
fn each_recorded_difference_has_its_reason() {
    let page = top().join("docs/decisions/0009-where-the-planner-differs.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (mut cases, mut differ) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(top().join("crates/offline/tests/ra-conformance")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let number = path.file_name().unwrap().to_str().unwrap()[..2].to_owned();
            if path.join("difference.diff").exists() {
                differ.insert(number.clone());
            }
            cases.insert(number);
        }
    }
    let numbers = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric());
        let two = |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_digit());
        words.filter(two).map(str::to_owned).collect()
    };
    let (bullets, others): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("- "));
    let named: BTreeSet<String> = bullets.into_iter().flat_map(numbers).collect();
    assert_eq!(
        named, differ,
        "cases of the bullets, cases with a difference"
    );
    for number in others.into_iter().flat_map(numbers) {
        assert!(cases.contains(&number), "there is no case {number}");
    }
    let equal = cases.len() - differ.len() - 1;
    assert!(
        text.contains(&format!("{equal} cases are equal")),
        "{equal}"
    );
}
