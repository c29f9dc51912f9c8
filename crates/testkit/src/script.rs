//! Scripts of changes, and what a planner makes of each: every `tests/scripts/NAME.txt` of the crate under test is run, and what
//! it leads to is compared with `tests/scripts/NAME.golden`; `UPDATE_GOLDEN=1` writes that again.
//! In: scripts, a [`Scenario`]. Out: a failed test that names the script. Invariant: a command that is not understood fails.
//! Not here: what the commands mean, but for `plan` and `show`.
//!
//! ```text
//!  # a comment, repeated in the golden text
//!  command word word        the scenario's own
//!  | text                   more of the command above
//!  plan                     what changed in the plan since it was printed last
//!  show                     the whole plan
//! ```

use std::fmt::Write;
use std::path::Path;

use similar::{Algorithm, capture_diff_slices};

use crate::golden;

/// A planner with the world it plans from.
pub trait Scenario {
    /// Carries out one command; the lines below it that begin with `| ` are its body.
    ///
    /// # Errors
    /// One sentence where the command is not understood.
    fn apply(&mut self, words: &[&str], body: &str) -> Result<(), String>;

    /// The plan, as text whose lines are indented under what they belong to.
    fn plan(&mut self) -> String;
}

/// Runs every script of the crate under test.
///
/// # Panics
/// When there is none, a command is not understood, or a golden text differs.
pub fn run_all<S: Scenario>(new: impl Fn() -> S) {
    let folder = Path::new("tests/scripts");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut scripts: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {}", folder.display());
    for entry in std::fs::read_dir(folder).unwrap() {
        let golden = entry.unwrap().path();
        let script = golden.with_extension("txt");
        assert!(
            scripts.contains(&script),
            "{} has no script",
            golden.display()
        );
    }
    for path in scripts {
        println!("{}", path.display());
        let script = std::fs::read_to_string(&path).unwrap();
        let seen = run(&mut new(), &script);
        golden::compare_file(&path.with_extension("golden"), &seen);
    }
}

/// Everything a script prints.
fn run(scenario: &mut impl Scenario, script: &str) -> String {
    let mut out = String::new();
    let mut printed = String::new();
    // What no plan was printed of is not tested.
    let mut is_printed = false;
    let mut lines = script.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut body = String::new();
        while let Some(more) = lines.next_if(|line| line.starts_with('|')) {
            writeln!(out, "{more}").unwrap();
            let more = more.strip_prefix("| ").unwrap_or(&more[1..]);
            writeln!(body, "{more}").unwrap();
        }
        match words.as_slice() {
            ["plan"] => {
                is_printed = true;
                let now = scenario.plan();
                out.push_str(&indented(&changes(&printed, &now)));
                printed = now;
            }
            ["show"] => {
                is_printed = true;
                printed = scenario.plan();
                out.push_str(&indented(&printed));
            }
            words => {
                is_printed = false;
                let done = scenario.apply(words, &body);
                assert!(done.is_ok(), "{line}: {}", done.unwrap_err());
            }
        }
    }
    assert!(is_printed, "the script does not end with plan or show");
    out
}

/// Output is distinguished from the script by its margin.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// Lines that were added and taken away, each under the lines it belongs to.
fn changes(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let mut out = String::new();
    compare(&items(&before), &items(&now), &mut out);
    if out.is_empty() {
        out.push_str("  (nothing changes)\n");
    }
    out
}

/// A line with those that are indented under it.
struct Item<'a> {
    line: &'a str,
    children: Vec<Item<'a>>,
}

/// The lines as a tree.
fn items<'a>(lines: &[&'a str]) -> Vec<Item<'a>> {
    let mut out = Vec::new();
    let mut rest = lines;
    while let Some((line, more)) = rest.split_first() {
        let deeper = more.iter().take_while(|l| depth(l) > depth(line)).count();
        let (children, after) = more.split_at(deeper);
        out.push(Item {
            line,
            children: items(children),
        });
        rest = after;
    }
    out
}

/// Siblings are the same ones where their lines are.
fn compare(before: &[Item<'_>], now: &[Item<'_>], out: &mut String) {
    let lines =
        |items: &[Item<'_>]| -> Vec<String> { items.iter().map(|i| i.line.to_owned()).collect() };
    let (old, new) = (lines(before), lines(now));
    for change in capture_diff_slices(Algorithm::Myers, &old, &new)
        .iter()
        .flat_map(|op| op.iter_changes(&old, &new).collect::<Vec<_>>())
    {
        match (change.old_index(), change.new_index()) {
            (Some(a), Some(b)) => {
                let mut below = String::new();
                compare(&before[a].children, &now[b].children, &mut below);
                if !below.is_empty() {
                    writeln!(out, "  {}", before[a].line).unwrap();
                    out.push_str(&below);
                }
            }
            (Some(a), None) => whole('-', &before[a], out),
            (None, Some(b)) => whole('+', &now[b], out),
            (None, None) => {}
        }
    }
}

fn whole(sign: char, item: &Item<'_>, out: &mut String) {
    writeln!(out, "{sign} {}", item.line).unwrap();
    for child in &item.children {
        whole(sign, child, out);
    }
}

/// A section's heading is above everything, then what is indented less.
fn depth(line: &str) -> usize {
    if line.starts_with("# ") {
        return 0;
    }
    1 + line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of one line for each word that was said.
    #[derive(Default)]
    struct Said(Vec<String>);

    impl Scenario for Said {
        fn apply(&mut self, words: &[&str], body: &str) -> Result<(), String> {
            match words {
                ["say", word] => self.0.push((*word).to_owned()),
                ["all"] => self.0.extend(body.lines().map(str::to_owned)),
                ["forget"] => self.0.clear(),
                _ => return Err("not understood".to_owned()),
            }
            Ok(())
        }

        fn plan(&mut self) -> String {
            let words: String = self.0.iter().map(|w| format!("  {w}\n")).collect();
            format!("# Words\nsaid\n{words}")
        }
    }

    #[test]
    fn changes_are_printed_under_what_they_belong_to() {
        let script = "# two\nsay a\nplan\nplan\nall\n| b\n| c\nplan\nforget\nshow\n";
        let printed = "# two\nsay a\nplan\n    + # Words\n    + said\n    +   a\nplan\n      (nothing changes)\nall\n| b\n| c\nplan\n      # Words\n      said\n    +   b\n    +   c\nforget\nshow\n    # Words\n    said\n";
        assert_eq!(run(&mut Said::default(), script), printed);
    }

    #[test]
    fn a_change_stands_under_its_own_heading_also_where_the_one_before_goes() {
        let before = "# S\na\n  x\n  y\nb\n  x\n  z\n";
        let now = "# S\nb\n  x\n  w\nc\n  x\n";
        let printed = "  # S\n- a\n-   x\n-   y\n  b\n-   z\n+   w\n+ c\n+   x\n";
        assert_eq!(changes(before, now), printed);
    }

    #[test]
    #[should_panic(expected = "does not end with plan or show")]
    fn what_is_never_printed_fails() {
        run(&mut Said::default(), "plan\nsay a\n");
    }

    #[test]
    #[should_panic(expected = "jump: not understood")]
    fn a_command_that_is_not_understood_fails() {
        run(&mut Said::default(), "jump\nplan\n");
    }
}
