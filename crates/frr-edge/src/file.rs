//! frr.conf on disk, and the note of what was loaded last.
//! In: text. Out: files. Invariant: a reader sees the old file or the new one; mode 0600, because passwords stand in it.
//! Not here: loading it.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::Frr;

/// Why the file could not be written; the old one stands.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {file}")]
pub struct FileError {
    /// The file.
    pub file: String,
    /// Why.
    pub source: std::io::Error,
}

impl Frr {
    /// Replaces frr.conf in one step. A file with the same text is left alone (inode and time stay).
    ///
    /// # Errors
    /// When the folder or the disk refuses.
    pub fn write_config(&self, text: &str) -> Result<(), FileError> {
        if std::fs::read_to_string(&self.config_file).is_ok_and(|old| old == text) {
            return Ok(());
        }
        replace(&self.config_file, text)
    }

    /// What was loaded last and into which processes, as noted by [`Frr::note_loaded`]; `None` where nothing is noted.
    #[must_use]
    pub fn loaded(&self) -> Option<String> {
        std::fs::read_to_string(self.note()).ok()
    }

    /// Notes what was loaded.
    ///
    /// # Errors
    /// When the folder or the disk refuses.
    pub fn note_loaded(&self, note: &str) -> Result<(), FileError> {
        replace(&self.note(), note)
    }

    fn note(&self) -> PathBuf {
        self.config_file.with_extension("conf.loaded")
    }

    /// Identity of the running daemons: changes when one of them starts anew. Daemons that do not run are absent.
    #[must_use]
    pub fn instance(&self) -> String {
        let mut out = String::new();
        for daemon in ["zebra", "bgpd", "bfdd"] {
            if let Ok(meta) = std::fs::metadata(self.vty_socket.join(format!("{daemon}.vty"))) {
                out.push_str(&format!(
                    "{daemon}={}.{}.{} ",
                    meta.ino(),
                    meta.ctime(),
                    meta.ctime_nsec()
                ));
            }
        }
        out
    }
}

fn replace(file: &Path, text: &str) -> Result<(), FileError> {
    let fail = |source| FileError {
        file: file.display().to_string(),
        source,
    };
    let next = file.with_extension("conf.next");
    let write = || -> std::io::Result<()> {
        let mut out = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&next)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        // FRR's own programs read it as their own user: the owner is the folder's.
        if let Some(folder) = file.parent().and_then(|p| std::fs::metadata(p).ok()) {
            std::os::unix::fs::chown(&next, Some(folder.uid()), Some(folder.gid()))?;
        }
        std::fs::rename(&next, file)
    };
    write().map_err(|error| {
        drop(std::fs::remove_file(&next));
        fail(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frr(folder: &Path) -> Frr {
        Frr::new(folder.to_owned(), folder.join("frr.conf"))
    }

    #[test]
    fn the_file_is_replaced_in_one_step_with_mode_0600_and_left_alone_when_equal() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        frr.write_config("a").unwrap();
        let first = std::fs::metadata(&frr.config_file).unwrap();
        assert_eq!(first.mode() & 0o777, 0o600);
        frr.write_config("a").unwrap();
        let same = std::fs::metadata(&frr.config_file).unwrap();
        assert_eq!(
            (first.ino(), first.mtime_nsec()),
            (same.ino(), same.mtime_nsec())
        );
        frr.write_config("b").unwrap();
        assert_ne!(
            std::fs::metadata(&frr.config_file).unwrap().ino(),
            first.ino()
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_refused_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        frr.write_config("old").unwrap();
        // The place of the new file is taken by a folder, so that it cannot be opened.
        std::fs::create_dir(folder.path().join("frr.conf.next")).unwrap();
        let error = frr.write_config("new").unwrap_err();
        assert!(error.to_string().contains("frr.conf"), "{error}");
        assert_eq!(std::fs::read_to_string(&frr.config_file).unwrap(), "old");
    }

    #[test]
    fn a_daemon_that_starts_anew_changes_the_instance() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        assert_eq!(frr.instance(), "");
        let socket = folder.path().join("bgpd.vty");
        let first = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let before = frr.instance();
        assert!(before.starts_with("bgpd="), "{before}");
        drop(first);
        std::fs::remove_file(&socket).unwrap();
        let _second = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_ne!(frr.instance(), before);
    }
}
