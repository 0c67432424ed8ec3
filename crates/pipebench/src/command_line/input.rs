//! Inputs named on the command line: files, and built-in pipelines and rule sets.

use std::path::Path;

use crate::{
    DumpError, ParameterError, PipelineError, TextError,
    classbench::{BuiltinSet, Filter, Parameters, read_filters},
    input::{Input, InputKind},
    pipeline_file::{BUILTIN, Builtin, PipelineFile},
    populate::SwitchDump,
};
use miette::{Context as _, IntoDiagnostic, LabeledSpan, NamedSource, Report, miette};

/// The parsed content of a file.
pub(crate) enum Content {
    Pipeline(Box<PipelineFile>),
    Filters(Vec<Filter>),
    Parameters(Box<Parameters>),
    Rules(Box<SwitchDump>),
}

/// Reads a file of any supported kind; errors include the position in the file.
pub(crate) fn read(path: &str) -> miette::Result<Content> {
    let input = Input::read(path).into_diagnostic().wrap_err_with(|| {
        let known = BUILTIN.iter().map(|builtin| builtin.name);
        let known: Vec<&str> = known.chain(BuiltinSet::ALL.map(BuiltinSet::name)).collect();
        format!("`{path}` is not a usable file, and not one of {}", known.join(", "))
    })?;
    match input.kind() {
        InputKind::Pipeline => pipeline_of(&input).map(Box::new).map(Content::Pipeline),
        InputKind::Filters => filters(&input).map(Content::Filters),
        InputKind::Parameters => parameters(&input).map(Box::new).map(Content::Parameters),
        InputKind::Rules => dump(&input).map(Box::new).map(Content::Rules),
    }
}

/// Parses a file of filters.
fn filters(input: &Input) -> miette::Result<Vec<Filter>> {
    read_filters(&input.text).map_err(|error: TextError| {
        let label = format!("expected {}", error.expected);
        report(input, &error, error.offset, error.length, &label)
    })
}

/// Parses a file of ClassBench parameters.
fn parameters(input: &Input) -> miette::Result<Parameters> {
    Parameters::parse(&input.text).map_err(|error| match &error {
        ParameterError::Text(place) | ParameterError::Section { place, .. } => {
            report(input, &error, place.offset, place.length, place.expected)
        }
        _ => miette!("{}: {error}", input.path),
    })
}

/// Parses a pipeline file; an error shows the place of the mistake.
fn pipeline_of(input: &Input) -> miette::Result<PipelineFile> {
    PipelineFile::parse(&input.text).map_err(|error| match &error {
        PipelineError::Json { offset, length, .. }
        | PipelineError::Fault { offset, length, .. } => {
            report(input, &error, *offset, *length, "here")
        }
    })
}

/// Parses a file of `ovs-ofctl dump-flows`.
fn dump(input: &Input) -> miette::Result<SwitchDump> {
    SwitchDump::read(&input.text).map_err(|error| match &error {
        DumpError::Rule { offset, length, .. } => report(input, &error, *offset, *length, "here"),
        _ => miette!("{}: {error}", input.path),
    })
}

/// Returns an error that shows its position in the text, if the text is readable.
fn report(
    input: &Input,
    error: &dyn std::error::Error,
    offset: usize,
    length: usize,
    label: &str,
) -> Report {
    let lines = lines_around(&input.text, offset);
    if lines.split('\n').any(|line| line.len() > SHOWN_MAX) {
        return miette!("{}: {error}", input.path);
    }
    let span = LabeledSpan::new(Some(label.to_owned()), offset, length);
    let source = NamedSource::new(&input.path, input.text.clone());
    miette!(labels = vec![span], "{error}").with_source_code(source)
}

/// Returns the line of a byte, to show with an error.
/// The function also returns the lines before and after it.
fn lines_around(text: &str, offset: usize) -> &str {
    let (before, behind) = text.split_at_checked(offset).unwrap_or((text, ""));
    let begin = before.rmatch_indices('\n').nth(1).map_or(0, |(at, _)| at + 1);
    let end = behind.match_indices('\n').nth(1).map_or(text.len(), |(at, _)| offset + at);
    text.get(begin..end).unwrap_or_default()
}

/// Maximum bytes of a shown line: a file without line breaks would fill the screen.
const SHOWN_MAX: usize = 1000;

/// Returns a pipeline by its name or file.
pub(crate) fn pipeline(name: &str) -> miette::Result<PipelineFile> {
    if let Some(builtin) = Builtin::find(name) {
        return PipelineFile::parse(builtin.json).into_diagnostic();
    }
    match read(name)? {
        Content::Pipeline(pipeline) => Ok(*pipeline),
        _ => Err(miette!("{name} is not a pipeline: a pipeline is a JSON object")),
    }
}

/// A source of filters: parameters to generate them from, or a file of filters.
pub(crate) enum FilterSource {
    Parameters(Box<Parameters>),
    Filters(Vec<Filter>),
}

/// Returns filters or parameters by name or file.
pub(crate) fn filter_source(name: &str) -> miette::Result<FilterSource> {
    if !Path::new(name).exists() {
        // The error lists the names, and suggests the nearest.
        let set = name.parse::<BuiltinSet>().into_diagnostic()?;
        return Ok(FilterSource::Parameters(Box::new(set.parameters())));
    }
    match read(name)? {
        Content::Parameters(parameters) => Ok(FilterSource::Parameters(parameters)),
        Content::Filters(filters) => Ok(FilterSource::Filters(filters)),
        Content::Pipeline(_) | Content::Rules(_) => Err(miette!(
            "{name} has neither filters nor parameters of ClassBench: name a file of \
             one of these kinds"
        )),
    }
}
