//! Cost of a translation, by number of tables and by action, in this process.
//!
//! The extraction of the headers is the reference in the same run. There is no rival, because Open
//! vSwitch has no interface for a translation alone; [`super::set_up`] compares the complete set-up
//! of flows.

use std::hint::black_box;

use shunt_flow::{FlowKey, extract::VlanLimit};
use shunt_kernels::{case::pipeline, frame::key};

use super::tables::{self, Case};
use crate::{
    capture, cpu,
    experiment::{Row, Run, Samples},
};

/// Translations between two clock readings.
const TRANSLATIONS_PER_READING: usize = 2_000;

/// A measured operation: the extraction, or the translation of a case.
struct Subject {
    name: String,
    metric: &'static str,
    call: Box<dyn FnMut()>,
    samples: Samples,
}

/// Returns the number of progress steps.
pub(crate) fn steps(run: &Run) -> usize {
    run.either(15, 7)
}

pub(crate) fn rows(run: &mut Run) -> Vec<Row> {
    let mut subjects = vec![extraction()];
    subjects.extend([1, 2, 4, 8, 16].map(|tables| subject(&tables::chain(tables))));
    subjects.extend(tables::actions().iter().map(subject));
    for _ in 0..steps(run) {
        run.step("translations", |_| {
            for Subject { call, samples, .. } in &mut subjects {
                let ns = cpu::measure_ns(|| (0..TRANSLATIONS_PER_READING).for_each(|_| call()));
                samples.0.push(ns as f64 / TRANSLATIONS_PER_READING as f64);
            }
        });
    }
    let row = |subject: Subject| Row {
        ours: subject.samples,
        ..Row::new(subject.name, subject.metric, "ns")
    };
    subjects.into_iter().map(row).collect()
}

fn extraction() -> Subject {
    let frame = capture::frame(0x0005_0207);
    let mut key = FlowKey::ZERO;
    let call = move || {
        shunt_flow::extract::extract(black_box(&frame), VlanLimit::One, &mut key);
        black_box(&key);
    };
    subject_of(
        "extraction, in the same rounds",
        "translation of a packet, by number of tables",
        Box::new(call),
    )
}

fn subject(case: &Case) -> Subject {
    let metric = if case.is_chain {
        "translation of a packet, by number of tables"
    } else {
        "translation of a packet, by action"
    };
    let pipeline = pipeline(case);
    let key = key(&capture::udp_frame(tables::SOURCE, [10, 5, 2, 7], [4000, 2000]));
    let version = pipeline.version();
    assert!(pipeline.translate(&key, version).error.is_none(), "{} is translated", case.name);
    let call = move || {
        black_box(pipeline.translate(black_box(&key), version));
    };
    subject_of(&case.name, metric, Box::new(call))
}

fn subject_of(name: &str, metric: &'static str, call: Box<dyn FnMut()>) -> Subject {
    Subject { name: name.to_owned(), metric, call, samples: Samples::default() }
}
