//! Of line 9: who reached whom, as a table.
//!
//! In: what was tried. Out: a line for each network that asked, a column for each that was
//! asked: all, none, or how many of how many. Not here: what is right.

use std::collections::BTreeMap;

use crate::run::tell;

/// Attempts, by who asked and who was asked.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    columns: Vec<String>,
    cells: BTreeMap<(String, String), (usize, usize)>,
}

impl Matrix {
    /// One attempt.
    pub(super) fn note(&mut self, from: &str, to: &str, reached: bool) {
        if !self.columns.iter().any(|column| column == to) {
            self.columns.push(to.to_owned());
        }
        let cell = self.cells.entry((from.to_owned(), to.to_owned()));
        let (yes, all) = cell.or_default();
        *yes += usize::from(reached);
        *all += 1;
    }

    /// Takes over another one's attempts.
    pub(super) fn extend(&mut self, other: Self) {
        for column in other.columns {
            if !self.columns.contains(&column) {
                self.columns.push(column);
            }
        }
        for (key, (yes, all)) in other.cells {
            let cell = self.cells.entry(key).or_default();
            *cell = (cell.0 + yes, cell.1 + all);
        }
    }

    /// The lines.
    fn lines(&self) -> Vec<String> {
        let mut rows: Vec<&str> = self.cells.keys().map(|(from, _)| from.as_str()).collect();
        rows.dedup();
        let wide = |text: &str, column: &str| format!("{text:width$}", width = column.len());
        let first = rows.iter().map(|row| row.len()).max().unwrap_or(0).max(4);
        let head: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let mut lines = vec![format!("{:first$}  {}", "from", head.join("  "))];
        for row in rows {
            let cells = self.columns.iter().map(|column| {
                let cell = self.cells.get(&(row.to_owned(), column.clone()));
                let text = match cell {
                    None => "-".to_owned(),
                    Some((yes, all)) if yes == all => "all".to_owned(),
                    Some((0, _)) => "none".to_owned(),
                    Some((yes, all)) => format!("{yes}/{all}"),
                };
                wide(&text, column)
            });
            let cells: Vec<String> = cells.collect();
            lines.push(
                format!("{row:first$}  {}", cells.join("  "))
                    .trim_end()
                    .to_owned(),
            );
        }
        lines
    }

    /// Prints it.
    pub(super) fn print(&self) {
        for line in self.lines() {
            tell(&format!("  reach: {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_all_none_or_how_many() {
        let mut matrix = Matrix::default();
        matrix.note("red", "pods of red", true);
        matrix.note("red", "pods of blue", false);
        let mut blue = Matrix::default();
        blue.note("blue", "pods of red", true);
        blue.note("blue", "pods of red", false);
        matrix.extend(blue);
        assert_eq!(
            matrix.lines(),
            [
                "from  pods of red  pods of blue",
                "blue  1/2          -",
                "red   all          none",
            ]
        );
    }
}
