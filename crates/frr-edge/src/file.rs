//! frr.conf on disk, and the note of what was loaded last.
//! In: text. Out: files. Invariant: a reader sees the old file or the new one; mode 0600, because passwords stand in it.
//! Not here: loading it.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Frr;

/// Daemons whose configuration is looked at, where they run.
pub(crate) const DAEMONS: [&str; 4] = ["zebra", "bgpd", "bfdd", "staticd"];

/// Why the file could not be written; the old one stands.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {file}; the last good one stays")]
pub struct FileError {
    /// The file.
    pub file: String,
    /// Why.
    pub source: std::io::Error,
}

/// A text beside frr.conf, not yet in its place; it goes away when dropped.
#[derive(Debug)]
pub(crate) struct Next {
    path: PathBuf,
    target: PathBuf,
    placed: bool,
}

impl Next {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn place(mut self) -> Result<(), FileError> {
        std::fs::rename(&self.path, &self.target).map_err(|source| FileError {
            file: self.target.display().to_string(),
            source,
        })?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        if !self.placed {
            // It holds passwords; where it cannot be removed, mode 0600 still guards it.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Frr {
    /// Writes the text beside frr.conf; `None` where frr.conf holds it already.
    pub(crate) fn write_next(&self, text: &str) -> Result<Option<Next>, FileError> {
        if std::fs::read_to_string(&self.config_file).is_ok_and(|old| old == text) {
            return Ok(None);
        }
        write_beside(&self.config_file, text).map(Some)
    }

    /// frr.conf as it stands; `None` where there is none.
    #[must_use]
    pub fn config(&self) -> Option<String> {
        std::fs::read_to_string(&self.config_file).ok()
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
        write_beside(&self.note(), note)?.place()
    }

    fn note(&self) -> PathBuf {
        self.config_file.with_extension("conf.loaded")
    }

    /// Whether a daemon runs: somebody listens on its vty socket. One that is frozen runs.
    #[must_use]
    pub fn runs(&self, daemon: &str) -> bool {
        UnixStream::connect(self.vty_socket.join(format!("{daemon}.vty"))).is_ok()
    }

    /// Identity of the daemons: changes when one of them starts anew. Daemons that never ran are absent.
    #[must_use]
    pub fn instance(&self) -> String {
        let of = |daemon: &str| {
            let meta = std::fs::metadata(self.vty_socket.join(format!("{daemon}.vty"))).ok()?;
            let (inode, at) = (meta.ino(), meta.ctime());
            Some(format!("{daemon}={inode}.{at}.{}", meta.ctime_nsec()))
        };
        DAEMONS
            .into_iter()
            .filter_map(of)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// When [`Frr::note_loaded`] last noted something.
    #[must_use]
    pub fn loaded_at(&self) -> Option<SystemTime> {
        std::fs::metadata(self.note()).ok()?.modified().ok()
    }
}

/// Writes a file that only its owner can read, down to the disk.
pub(crate) fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()
}

fn write_beside(file: &Path, text: &str) -> Result<Next, FileError> {
    let next = Next {
        path: file.with_extension("conf.next"),
        target: file.to_owned(),
        placed: false,
    };
    let write = || -> std::io::Result<()> {
        write_private(&next.path, text)?;
        // FRR's own programs read it as their own user: the owner is the folder's.
        if let Some(folder) = file.parent().and_then(|p| std::fs::metadata(p).ok()) {
            std::os::unix::fs::chown(&next.path, Some(folder.uid()), Some(folder.gid()))?;
        }
        Ok(())
    };
    match write() {
        Ok(()) => Ok(next),
        Err(source) => Err(FileError {
            file: file.display().to_string(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frr(folder: &Path) -> Frr {
        Frr::new(folder.to_owned(), folder.join("frr.conf"))
    }

    fn replace(frr: &Frr, text: &str) -> Result<(), FileError> {
        match frr.write_next(text)? {
            Some(next) => next.place(),
            None => Ok(()),
        }
    }

    #[test]
    fn the_file_is_replaced_in_one_step_with_mode_0600_and_left_alone_when_equal() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        replace(&frr, "a").unwrap();
        let first = std::fs::metadata(&frr.config_file).unwrap();
        assert_eq!(first.mode() & 0o777, 0o600);
        replace(&frr, "a").unwrap();
        let same = std::fs::metadata(&frr.config_file).unwrap();
        assert_eq!(
            (first.ino(), first.mtime_nsec()),
            (same.ino(), same.mtime_nsec())
        );
        replace(&frr, "b").unwrap();
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
    fn a_text_that_is_not_put_in_place_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        replace(&frr, "old").unwrap();
        drop(frr.write_next("new").unwrap());
        assert_eq!(frr.config().as_deref(), Some("old"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_refused_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        replace(&frr, "old").unwrap();
        // The place of the new file is taken by a folder, so that it cannot be opened.
        std::fs::create_dir(folder.path().join("frr.conf.next")).unwrap();
        let error = replace(&frr, "new").unwrap_err();
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
        assert!(frr.runs("bgpd") && !frr.runs("zebra"));
        drop(first);
        assert!(
            !frr.runs("bgpd"),
            "the socket of a daemon that died stays behind"
        );
        std::fs::remove_file(&socket).unwrap();
        let _second = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_ne!(frr.instance(), before);
    }
}
