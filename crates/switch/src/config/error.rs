//! A mistake in a configuration, and the place of the mistake.
//!
//! The place is a path such as `bridges[0].ports[1].name`. A program that has read the
//! configuration from a text can mark this place in the text.

use std::fmt;

use thiserror::Error;

use crate::error::SwitchError;

/// A mistake in a configuration, and the place of the mistake.
#[derive(Debug, Error)]
pub struct ConfigError {
    /// Place of the mistake in the configuration.
    pub path: ConfigPath,
    /// The error that describes the mistake.
    pub problem: Box<SwitchError>,
}

/// A path into [`Config`](crate::Config) and its fields, from the outside in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigPath(Vec<ConfigStep>);

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigStep {
    /// A field of a struct.
    Field(&'static str),
    /// An element of a list.
    Index(usize),
}

impl ConfigPath {
    /// Returns the steps, from the outside in.
    #[must_use]
    pub fn steps(&self) -> &[ConfigStep] {
        &self.0
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                ConfigStep::Field(name) if depth == 0 => f.write_str(name)?,
                ConfigStep::Field(name) => write!(f, ".{name}")?,
                ConfigStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, problem } = self;
        match &**problem {
            // The path already contains the name of the setting.
            SwitchError::Range { value, range, .. } => {
                write!(f, "{path} = {value}: it must be {range}")
            }
            problem => write!(f, "{path}: {problem}"),
        }
    }
}

impl ConfigError {
    /// Returns an error for a field, or for a nested field such as `threads.packet`.
    pub(crate) fn at(field: &'static str, problem: SwitchError) -> Self {
        let path = ConfigPath(field.split('.').map(ConfigStep::Field).collect());
        Self { path, problem: Box::new(problem) }
    }

    /// Returns an error unless `ok` is true; `range` describes the allowed values.
    pub(crate) fn check_range(
        setting: &'static str,
        value: String,
        ok: bool,
        range: &'static str,
    ) -> Result<(), Self> {
        if ok {
            return Ok(());
        }
        Err(Self::at(setting, SwitchError::Range { setting, value, range }))
    }

    /// Returns an error for an element of a list.
    pub(crate) fn of_element(list: &'static str, index: usize, problem: SwitchError) -> Self {
        Self { path: ConfigPath::default(), problem: Box::new(problem) }.within(list, index)
    }

    /// Returns this error with its path inside a section.
    pub(crate) fn under(mut self, section: &'static str) -> Self {
        self.path.0.insert(0, ConfigStep::Field(section));
        self
    }

    /// Returns this error with its path inside an element of a list.
    pub(crate) fn within(mut self, list: &'static str, index: usize) -> Self {
        self.path.0.splice(0..0, [ConfigStep::Field(list), ConfigStep::Index(index)]);
        self
    }
}
