//! A setting of the configuration file that a key of the database replaces.

/// A setting of the configuration file that a key of the database replaces.
///
/// A reload can change the setting in force. The new value is then used without the key.
#[derive(Debug)]
pub(super) struct FileSetting<T> {
    /// The value that is used without a key.
    configured: T,
    /// The value in force after the last pass.
    in_force: T,
}

impl<T: Copy + PartialEq> FileSetting<T> {
    /// Stores a value of the configuration file, which is in force.
    pub(super) const fn new(configured: T) -> Self {
        Self { configured, in_force: configured }
    }

    /// Returns the value to set, if it differs from the value in force, `present`.
    ///
    /// `key` is the value of the key in the database.
    pub(super) fn missing(&mut self, present: T, key: Option<T>) -> Option<T> {
        if present != self.in_force {
            self.configured = present;
            self.in_force = present;
        }
        Some(key.unwrap_or(self.configured)).filter(|wanted| *wanted != present)
    }

    /// Notes the value that was set.
    pub(super) const fn note(&mut self, value: T) {
        self.in_force = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reloaded_value_returns_without_the_key() {
        let mut setting = FileSetting::new(1);
        assert_eq!(setting.missing(1, None), None);
        // A reload sets 2.
        assert_eq!(setting.missing(2, Some(1)), Some(1));
        setting.note(1);
        assert_eq!(setting.missing(1, Some(1)), None);
        assert_eq!(setting.missing(1, None), Some(2));
    }

    #[test]
    fn a_key_outlives_a_reload() {
        let mut setting = FileSetting::new(1);
        assert_eq!(setting.missing(1, Some(2)), Some(2));
        setting.note(2);
        // A reload sets 3.
        assert_eq!(setting.missing(3, Some(2)), Some(2));
        setting.note(2);
        assert_eq!(setting.missing(2, None), Some(3));
    }

    #[test]
    fn a_refused_value_is_set_again() {
        let mut setting = FileSetting::new(1);
        assert_eq!(setting.missing(1, Some(2)), Some(2));
        assert_eq!(setting.missing(1, Some(2)), Some(2));
        assert_eq!(setting.missing(1, None), None);
    }
}
