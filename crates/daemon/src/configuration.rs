//! The configuration file as a running daemon follows it.
//! In: the file, and the one whose keys replace its own, looked at once a second. Out: the settings in force, and what of the file is not.
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

/// The file as a daemon goes by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// What is in force.
    pub settings: Settings,
    /// What the file says and is not in force, a sentence each.
    pub refused: Vec<String>,
    /// Name and text of the file when it could be read the last time; none where there is no file.
    pub file: Option<(String, String)>,
}

impl From<Settings> for Followed {
    fn from(settings: Settings) -> Self {
        Self {
            settings,
            refused: Vec::new(),
            file: None,
        }
    }
}

/// The settings in force, and how they change. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Configuration {
    now: watch::Receiver<Arc<Followed>>,
    /// How many statements the daemon itself does not take over.
    kept: Arc<watch::Sender<usize>>,
    /// Where nobody follows a file: without a sender nobody could wait for a change.
    _fixed: Option<Arc<watch::Sender<Arc<Followed>>>>,
}

impl From<Settings> for Configuration {
    /// Settings that stay.
    fn from(settings: Settings) -> Self {
        let (sender, now) = watch::channel(Arc::new(Followed::from(settings)));
        Self {
            now,
            kept: Arc::default(),
            _fixed: Some(Arc::new(sender)),
        }
    }
}

impl Configuration {
    /// Follows a file that said `settings`. Has to be called in a runtime; the task ends with the last clone.
    #[must_use]
    pub fn follow(path: &Path, daemon: settings::Daemon, settings: Settings) -> Self {
        let mut followed = Followed::from(settings);
        // As it is now: what it was when the settings were read is seen at the first look.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        followed.file = Some((path.display().to_string(), text));
        let (sender, now) = watch::channel(Arc::new(followed));
        let file = File {
            path: path.to_owned(),
            daemon,
            last: None,
        };
        tokio::spawn(file.follow(sender));
        Self {
            now,
            kept: Arc::default(),
            _fixed: None,
        }
    }

    /// What is in force now.
    #[must_use]
    pub fn now(&self) -> Arc<Followed> {
        Arc::clone(&self.now.borrow())
    }

    /// Tells how many statements of [`Self::now`] the daemon itself does not take over.
    pub fn tell_kept(&self, count: usize) {
        self.kept
            .send_if_modified(|kept| std::mem::replace(kept, count) != count);
    }

    /// How many statements of the file are not in force, now and whenever it is another number.
    pub(crate) async fn count_refused(mut self, tell: impl Fn(usize)) {
        let mut kept = self.kept.subscribe();
        loop {
            let count = self.now().refused.len() + *kept.borrow_and_update();
            tell(count);
            tokio::select! {
                () = self.changed() => {}
                // Its sender lives in `self`.
                _ = kept.changed() => {}
            }
        }
    }

    /// Waits until there is something that [`Self::changed`] has not returned for yet.
    pub async fn changed(&mut self) {
        // The sender ends after the last receiver: this is one.
        if self.now.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a file says, or why it cannot be read.
type Seen = Result<Vec<u8>, std::io::ErrorKind>;

/// The file, as it was read the last time, and the one over it.
struct File {
    path: PathBuf,
    daemon: settings::Daemon,
    last: Option<(Seen, Option<Seen>)>,
}

impl File {
    async fn follow(mut self, sender: watch::Sender<Arc<Followed>>) {
        while !sender.is_closed() {
            self.look(&sender).await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Looks once, and tells whoever listens when something is another than before.
    async fn look(&mut self, sender: &watch::Sender<Arc<Followed>>) {
        let running = sender.borrow().settings.clone();
        let over = running.operator_file(self.daemon).map(Path::to_owned);
        let seen = read(&self.path).await;
        let seen_over = match &over {
            Some(path) => Some(read(path).await),
            None => None,
        };
        let seen = (seen, seen_over);
        if self.last.as_ref() == Some(&seen) {
            return;
        }
        let before = Arc::clone(&sender.borrow());
        let followed = match self.parse(&seen, over.as_deref()) {
            Ok(new) => {
                let Kept { settings, refused } = new.replacing(&running, self.daemon);
                let text = seen.0.as_ref().map(|bytes| String::from_utf8_lossy(bytes));
                let text = text.unwrap_or_default().into_owned();
                Followed {
                    settings,
                    refused,
                    file: Some((self.path.display().to_string(), text)),
                }
            }
            Err(error) => Followed {
                refused: vec![telemetry::Chain(&error).to_string()],
                ..(*before).clone()
            },
        };
        self.last = Some(seen);
        if *before == followed {
            return;
        }
        for refused in &followed.refused {
            tracing::warn!("the configuration file changed: {refused}");
        }
        if followed.refused.is_empty() {
            tracing::info!("the configuration file changed and is in force");
        }
        telemetry::set_level(&followed.settings.logging.level);
        sender.send_replace(Arc::new(followed));
    }

    fn parse(
        &self,
        (seen, seen_over): &(Seen, Option<Seen>),
        over: Option<&Path>,
    ) -> Result<Settings, SettingsError> {
        let file = self.path.display().to_string();
        let text = text_of(&self.path, seen)?;
        match (over, seen_over) {
            (Some(path), Some(seen)) => {
                let name = path.display().to_string();
                let over = text_of(path, seen)?;
                settings::parse_over(&file, &text, (&name, &over), self.daemon)
            }
            _ => settings::parse_for(&file, &text, self.daemon),
        }
    }
}

async fn read(path: &Path) -> Seen {
    let read = tokio::fs::read(path).await;
    read.map_err(|error| error.kind())
}

fn text_of(path: &Path, seen: &Seen) -> Result<String, SettingsError> {
    match seen {
        Ok(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Err(kind) => Err(SettingsError::Read {
            file: path.display().to_string(),
            source: (*kind).into(),
        }),
    }
}

#[cfg(test)]
mod tests;
