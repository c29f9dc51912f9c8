//! The configuration file as a running daemon follows it.
//! In: the file, looked at once a second. Out: the settings in force, and what of the file is not.
//! Invariant: a file that cannot be read or is wrong changes nothing and is told once; so is what needs a start.
//! Not here: what may change at run time (`settings`), what a daemon does then.
//!
//! A ConfigMap is replaced by renaming a folder, an admin's editor by renaming a file: whoever watches the file alone misses
//! either. One read a second misses neither.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use settings::{Kept, Settings, SettingsError};
use tokio::sync::watch;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// The settings in force, and how they change. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Configuration {
    now: watch::Receiver<Arc<Kept>>,
    /// Where nobody follows a file: without a sender nobody could wait for a change.
    _fixed: Option<Arc<watch::Sender<Arc<Kept>>>>,
}

impl From<Settings> for Configuration {
    /// Settings that stay.
    fn from(settings: Settings) -> Self {
        let refused = Vec::new();
        let (sender, now) = watch::channel(Arc::new(Kept { settings, refused }));
        Self {
            now,
            _fixed: Some(Arc::new(sender)),
        }
    }
}

impl Configuration {
    /// Follows a file that said `settings`. Has to be called in a runtime; the task ends with the last clone.
    #[must_use]
    pub fn follow(path: &Path, daemon: settings::Daemon, settings: Settings) -> Self {
        let refused = Vec::new();
        let (sender, now) = watch::channel(Arc::new(Kept { settings, refused }));
        let file = File {
            path: path.to_owned(),
            daemon,
            last: None,
        };
        tokio::spawn(file.follow(sender));
        Self { now, _fixed: None }
    }

    /// What is in force now.
    #[must_use]
    pub fn now(&self) -> Arc<Kept> {
        Arc::clone(&self.now.borrow())
    }

    /// Waits until there is something that [`Self::changed`] has not returned for yet.
    pub async fn changed(&mut self) {
        // The sender ends after the last receiver: this is one.
        if self.now.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The file, as it was read the last time.
struct File {
    path: PathBuf,
    daemon: settings::Daemon,
    last: Option<Result<Vec<u8>, std::io::ErrorKind>>,
}

impl File {
    async fn follow(mut self, sender: watch::Sender<Arc<Kept>>) {
        while !sender.is_closed() {
            self.look(&sender).await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Looks once, and tells whoever listens when something is another than before.
    async fn look(&mut self, sender: &watch::Sender<Arc<Kept>>) {
        let read = tokio::fs::read(&self.path).await;
        let seen = read.map_err(|error| error.kind());
        if self.last.as_ref() == Some(&seen) {
            return;
        }
        let kept = self.take(&seen, &sender.borrow().settings);
        self.last = Some(seen);
        let before = Arc::clone(&sender.borrow());
        if *before == kept {
            return;
        }
        for refused in &kept.refused {
            tracing::warn!("the configuration file changed: {refused}");
        }
        if kept.refused.is_empty() {
            tracing::info!("the configuration file changed and is in force");
        }
        telemetry::set_level(&kept.settings.logging.level);
        sender.send_replace(Arc::new(kept));
    }

    /// What becomes of the settings.
    fn take(&self, seen: &Result<Vec<u8>, std::io::ErrorKind>, running: &Settings) -> Kept {
        let file = self.path.display().to_string();
        let new = match seen {
            Err(kind) => Err(SettingsError::Read {
                file,
                source: (*kind).into(),
            }),
            Ok(bytes) => settings::parse_for(&file, &String::from_utf8_lossy(bytes), self.daemon),
        };
        match new {
            Ok(new) => new.replacing(running, self.daemon),
            Err(error) => Kept {
                settings: running.clone(),
                refused: vec![telemetry::Chain(&error).to_string()],
            },
        }
    }
}

#[cfg(test)]
mod tests;
