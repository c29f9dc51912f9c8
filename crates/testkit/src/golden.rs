//! Whole texts, compared with `tests/golden/<case>/<file>` of the crate under test; `UPDATE_GOLDEN=1` writes them again.
//! In: a case, a file name, a text. Out: a failed test with both texts. Invariant: tests run in the folder of their package.
//! Not here: why a text is as it is (each case's `why.md`).

use std::path::Path;

use similar::TextDiff;

/// Compares with the stored text.
///
/// # Panics
/// When they differ, or the stored one cannot be read.
pub fn compare(case: &str, file: &str, actual: &str) {
    compare_file(&Path::new("tests/golden").join(case).join(file), actual);
}

/// Compares with the text of a file.
///
/// # Panics
/// When they differ, or the stored one cannot be read.
pub fn compare_file(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(path)
        .unwrap_or_else(|err| panic!("{}: {err}; UPDATE_GOLDEN=1 writes it", path.display()));
    let name = path.display().to_string();
    let diff = TextDiff::from_lines(&expected, actual);
    let diff = diff.unified_diff().header(&name, "now").to_string();
    assert!(diff.is_empty(), "UPDATE_GOLDEN=1 writes it\n{diff}");
}
