//! Reads single values out of the table, keeps note of what was read, and builds the errors.
//! In: a table of sections. Out: typed values; what nobody asked for is a warning. Invariant: every error names file, section, key and value.
//! Not here: which keys there are (`read`).

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;

use toml::{Table, Value};

use crate::SettingsError;

pub(crate) struct Reader<'a> {
    file: &'a str,
    table: &'a Table,
    seen: BTreeSet<(&'static str, &'static str)>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a str, table: &'a Table) -> Self {
        Self {
            file,
            table,
            seen: BTreeSet::new(),
        }
    }

    pub(crate) fn has_section(&self, section: &str) -> bool {
        self.table
            .get(section)
            .and_then(Value::as_table)
            .is_some_and(|t| !t.is_empty())
    }

    /// The value as text; lists are joined by commas. Empty text counts as absent.
    pub(crate) fn text(
        &mut self,
        section: &'static str,
        key: &'static str,
    ) -> Result<Option<String>, SettingsError> {
        self.seen.insert((section, key));
        let Some(value) = self.table.get(section).and_then(|s| s.get(key)) else {
            return Ok(None);
        };
        let text = match value.as_array() {
            Some(items) => items
                .iter()
                .map(plain)
                .collect::<Option<Vec<_>>>()
                .map(|v| v.join(",")),
            None => plain(value),
        };
        match text {
            Some(text) if text.trim().is_empty() => Ok(None),
            Some(text) => Ok(Some(text.trim().to_owned())),
            None => Err(self.wrong(
                section,
                key,
                &value.to_string(),
                "a plain value or a list of them is allowed",
            )),
        }
    }

    /// A value of a type that reads itself from text; `allowed` is put behind the type's own message.
    pub(crate) fn value<T>(
        &mut self,
        section: &'static str,
        key: &'static str,
        allowed: &str,
    ) -> Result<Option<T>, SettingsError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Some(text) = self.text(section, key)? else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|err| self.wrong(section, key, &text, &format!("{err}; allowed: {allowed}")))
    }

    /// A comma-separated list.
    pub(crate) fn list<T>(
        &mut self,
        section: &'static str,
        key: &'static str,
        allowed: &str,
    ) -> Result<Option<Vec<T>>, SettingsError>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Some(text) = self.text(section, key)? else {
            return Ok(None);
        };
        text.split(',')
            .map(|item| {
                item.trim().parse().map_err(|err| {
                    self.wrong(
                        section,
                        key,
                        item.trim(),
                        &format!("{err}; allowed: {allowed}"),
                    )
                })
            })
            .collect::<Result<Vec<T>, _>>()
            .map(Some)
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        section: &'static str,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, SettingsError> {
        let Some(text) = self.text(section, key)? else {
            return Ok(None);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let allowed: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        Err(self.wrong(
            section,
            key,
            &text,
            &format!("invalid {key} {text:?}: must be {}", allowed.join(" or ")),
        ))
    }

    pub(crate) fn wrong(
        &self,
        section: &str,
        key: &str,
        value: &str,
        message: &str,
    ) -> SettingsError {
        SettingsError::Value {
            file: self.file.to_owned(),
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            message: one_line(message),
        }
    }

    /// One sentence for each section or key that nobody asked for.
    pub(crate) fn unknown(&self) -> Vec<String> {
        self.unknown_keys().iter().map(|w| one_line(w)).collect()
    }

    fn unknown_keys(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (section, value) in self.table {
            let known: Vec<&str> = self
                .seen
                .iter()
                .filter(|(s, _)| s == section)
                .map(|(_, k)| *k)
                .collect();
            let Some(keys) = value.as_table() else {
                out.push(format!(
                    "{}: key {section} stands outside of any section and is ignored",
                    self.file
                ));
                continue;
            };
            if known.is_empty() {
                out.push(format!(
                    "{}: unknown section [{section}] is ignored",
                    self.file
                ));
                continue;
            }
            for key in keys.keys().filter(|key| !known.contains(&key.as_str())) {
                out.push(format!(
                    "{}: unknown key {key} in section [{section}] is ignored",
                    self.file
                ));
            }
        }
        out
    }
}

/// The text with its control characters written as escapes: a message quotes what the file holds, and a log has a line for each message.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}
