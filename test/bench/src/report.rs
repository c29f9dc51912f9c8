//! Numbers, as a table and as JSON lines.
//! In: case, metric, unit, value, perhaps a floor. Out: printed at once, written at once.
//! Invariant: a run that is cut off has reported what it measured. Not here: measuring.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

/// What a number is compared with.
#[derive(Default)]
struct Beside<'a> {
    floor: Option<f64>,
    goal: Option<&'a str>,
}

/// Where numbers go.
pub(crate) struct Report {
    bench: &'static str,
    file: Option<File>,
    case: String,
}

impl Report {
    pub(crate) fn new(bench: &'static str, file: Option<&Path>) -> Self {
        let file = file.map(|path| File::create(path).expect("the file for JSON can be made"));
        Self {
            bench,
            file,
            case: String::new(),
        }
    }

    pub(crate) fn put(&mut self, case: &str, metric: &str, unit: &str, value: f64) {
        self.write(case, metric, (unit, value), Beside::default());
    }

    /// With what is hoped for, in words.
    pub(crate) fn put_with_goal(
        &mut self,
        case: &str,
        metric: &str,
        (unit, value): (&str, f64),
        goal: Option<&str>,
    ) {
        let beside = Beside { floor: None, goal };
        self.write(case, metric, (unit, value), beside);
    }

    pub(crate) fn put_with_floor(
        &mut self,
        case: &str,
        metric: &str,
        unit: &str,
        value: f64,
        floor: f64,
    ) {
        let beside = Beside {
            floor: Some(floor),
            goal: None,
        };
        self.write(case, metric, (unit, value), beside);
    }

    fn write(&mut self, case: &str, metric: &str, (unit, value): (&str, f64), beside: Beside<'_>) {
        if self.case != case {
            println!("{case}   (load {})", load());
            case.clone_into(&mut self.case);
        }
        let floor = beside.floor.filter(|floor| floor.is_finite());
        let mut shown = floor.map_or_else(String::new, |floor| format!("   floor {floor:.3}"));
        if let Some(goal) = beside.goal {
            shown.push_str(&format!("   goal: {goal}"));
        }
        println!("    {metric:<34} {value:>12.3} {unit}{shown}");
        if let Some(file) = &mut self.file {
            let mut line = json!({"bench": self.bench, "case": case, "metric": metric, "unit": unit, "value": value});
            if let Some(floor) = floor {
                line["floor"] = json!(floor);
            }
            if let Some(goal) = beside.goal {
                line["goal"] = json!(goal);
            }
            writeln!(file, "{line}").expect("the file for JSON can be written");
        }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// The value below which so many of a hundred lie.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let at = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// Some times, each with its floor; reported as medians, also of their quotients.
pub(crate) struct Runs {
    values: Vec<f64>,
    floors: Vec<f64>,
}

impl Runs {
    pub(crate) fn new() -> Self {
        Self {
            values: Vec::new(),
            floors: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, value: Duration, floor: Duration) {
        self.values.push(value.as_secs_f64());
        self.floors.push(floor.as_secs_f64());
    }

    pub(crate) fn put(mut self, report: &mut Report, case: &str, metric: &str) {
        let pairs = self.values.iter().zip(&self.floors);
        let mut times: Vec<f64> = pairs.map(|(value, floor)| value / floor).collect();
        let count = self.values.len();
        report.put_with_floor(
            case,
            &format!("{metric} (median of {count})"),
            "s",
            percentile(&mut self.values, 50),
            percentile(&mut self.floors, 50),
        );
        let name = format!("{metric}, times the floor");
        report.put(case, &name, "", percentile(&mut times, 50));
    }
}
