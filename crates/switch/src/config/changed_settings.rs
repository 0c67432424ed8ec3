//! Changed settings: fields of an options type, each with its new value.

use std::collections::BTreeSet;

use crate::config::setting::{KeyedSetting, SettingField, SettingSection};

/// Fields of the options `T` with their new values.
///
/// Other fields of `values` have no meaning.
pub(crate) struct ChangedSettings<T: 'static> {
    /// The settings that change.
    fields: Vec<&'static SettingField<T>>,
    /// Options with the new values of these fields.
    values: Box<T>,
}

impl<T: Clone + 'static> ChangedSettings<T> {
    /// Creates the change of `fields` to the values that they have in `values`.
    pub(crate) fn new(fields: Vec<&'static SettingField<T>>, values: T) -> Self {
        Self { fields, values: Box::new(values) }
    }

    /// Returns the settings in `known` with different values, ordered by key.
    pub(crate) fn between(before: &T, after: &T, known: &'static [KeyedSetting<T>]) -> Self {
        let fields = known.iter().map(|setting| &setting.field);
        let mut fields: Vec<_> = fields.filter(|field| !(field.is_equal)(before, after)).collect();
        fields.sort_unstable_by_key(|field| field.key);
        Self::new(fields, after.clone())
    }

    /// Returns whether no setting changes.
    pub(crate) const fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns whether the setting with a key is part of the change.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.fields.iter().any(|field| field.key == key)
    }

    /// Returns the keys of the settings.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.key)
    }

    /// Returns the change without the settings that have a key in `keys`.
    pub(crate) fn without(&self, keys: &BTreeSet<&'static str>) -> Self {
        let fields = self.fields.iter().copied().filter(|field| !keys.contains(field.key));
        Self { fields: fields.collect(), values: self.values.clone() }
    }

    /// Returns whether `options` already have the new values.
    pub(crate) fn is_in(&self, options: &T) -> bool {
        self.fields.iter().all(|field| (field.is_equal)(&self.values, options))
    }

    /// Writes the new values into `options`.
    pub(crate) fn write(&self, options: &mut T) {
        self.fields.iter().for_each(|field| (field.copy)(&self.values, options));
    }

    /// Copies the values that `before` has for the changed settings into `options`.
    pub(crate) fn undo(&self, before: &T, options: &mut T) {
        self.fields.iter().for_each(|field| (field.copy)(before, options));
    }

    /// Returns the changes as `KEY=VALUE ..`.
    pub(crate) fn words(&self) -> String {
        let word =
            |field: &&SettingField<T>| format!("{}={}", field.key, (field.text)(&self.values));
        self.fields.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the parts of the change that can be refused separately.
    pub(crate) fn parts(&self) -> Vec<(SettingSection, Self)> {
        let mut parts: Vec<(SettingSection, Self)> = Vec::new();
        for &field in &self.fields {
            let own = parts.iter_mut().find(|(section, _)| {
                *section == field.section && *section != SettingSection::Separate
            });
            match own {
                Some((_, part)) => part.fields.push(field),
                None => {
                    let part = Self { fields: vec![field], values: self.values.clone() };
                    parts.push((field.section, part));
                }
            }
        }
        parts
    }
}

/// Returns `new` with the values that `saved` has for unchanged settings.
///
/// Unchanged settings are the members of `known` that are equal in `old` and `new`.
pub(crate) fn with_saved<T: Clone + 'static>(
    saved: &T,
    old: &T,
    new: &T,
    known: &'static [KeyedSetting<T>],
) -> T {
    let mut merged = new.clone();
    let fields = known.iter().map(|setting| &setting.field);
    for field in fields.filter(|field| (field.is_equal)(old, new)) {
        (field.copy)(saved, &mut merged);
    }
    merged
}

// Derived implementations would need them for the values, which are compared as text.
impl<T: Clone + 'static> Clone for ChangedSettings<T> {
    fn clone(&self) -> Self {
        Self { fields: self.fields.clone(), values: self.values.clone() }
    }
}

impl<T: Clone + 'static> PartialEq for ChangedSettings<T> {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl<T: Clone + 'static> Eq for ChangedSettings<T> {}

impl<T: Clone + 'static> std::fmt::Debug for ChangedSettings<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words())
    }
}

#[cfg(test)]
impl crate::config::BridgeOptions {
    /// Returns these bridge options with new values of runtime keys, if they are valid.
    pub(crate) fn with_settings(
        &self,
        settings: &[(&str, &str)],
    ) -> Result<Self, crate::error::SwitchError> {
        let mut changed = self.clone();
        crate::config::setting::changed_bridge_settings(self, settings)?.write(&mut changed);
        changed.check().map_err(|error| *error.problem)?;
        Ok(changed)
    }
}
