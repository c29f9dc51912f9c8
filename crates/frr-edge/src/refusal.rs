//! What FRR refused, read out of what vtysh and FRR's reload tool print.
//! In: their output, and what FRR runs. Out: lines with FRR's reason.
//! Invariant: passwords are taken out; a line that FRR runs nevertheless was not refused. Not here: running them (`reload`).
//!
//! ```text
//! % Can not configure the local system as neighbor                                        <- the reason, before the line
//! line 2: Failure to communicate[13] to bgpd, line:  neighbor 172.31.9.1 remote-as 64512  <- the line, at a reload
//! line 42: % Unknown command[88]: foo bar                                                 <- both, at a check
//! "router bgp 1 -- no foo" we failed to remove this command                               <- a line that stays
//! ```

use std::collections::BTreeSet;
use std::fmt;

use model::frr::without_password;

/// One line that FRR did not take.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The line, without leading blanks; empty where the tool did not name one.
    pub line: String,
    /// FRR's words for it.
    pub why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line.is_empty() {
            return f.write_str(&self.why);
        }
        write!(f, "`{}`: {}", self.line, self.why)
    }
}

/// The refusals as one text.
#[must_use]
pub fn list(refusals: &[Refusal]) -> String {
    const MOST: usize = 20;
    let mut texts: Vec<String> = refusals.iter().take(MOST).map(Refusal::to_string).collect();
    if refusals.len() > MOST {
        texts.push(format!("and {} more", refusals.len() - MOST));
    }
    texts.join("; ")
}

/// Every refused line once, in the order of the output.
pub fn decode(text: &str) -> Vec<Refusal> {
    let mut out = Vec::new();
    let mut seen = BTreeSet::new();
    let mut reason = "no reason given";
    for line in text.lines().map(str::trim) {
        let refusal = if let Some((_, refused)) = line.split_once(", line:") {
            let why = std::mem::replace(&mut reason, "no reason given");
            Some((refused.trim(), why))
        } else if let Some((front, refused)) = line.split_once("]: ")
            && let Some((_, why)) = front.split_once(": % ")
        {
            Some((refused.trim(), why.split('[').next().unwrap_or(why)))
        } else if let Some((front, _)) = line.split_once("\" we failed to remove this command") {
            let refused = front.split('"').next_back().unwrap_or(front);
            let refused = refused.rsplit(" -- ").next().unwrap_or(refused);
            Some((refused.trim(), "FRR keeps it"))
        } else {
            if let Some(why) = line.strip_prefix("% ") {
                reason = why;
            }
            None
        };
        if let Some((line, why)) = refusal
            && seen.insert(line.to_owned())
        {
            out.push(Refusal {
                line: without_password(line),
                why: why.trim_end_matches('.').to_owned(),
            });
        }
    }
    out
}

/// The end of an output in which no refused line can be found.
pub(crate) fn last_words(text: &str) -> Vec<Refusal> {
    let lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("INFO:"))
        .map(without_password)
        .collect();
    let skip = lines.len().saturating_sub(5);
    let why = lines.into_iter().skip(skip).collect::<Vec<_>>().join(" / ");
    vec![Refusal {
        line: String::new(),
        why: if why.is_empty() {
            "the reload tool failed without a word".to_owned()
        } else {
            why
        },
    }]
}

/// The refused lines that really are not as the tool wanted them: it sends some lines twice, and FRR may refuse the
/// second; a line that was to go may have gone with another. What counts is what runs in the end.
pub(crate) fn real(refused: Vec<Refusal>, running: &str) -> Vec<Refusal> {
    let lines: BTreeSet<String> = running
        .lines()
        .map(|line| without_password(line.trim()))
        .collect();
    let stands = |line: &str| match line.strip_prefix("no ") {
        Some(gone) => !lines.contains(gone),
        None => lines.contains(line),
    };
    refused.into_iter().filter(|r| !stands(&r.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk(line: &str, why: &str) -> Refusal {
        Refusal {
            line: line.to_owned(),
            why: why.to_owned(),
        }
    }

    #[test]
    fn a_reload_names_each_refused_line_once_with_the_reason_before_it() {
        let text = "2026 INFO: Loading\n\
            % Can not configure the local system as neighbor\n\
            line 2: Failure to communicate[13] to bgpd, line:  neighbor 172.31.9.1 remote-as 64512\n\n\
            % Specify remote-as or peer-group commands first\n\
            line 5: Failure to communicate[13] to bgpd, line:   neighbor 9.9.9.9 password a b\n\
            % Can not configure the local system as neighbor\n\
            line 11: Failure to communicate[13] to bgpd, line:  neighbor 172.31.9.1 remote-as 64512\n\
            WARNING: \"router bgp 1 --  no foo\" we failed to remove this command\n";
        assert_eq!(
            decode(text),
            [
                mk(
                    "neighbor 172.31.9.1 remote-as 64512",
                    "Can not configure the local system as neighbor"
                ),
                mk(
                    "neighbor 9.9.9.9 password <retracted>",
                    "Specify remote-as or peer-group commands first"
                ),
                mk("no foo", "FRR keeps it"),
            ]
        );
    }

    #[test]
    fn a_check_names_every_unknown_line() {
        let text = "line 42: % Unknown command[88]: ip prefix-list x seq 1 permit 10.0.0.0/8 le 64\n\
            line 43: % Unknown command[88]: foo bar\n";
        assert_eq!(
            decode(text),
            [
                mk(
                    "ip prefix-list x seq 1 permit 10.0.0.0/8 le 64",
                    "Unknown command"
                ),
                mk("foo bar", "Unknown command"),
            ]
        );
    }

    #[test]
    fn an_output_without_a_refused_line_is_reported_by_its_end() {
        assert!(decode("a\nb\n").is_empty());
        let words = last_words("x INFO: y\n\na\nb\n");
        assert_eq!(words, [mk("", "a / b")]);
        assert!(last_words("")[0].why.contains("without a word"));
    }

    #[test]
    fn a_refusal_of_what_frr_runs_as_wanted_is_none() {
        let running = "router bgp 1\n neighbor 1.1.1.1 graceful-restart\n neighbor 1.1.1.1 password x\n foo\n";
        let refused = [
            "neighbor 1.1.1.1 graceful-restart",
            "neighbor 1.1.1.1 password <retracted>",
            "no bar",
            "no foo",
            "neighbor 2.2.2.2 shutdown",
        ];
        let real = real(refused.map(|line| mk(line, "No")).to_vec(), running);
        let lines: Vec<&str> = real.iter().map(|r| r.line.as_str()).collect();
        assert_eq!(lines, ["no foo", "neighbor 2.2.2.2 shutdown"]);
    }

    #[test]
    fn a_long_list_is_cut_with_a_count() {
        let many = vec![mk("a", "b"); 23];
        let text = list(&many);
        assert!(text.ends_with("; and 3 more"), "{text}");
    }
}
