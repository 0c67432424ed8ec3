//! What a user names on the command line: files, and things that come with the program.

use std::path::Path;

use miette::{Context as _, IntoDiagnostic, LabeledSpan, NamedSource, Report, miette};
use shunt_pipebench::{
    DumpError, ParameterError, PipelineError, TextError,
    classbench::{BuiltinSet, Filter, Parameters, read_filters},
    input::{Input, InputKind},
    pipeline_file::{BUILTIN, Builtin, PipelineFile},
    populate::Dump,
};

/// What a file has, read.
pub(crate) enum Content {
    Pipeline(Box<PipelineFile>),
    Filters(Vec<Filter>),
    Parameters(Box<Parameters>),
    Rules(Box<Dump>),
}

/// Reads a file, whatever it is; it is told with its place what is wrong with it.
pub(crate) fn read(path: &str) -> miette::Result<Content> {
    let input = Input::read(path).into_diagnostic().wrap_err_with(|| {
        let known = BUILTIN.iter().map(|builtin| builtin.name);
        let known: Vec<&str> = known.chain(BuiltinSet::ALL.map(BuiltinSet::name)).collect();
        format!("`{path}` is no file that can be used, and not one of {}", known.join(", "))
    })?;
    match input.kind() {
        InputKind::Pipeline => pipeline_of(&input).map(Box::new).map(Content::Pipeline),
        InputKind::Filters => filters(&input).map(Content::Filters),
        InputKind::Parameters => parameters(&input).map(Box::new).map(Content::Parameters),
        InputKind::Rules => dump(&input).map(Box::new).map(Content::Rules),
    }
}

fn filters(input: &Input) -> miette::Result<Vec<Filter>> {
    read_filters(&input.text).map_err(|error: TextError| {
        let label = format!("expected {}", error.expected);
        report(input, &error, (error.offset, error.length), &label)
    })
}

fn parameters(input: &Input) -> miette::Result<Parameters> {
    Parameters::parse(&input.text).map_err(|error| match &error {
        ParameterError::Text(place) | ParameterError::Section { place, .. } => {
            report(input, &error, (place.offset, place.length), place.expected)
        }
        _ => miette!("{}: {error}", input.path),
    })
}

fn pipeline_of(input: &Input) -> miette::Result<PipelineFile> {
    PipelineFile::parse(&input.text).map_err(|error| match &error {
        PipelineError::Json { offset, length, .. }
        | PipelineError::Fault { offset, length, .. } => {
            report(input, &error, (*offset, *length), "here")
        }
        _ => miette!("{}: {error}", input.path),
    })
}

fn dump(input: &Input) -> miette::Result<Dump> {
    Dump::read(&input.text).map_err(|error| match &error {
        DumpError::Rule { offset, length, .. } => report(input, &error, (*offset, *length), "here"),
        _ => miette!("{}: {error}", input.path),
    })
}

/// An error with the place in the text, which is shown if a person can read it there.
fn report(
    input: &Input,
    error: &dyn std::error::Error,
    (offset, length): (usize, usize),
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

/// The line of a byte, the one before and the one behind: what is shown with an error.
fn lines_around(text: &str, offset: usize) -> &str {
    let (before, behind) = text.split_at_checked(offset).unwrap_or((text, ""));
    let begin = before.rmatch_indices('\n').nth(1).map_or(0, |(at, _)| at + 1);
    let end = behind.match_indices('\n').nth(1).map_or(text.len(), |(at, _)| offset + at);
    text.get(begin..end).unwrap_or_default()
}

/// Bytes of a line that is shown: a file without line breaks would fill the screen.
const SHOWN_MAX: usize = 1000;

/// A pipeline by its name or its file.
pub(crate) fn pipeline(name: &str) -> miette::Result<PipelineFile> {
    if let Some(builtin) = Builtin::find(name) {
        return PipelineFile::parse(builtin.json).into_diagnostic();
    }
    match read(name)? {
        Content::Pipeline(pipeline) => Ok(*pipeline),
        _ => Err(miette!("{name} is no pipeline: a pipeline is a JSON object")),
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
    match read(name)? {
        Content::Parameters(parameters) => Ok(FilterSource::Parameters(parameters)),
        Content::Filters(filters) => Ok(FilterSource::Filters(filters)),
        Content::Pipeline(_) | Content::Rules(_) => {
            Err(miette!("{name} has neither filters nor parameters of ClassBench"))
        }
    }
}
