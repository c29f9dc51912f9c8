//! frr.conf on disk, a copy of the text that FRR took last, and the note of what was loaded.
//! In: text. Out: files. Invariant: a reader sees the old file or the new one; mode 0600, because passwords stand in it.
//! Not here: loading it.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::OFlag;
use tempfile::NamedTempFile;

use crate::Frr;

/// Daemons whose configuration is looked at, where they run. mgmtd (FRR 9 and later) keeps that of others.
pub(crate) const DAEMONS: [&str; 5] = ["zebra", "bgpd", "bfdd", "staticd", "mgmtd"];

/// The daemons without which there are no routes: they are FRR, the others serve it.
pub(crate) const CORE: [&str; 2] = ["zebra", "bgpd"];

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
    file: NamedTempFile,
    target: PathBuf,
}

impl Next {
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn place(self) -> Result<(), FileError> {
        let target = self.target;
        match self.file.persist(&target) {
            Ok(_) => Ok(()),
            Err(error) => Err(FileError {
                file: target.display().to_string(),
                source: error.error,
            }),
        }
    }
}

/// Runs what writes to a disk beside the runtime's own threads, which a slow disk would hold up.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    file: &Path,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(FileError {
            file: file.display().to_string(),
            source: std::io::Error::other(error),
        }),
    }
}

impl Frr {
    /// Writes the text beside frr.conf; `None` where frr.conf holds it already.
    pub(crate) fn write_next(&self, text: &str) -> Result<Option<Next>, FileError> {
        if read(&self.config_file).is_ok_and(|old| old == text) {
            return Ok(None);
        }
        write_beside(&self.config_file, text).map(Some)
    }

    /// frr.conf as it stands; `None` where there is none, or a link in its place.
    #[must_use]
    pub fn config(&self) -> Option<String> {
        read(&self.config_file).ok()
    }

    /// What was loaded last and into which processes, as noted by [`Frr::note_loaded`]; `None` where nothing is noted.
    #[must_use]
    pub fn loaded(&self) -> Option<String> {
        read(&self.note()).ok()
    }

    /// Notes what was loaded.
    ///
    /// # Errors
    /// When the folder or the disk refuses.
    pub async fn note_loaded(&self, note: String) -> Result<(), FileError> {
        let file = self.note();
        let target = file.clone();
        off_the_runtime(&file, move || write_beside(&target, &note)?.place()).await
    }

    /// The text that FRR took last, as kept by [`Frr::keep`]; `None` where none was.
    #[must_use]
    pub fn kept(&self) -> Option<String> {
        read(&self.copy()).ok()
    }

    /// Keeps a copy of a text that FRR took: others may write into frr.conf.
    ///
    /// # Errors
    /// When the folder or the disk refuses.
    pub async fn keep(&self, text: &str) -> Result<(), FileError> {
        let (file, text) = (self.copy(), text.to_owned());
        let target = file.clone();
        off_the_runtime(&file, move || {
            if read(&target).is_ok_and(|old| old == text) {
                return Ok(());
            }
            write_beside(&target, &text)?.place()
        })
        .await
    }

    fn note(&self) -> PathBuf {
        self.config_file.with_extension("conf.loaded")
    }

    fn copy(&self) -> PathBuf {
        self.config_file.with_extension("conf.last-good")
    }

    /// Identity of FRR: changes when zebra or bgpd starts again, and with none of its other daemons. One that never ran is
    /// absent.
    #[must_use]
    pub fn instance(&self) -> String {
        self.identity(&CORE)
    }

    /// Identity of all daemons that are configured: changes when one of them starts again, with nothing configured.
    /// Daemons that never ran are absent.
    #[must_use]
    pub fn daemons(&self) -> String {
        self.identity(&DAEMONS)
    }

    fn identity(&self, daemons: &[&str]) -> String {
        let of = |daemon: &&str| {
            let meta = std::fs::metadata(self.vty_socket.join(format!("{daemon}.vty"))).ok()?;
            let (inode, at) = (meta.ino(), meta.ctime());
            Some(format!("{daemon}={inode}.{at}.{}", meta.ctime_nsec()))
        };
        daemons.iter().filter_map(of).collect::<Vec<_>>().join(" ")
    }

    /// When [`Frr::note_loaded`] last noted something.
    #[must_use]
    pub fn loaded_at(&self) -> Option<SystemTime> {
        std::fs::metadata(self.note()).ok()?.modified().ok()
    }
}

/// Reads a file of a folder in which others may put things: no link is followed, and nothing is waited for.
fn read(file: &Path) -> std::io::Result<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut input = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(file)?;
    if !input.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut text = String::new();
    input.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a text down to the disk, beside the file whose place it is to take. The folder belongs to the user of FRR's
