//! `noverlay frr` as a person runs it: what it prints where, and its exit status.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod ran;

use ran::{Ran, noverlay};

const OBJECT: &str = "\
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: c1, namespace: frr-k8s-system}
spec:
  bgp:
    routers:
    - asn: 64512
      neighbors:
      - {address: 172.30.0.2, asn: 64512, password: s3cret}
";

/// Runs `noverlay frr` with words and standard input.
fn frr(words: &[&str], input: &str) -> Ran {
    noverlay(&[&["frr"], words].concat(), input)
}

fn render(input: &str, more: &[&str]) -> Ran {
    let words = [&["render", "-f", "-", "--node", "n1"], more].concat();
    frr(&words, input)
}

#[test]
fn a_good_configuration_is_printed_without_passwords_unless_asked_for() {
    let ran = render(OBJECT, &[]);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(
        ran.out
            .contains("  neighbor 172.30.0.2 password <retracted>\n")
    );
    assert!(!ran.out.contains("s3cret") && !ran.err.contains("s3cret"));
    assert!(ran.err.contains("--show-passwords"));
    let ran = render(OBJECT, &["--show-passwords"]);
    assert!(ran.out.contains("  neighbor 172.30.0.2 password s3cret\n"));
    assert_eq!(ran.status, Some(0));
}

#[test]
fn a_lint_is_reported_beside_the_text_and_a_conflict_instead_of_it_both_with_status_1() {
    let ran = render(&OBJECT.replace("s3cret", "s3 cret"), &[]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.out.contains("router bgp 64512\n"));
    assert!(
        ran.err
            .contains("lint: PasswordWhitespace: FRRConfiguration/frr-k8s-system/c1: "),
        "{}",
        ran.err
    );
    let other = OBJECT
        .replace("name: c1", "name: c2")
        .replace("asn: 64512\n", "asn: 64513\n");
    let ran = render(&format!("{OBJECT}---\n{other}"), &[]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
    assert!(
        ran.err
            .contains("conflict: RouterAsnConflict: FRRConfiguration/frr-k8s-system/c2: "),
        "{}",
        ran.err
    );
}

#[test]
fn what_cannot_be_read_ends_with_2_and_one_line() {
    let missing = ["render", "-f", "/nonexistent/x.yaml", "--node", "n1"];
    let rows = [
        (frr(&missing, ""), "cannot read /nonexistent/x.yaml"),
        (render("a: [", &[]), "standard input is not YAML"),
        (render("kind: FRRConfiguration", &[]), "without apiVersion"),
        (render(OBJECT, &["--labels", "x"]), "\"x\" is not a label"),
        (
            render(OBJECT, &["--secrets", "/nonexistent/s"]),
            "cannot read /nonexistent/s",
        ),
        (frr(&["render", "--node", "n1"], ""), "no objects given"),
    ];
    for (ran, wanted) in rows {
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{}", ran.err);
        assert!(
            ran.err.starts_with("error: ") && ran.err.contains(wanted),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_diff_tells_by_meaning_what_the_objects_would_change() {
    let folder = tempfile::tempdir().unwrap();
    let running = folder.path().join("running.conf");
    let shown = render(OBJECT, &[]).out;
    let diff = |text: &str, input: &str| {
        std::fs::write(&running, text).unwrap();
        let against = running.to_str().unwrap();
        frr(
            &["diff", "-f", "-", "--node", "n1", "--against", against],
            input,
        )
    };
    // As FRR shows it: other margins, other order, its own head.
    let reordered = format!("frr version 8.4.4\n!\n{}", shown.replace("    ", " "));
    let ran = diff(&reordered, OBJECT);
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), ""), "{}", ran.err);
    let ran = diff(&shown, &OBJECT.replace("password: s3cret", "port: 1179"));
    assert_eq!(ran.status, Some(1));
    assert_eq!(
        ran.out,
        " router bgp 64512\n- neighbor 172.30.0.2 password <retracted>\n+ neighbor 172.30.0.2 port 1179\n"
    );
    let ran = diff(
        &shown,
        &OBJECT.replace("password: s3cret", "password: hush"),
    );
    assert_eq!(ran.status, Some(0), "passwords are not compared");
    let ran = diff(
        &shown,
        &OBJECT.replace("asn: 64512, ", "asn: 64512, localASN: 64512, "),
    );
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("conflict: LocalAsn"), "{}", ran.err);
    let missing = [
        "diff",
        "-f",
        "-",
        "--node",
        "n1",
        "--against",
        "/nonexistent/x",
    ];
    let ran = frr(&missing, OBJECT);
    assert_eq!(ran.status, Some(2));
    assert!(ran.err.contains("cannot read /nonexistent/x"));
}

/// A command of docs/frr.md, run where the documentation says.
fn documented(line: &str) -> Ran {
    let words: Vec<String> = line
        .strip_prefix("$ noverlay frr ")
        .unwrap()
        .split_whitespace()
        .map(|word| match word.strip_prefix("docs/examples/") {
            Some(rest) => format!("../../docs/examples/{rest}"),
            None => word.to_owned(),
        })
        .collect();
    frr(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
}

#[test]
fn what_the_documentation_shows_is_what_the_command_prints() {
    let page = include_str!("../../../docs/frr.md");
    let mut shown = 0;
    for block in page.split("```\n$ noverlay frr ").skip(1) {
        let block = format!("$ noverlay frr {}", block.split("\n```").next().unwrap());
        let (command, text) = block.split_once('\n').unwrap();
        let ran = documented(command);
        let status = ran.status.unwrap();
        let printed = format!("{}{}exit status {status}", ran.out, ran.err);
        assert_eq!(text, printed, "{command}");
        if shown == 0 {
            assert_eq!(ran.out, include_str!("../../../docs/examples/frr/n1.conf"));
        }
        shown += 1;
    }
    assert_eq!(shown, 4, "examples in docs/frr.md");
}
