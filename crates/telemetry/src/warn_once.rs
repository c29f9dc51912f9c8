//! Warnings that last, said once.
//! In: what is wrong with a subject, at each look. Out: a log line where it is something new. Invariant: after the subject was
//! well, the same is said again. Not here: events, which are said of an object.

use std::collections::BTreeMap;

/// What was last said of each subject.
#[derive(Debug)]
pub struct WarnOnce<K>(BTreeMap<K, String>);

impl<K> Default for WarnOnce<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> WarnOnce<K> {
    /// Logs `text` as a warning unless it was the last that was said of the subject. Returns whether it did.
    pub fn warn(&mut self, subject: K, text: String) -> bool {
        if self.0.get(&subject) == Some(&text) {
            return false;
        }
        tracing::warn!("{text}");
        self.0.insert(subject, text);
        true
    }

    /// The subject is well.
    pub fn clear(&mut self, subject: &K) {
        self.0.remove(subject);
    }

    /// There are only subjects of which `is_there` holds.
    pub fn retain(&mut self, is_there: impl Fn(&K) -> bool) {
        self.0.retain(|subject, _| is_there(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_until_the_subject_was_well() {
        let mut warnings = WarnOnce::default();
        let mut warn = |text: &str| warnings.warn("n1", text.to_owned());
        assert_eq!(
            [warn("a"), warn("a"), warn("b"), warn("a")],
            [true, false, true, true]
        );
        warnings.clear(&"n1");
        assert!(warnings.warn("n1", "a".to_owned()));
        warnings.retain(|subject| *subject == "n1");
        assert!(!warnings.warn("n1", "a".to_owned()));
        // One of the same name that comes back is another one.
        warnings.retain(|_| false);
        assert!(warnings.warn("n1", "a".to_owned()));
    }
}