/// daemons, who could put links there: the name is one that nobody can foresee, and the file is new (`O_EXCL`).
fn write_beside(file: &Path, text: &str) -> Result<Next, FileError> {
    let write = || -> std::io::Result<NamedTempFile> {
        let wrong = || std::io::Error::other("it has no folder");
        let folder = file.parent().ok_or_else(wrong)?;
        let name = file.file_name().ok_or_else(wrong)?.to_string_lossy();
        let front = format!(".{name}.");
        remove_left(folder, &front);
        // Its mode is 0600 from the start.
        let mut next = tempfile::Builder::new()
            .prefix(&front)
            .suffix(NEXT)
            .tempfile_in(folder)?;
        next.write_all(text.as_bytes())?;
        // FRR's own programs read it as their own user: the owner is the folder's.
        let owner = std::fs::metadata(folder)?;
        std::os::unix::fs::fchown(next.as_file(), Some(owner.uid()), Some(owner.gid()))?;
        next.as_file().sync_all()?;
        Ok(next)
    };
    match write() {
        Ok(next) => Ok(Next {
            file: next,
            target: file.to_owned(),
        }),
        Err(source) => Err(FileError {
            file: file.display().to_string(),
            source,
        }),
    }
}

/// How the names of files end that are not yet in their place.
const NEXT: &str = ".next";

/// A process that was killed leaves such a file behind, with passwords in it.
fn remove_left(folder: &Path, front: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(front) && name.ends_with(NEXT) {
            // Where it cannot be removed, mode 0600 still guards it.
            drop(std::fs::remove_file(entry.path()));
        }
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
    fn a_refused_write_names_the_file_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        // Its place is taken by a folder, so that nothing can be put there.
        std::fs::create_dir(&frr.config_file).unwrap();
        std::fs::write(frr.config_file.join("x"), "").unwrap();
        let error = replace(&frr, "new").unwrap_err();
        assert!(error.to_string().contains("frr.conf"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_in_the_folder_are_neither_written_through_nor_given_away_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("shadow");
        std::fs::write(&secret, "theirs").unwrap();
        let before = std::fs::metadata(&secret).unwrap();
        let own = folder.path().join("frr");
        std::fs::create_dir(&own).unwrap();
        // What the user of FRR's daemons can do in their folder; root can be given away from, so that it shows.
        let foreign = std::os::unix::fs::chown(&own, Some(12_345), Some(12_345)).is_ok();
        for name in [
            "frr.conf",
            "frr.conf.next",
            "frr.conf.conf.next",
            "frr.conf.loaded",
            "frr.conf.loaded.next",
            "frr.conf.last-good",
        ] {
            std::os::unix::fs::symlink(&secret, own.join(name)).unwrap();
        }
        let frr = frr(&own);
        assert_eq!(frr.config(), None, "what a link points to is not frr.conf");
        assert_eq!(frr.loaded(), None);
        assert_eq!(frr.kept(), None);
        replace(&frr, "ours").unwrap();
        write_beside(&frr.note(), "note").unwrap().place().unwrap();
        let after = std::fs::metadata(&secret).unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "theirs");
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
        assert_eq!(frr.config().as_deref(), Some("ours"));
        assert_eq!(frr.loaded().as_deref(), Some("note"));
        let conf = std::fs::symlink_metadata(&frr.config_file).unwrap();
        assert!(conf.is_file());
        assert_eq!(conf.mode() & 0o777, 0o600);
        assert_eq!(conf.uid() == 12_345, foreign, "it is the folder's owner's");
    }

    #[tokio::test]
    async fn the_copy_is_written_as_carefully_as_the_file_and_left_alone_when_equal() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("shadow");
        std::fs::write(&secret, "theirs").unwrap();
        let own = folder.path().join("frr");
        std::fs::create_dir(&own).unwrap();
        let frr = frr(&own);
        std::os::unix::fs::symlink(&secret, frr.copy()).unwrap();
        frr.keep("ours").await.unwrap();
        assert_eq!(frr.kept().as_deref(), Some("ours"));
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "theirs");
        let first = std::fs::symlink_metadata(frr.copy()).unwrap();
        assert!(first.is_file());
        assert_eq!(first.mode() & 0o777, 0o600);
        frr.keep("ours").await.unwrap();
        let same = std::fs::symlink_metadata(frr.copy()).unwrap();
        assert_eq!(first.ino(), same.ino());
        frr.keep("newer").await.unwrap();
        assert_eq!(frr.kept().as_deref(), Some("newer"));
        assert_eq!(frr.config(), None, "frr.conf is another file");
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_in_the_place_of_frr_conf_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        nix::unistd::mkfifo(&frr.config_file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(frr.config(), None);
    }

    #[test]
    fn what_a_killed_process_left_behind_goes_with_the_next_write() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        std::fs::write(folder.path().join(".frr.conf.abc123.next"), "secret").unwrap();
        replace(&frr, "new").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_daemon_that_restarts_changes_the_instance() {
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

    #[test]
    fn frr_is_zebra_and_bgpd_and_the_daemons_are_all_that_are_configured() {
        let folder = tempfile::tempdir().unwrap();
        let frr = frr(folder.path());
        let bind = |daemon: &str| {
            let socket = folder.path().join(format!("{daemon}.vty"));
            std::os::unix::net::UnixListener::bind(socket).unwrap()
        };
        let _core = ["zebra", "bgpd"].map(bind);
        let (instance, mut daemons) = (frr.instance(), frr.daemons());
        for daemon in ["bfdd", "staticd", "mgmtd"] {
            let _other = bind(daemon);
            assert_eq!(frr.instance(), instance, "{daemon} is not FRR");
            assert_ne!(frr.daemons(), daemons, "{daemon} wants its configuration");
            daemons = frr.daemons();
        }
    }
}
