//! The gcfg form of ovnkube.conf (the dialect of git's configuration files) into a TOML table.
//! In: text. Out: a table of tables whose values are strings, lists of strings or `true`. Invariant: errors carry the line number.
//! Not here: what sections and keys mean.

use toml::{Table, Value};

/// Reads the text. A key without `=` is true, a repeated key is a list, `#` and `;` begin comments outside quotes,
/// a backslash at the end of a line continues it, `\\ \" \n \t` are escapes inside quotes.
///
/// # Errors
/// A message with the number of the line.
pub(crate) fn parse(text: &str) -> Result<Table, String> {
    let mut out = Table::new();
    let mut section: Option<String> = None;
    for (number, line) in logical_lines(text) {
        let line = line.trim_start();
        let fail = |message: &str| Err(format!("line {number}: {message}"));
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some((name, after)) = rest.split_once(']') else {
                return fail("a section has no closing bracket");
            };
            let name = name.trim();
            let after = after.trim();
            if name.is_empty() || !(after.is_empty() || after.starts_with(['#', ';'])) {
                return fail("a section header is [name] and nothing else");
            }
            out.entry(name)
                .or_insert_with(|| Value::Table(Table::new()));
            section = Some(name.to_owned());
            continue;
        }
        let Some(table) = section
            .as_ref()
            .and_then(|name| out.get_mut(name))
            .and_then(Value::as_table_mut)
        else {
            return fail("a key stands before the first [section]");
        };
        let (key, value) = key_and_value(line).map_err(|m| format!("line {number}: {m}"))?;
        insert(table, key, value);
    }
    Ok(out)
}

fn insert(table: &mut Table, key: String, value: Value) {
    match table.get_mut(&key) {
        None => {
            table.insert(key, value);
        }
        Some(Value::Array(items)) => items.push(value),
        Some(first) => *first = Value::Array(vec![first.clone(), value]),
    }
}

fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, mut whole) = open.take().unwrap_or((at + 1, String::new()));
        match line.strip_suffix('\\') {
            Some(part) if !part.ends_with('\\') => {
                whole.push_str(part);
                open = Some((number, whole));
            }
            _ => {
                whole.push_str(line);
                out.push((number, whole));
            }
        }
    }
    out.extend(open);
    out
}

fn key_and_value(line: &str) -> Result<(String, Value), String> {
    let end = line.find(['=', '#', ';']).unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let key = key.trim();
    if key.is_empty()
        || !key
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    {
        return Err(format!(
            "{key:?} is not a key (letters, digits, dash, underscore, dot)"
        ));
    }
    match rest.strip_prefix('=') {
        None => Ok((key.to_owned(), Value::Boolean(true))),
        Some(rest) => Ok((key.to_owned(), Value::String(unquote(rest)?))),
    }
}

fn unquote(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut kept = 0;
    let mut quoted = false;
    let mut chars = text.trim_start().chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted = !quoted;
                kept = out.len();
            }
            '\\' => {
                out.push(match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some(c @ ('"' | '\\')) => c,
                    other => return Err(format!("unknown escape \\{}", other.unwrap_or(' '))),
                });
                kept = out.len();
            }
            '#' | ';' if !quoted => break,
            c => {
                out.push(c);
                if quoted || !c.is_whitespace() {
                    kept = out.len();
                }
            }
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    out.truncate(kept);
    Ok(out)
}
