//! What a user names on the command line: files, and things that come with the program.

use std::{fs, path::Path};

use miette::{IntoDiagnostic, LabeledSpan, NamedSource, Report, WrapErr, miette};
use shunt_pipebench::{
    DumpError, ParameterError, PipelineError, TextError,
    classbench::{BuiltinSet, Filter, Parameters, read_filters},
    pipeline_file::{BUILTIN, Builtin, PipelineFile},
    populate::Dump,
};

/// A text and where it is from.
pub(crate) struct Source {
    name: String,
    pub(crate) text: String,
}

impl Source {
    /// Reads a file.
    pub(crate) fn read(path: &str) -> miette::Result<Self> {
        let text = fs::read_to_string(path).into_diagnostic().wrap_err_with(|| {
            let known = BUILTIN.iter().map(|builtin| builtin.name);
            let known: Vec<&str> = known.chain(BuiltinSet::ALL.map(BuiltinSet::name)).collect();
            let known = known.join(", ");
            format!("`{path}` is no file that can be read, and not one of {known}")
        })?;
        Ok(Self { name: path.to_owned(), text })
    }

    /// Where its first line begins that is no comment: what it is can be told by that.
    pub(crate) fn beginning(&self) -> &str {
        let mut rest = self.text.trim_start();
        while rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest.trim_start());
        }
        rest
    }

    /// The filters of a filter file.
    pub(crate) fn filters(&self) -> miette::Result<Vec<Filter>> {
        read_filters(&self.text).map_err(|error| self.text_report(&error))
    }

    /// The parameters of a parameter file.
    pub(crate) fn parameters(&self) -> miette::Result<Parameters> {
        Parameters::parse(&self.text).map_err(|error| match &error {
            ParameterError::Text(place) | ParameterError::Section { place, .. } => {
                self.report(&error, (place.offset, place.length), place.expected)
            }
            _ => miette!("{}: {error}", self.name),
        })
    }

    /// The pipeline of a JSON file.
    pub(crate) fn pipeline(&self) -> miette::Result<PipelineFile> {
        PipelineFile::parse(&self.text).map_err(|error| match &error {
            PipelineError::Json { offset, length, .. }
            | PipelineError::Fault { offset, length, .. } => {
                self.report(&error, (*offset, *length), "here")
            }
            _ => miette!("{}: {error}", self.name),
        })
    }

    /// The rules of a dump.
    pub(crate) fn dump(&self) -> miette::Result<Dump> {
        Dump::read(&self.text).map_err(|error| match &error {
            DumpError::Rule { offset, length, .. } => {
                self.report(&error, (*offset, *length), "here")
            }
            _ => miette!("{}: {error}", self.name),
        })
    }

    fn text_report(&self, error: &TextError) -> Report {
        let label = format!("expected {}", error.expected);
        self.report(error, (error.offset, error.length), &label)
    }

    fn report(&self, error: &dyn std::error::Error, place: (usize, usize), label: &str) -> Report {
        let span = LabeledSpan::new(Some(label.to_owned()), place.0, place.1);
        let source = NamedSource::new(&self.name, self.text.clone());
        miette!(labels = vec![span], "{error}").with_source_code(source)
    }
}

/// A pipeline by its name or its file.
pub(crate) fn pipeline(name: &str) -> miette::Result<PipelineFile> {
    match Builtin::find(name) {
        Some(builtin) => PipelineFile::parse(builtin.json).into_diagnostic(),
        None => Source::read(name)?.pipeline(),
    }
}

/// Where filters come from: parameters to make them by, or a file that has them.
pub(crate) enum FilterSource {
    Parameters(Box<Parameters>),
    Filters(Vec<Filter>),
}

/// Filters or parameters by their name or file.
pub(crate) fn filter_source(name: &str) -> miette::Result<FilterSource> {
    if !Path::new(name).exists() {
        // Says which names there are, and which of them is near.
        let set = name.parse::<BuiltinSet>().into_diagnostic()?;
        return Ok(FilterSource::Parameters(Box::new(set.parameters())));
    }
    let source = Source::read(name)?;
    if source.beginning().starts_with('-') {
        source.parameters().map(|parameters| FilterSource::Parameters(Box::new(parameters)))
    } else {
        source.filters().map(FilterSource::Filters)
    }
}
