//! Functions for fuzz targets, which take any bytes and check invariants.

#![expect(clippy::expect_used, reason = "a panic is a finding of the fuzzer")]

use shunt_pcap::PcapReader;

use crate::{
    DumpError, ParameterError, PipelineError, Progress, Seed, TextError,
    classbench::{FilterRequest, Parameters, generate, read_filters},
    input::{Input, InputKind},
    name::WorkloadName,
    pipeline_file::{PipelineDescription, PipelineFile, picture},
    populate::{RuleForm, SwitchDump, TraversalSelection, populate},
    traffic::CoflowTrace,
    workload::capture_statistics,
    workload::draw_flows_of_dump,
};

/// Parses any text as filters.
///
/// The parser refuses the text with a position, or the filters survive printing and parsing.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_filters(data: &[u8]) {
    // Any input is either accepted or refused.
    if let Ok(input) = Input::of("fuzz", data.to_vec()) {
        assert!(matches!(
            input.kind(),
            InputKind::Filters | InputKind::Parameters | InputKind::Pipeline | InputKind::Rules
        ));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read_filters(text) {
        Ok(filters) => {
            let printed: String = filters.iter().map(|filter| format!("{filter}\n")).collect();
            assert_eq!(read_filters(&printed).expect("printed filters can be parsed"), filters);
        }
        Err(error) => assert_position(text, &error),
    }
}

/// Parses any text as parameters.
///
/// The parser refuses the text with a position, or the parameters generate a rule set.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_parameters(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Parameters::parse(text) {
        Ok(parameters) => {
            let request = FilterRequest::new(50);
            let filters = generate(&parameters, &request, Seed::new(1), &Progress::hidden());
            assert!(!filters.expect("the request is legal").is_empty());
            let printed = parameters.to_string();
            // Shares are printed with eight digits, so smaller shares become zero.
            if let Ok(again) = Parameters::parse(&printed) {
                assert_eq!(again.to_string(), printed);
            }
        }
        Err(ParameterError::Text(place) | ParameterError::Section { place, .. }) => {
            assert_position(text, &place);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses any text as a pipeline.
///
/// The parser refuses the text with an error, or the pipeline can be described, drawn and filled.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_pipeline(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match PipelineFile::parse(text) {
        Ok(pipeline) => {
            assert!(!PipelineDescription(&pipeline).to_string().is_empty());
            assert!(picture(&pipeline).ends_with("</svg>\n"));
            let line = "@10.0.0.0/8\t10.1.2.3/32\t0 : 65535\t80 : 81\t0x06/0xFF";
            let filters = read_filters(line).expect("a legal filter");
            if let Ok(population) = populate(
                &pipeline,
                &filters,
                TraversalSelection::All,
                RuleForm::Real,
                Seed::new(1),
                &Progress::hidden(),
            ) {
                let rules = population.flow_mods().expect("a pipeline accepts each rule");
                assert_eq!(rules.len(), population.counts().rules);
            }
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let (PipelineError::Json { offset, length, .. }
            | PipelineError::Fault { offset, length, .. }) = error;
            assert!(text.get(offset..offset.saturating_add(length)).is_some());
        }
    }
}

/// Parses any text as a dump.
///
/// The parser refuses the text with a position, or all rules of the dump are in tables.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_dump(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match SwitchDump::read(text) {
        Ok(dump) => {
            let rules: usize = dump.tables().iter().map(|table| table.rules).sum();
            assert_eq!(rules, dump.rules().len());
            assert!(!dump.to_string().is_empty());
            draw_flows_of_dump(text);
        }
        Err(DumpError::Rule { offset, length, .. }) => {
            assert!(text.get(offset..offset.saturating_add(length)).is_some());
        }
        Err(DumpError::Empty) => {}
    }
}

/// Panics if the position of an error does not point to the text that it quotes.
fn assert_position(text: &str, error: &TextError) {
    let place = text.get(error.offset..error.offset.saturating_add(error.length));
    assert!(place.is_some_and(|place| place.starts_with(&error.found)), "{error:?}");
    let line = text.split_inclusive('\n').nth(error.line.saturating_sub(1));
    assert!(line.is_some(), "{error:?}");
}

/// Reads the bytes as a capture file, to its end or to an error.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_capture(data: &[u8]) {
    let mut length = 0_usize;
    if let Ok(mut reader) = PcapReader::new("fuzz", data) {
        while let Ok(Some(packet)) = reader.next_packet() {
            length = length.saturating_add(packet.frame.len());
        }
    }
    assert!(length <= data.len(), "frames lie in the file without overlap");
    // A readable capture has statistics.
    if let Ok(rows) = capture_statistics("fuzz", data) {
        assert!(rows.iter().all(|row| row.value.is_finite()));
    }
}

/// Parses any text as a trace of coflows.
///
/// The parser refuses the text with the line of the error, or the coflows are in order.
///
/// # Panics
///
/// If an invariant is violated.
pub fn fuzz_coflow_trace(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match CoflowTrace::parse(text) {
        Ok(trace) => {
            assert!(trace.coflows().is_sorted_by_key(|coflow| coflow.arrival_ms));
            assert!(trace.coflows().iter().all(|coflow| coflow.pairs() > 0));
        }
        Err(error) => assert!(error.line <= text.lines().count().max(1)),
    }
}

/// Parses the bytes as the name of a workload.
///
/// # Panics
///
/// If a name does not survive printing and parsing, or a suggestion is invalid.
pub fn fuzz_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<WorkloadName>() {
        Ok(name) => assert_eq!(name.to_string().parse(), Ok(name)),
        Err(error) => {
            assert!(error.nearest.is_none_or(|nearest| nearest.parse::<WorkloadName>().is_ok()));
        }
    }
}
