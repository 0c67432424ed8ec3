//! The measured pipelines and eviction engines.

use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{PublishedKairo, PublishedSettings, Relational, Visits};
#[cfg(feature = "dbsp")]
use shunt_pipeline::Time;
use shunt_pipeline::{Evictor, Pipeline};

#[cfg(feature = "dbsp")]
use super::workload::BRIDGE;
use super::workload::Clock;

pub(super) const PIPELINES: &[&str] = &["ofd", "psc", "ols", "ant"];
pub(super) const RIVAL: &str = "the iterative engine";

/// An eviction engine of `shunt-kairo` that is measured.
pub(super) struct Engine {
    pub(super) name: &'static str,
    pub(super) new: fn(&Pipeline) -> Box<dyn Evictor>,
    pub(super) clock: Clock,
    /// Maximum entries in thousands, limited by memory.
    pub(super) thousands_max: usize,
}

pub(super) const ENGINES: &[Engine] = &[
    Engine {
        name: "direct",
        new: |pipeline| Box::new(Direct::new(pipeline.version(), 1)),
        clock: Clock::Thread,
        thousands_max: usize::MAX,
    },
    #[cfg(feature = "dbsp")]
    Engine {
        name: "visits",
        new: |pipeline| Box::new(Visits::new(pipeline.version(), 1)),
        clock: Clock::Thread,
        thousands_max: usize::MAX,
    },
    #[cfg(feature = "dbsp")]
    Engine {
        name: "relational",
        new: |pipeline| Box::new(Relational::new(pipeline.version(), 1)),
        clock: Clock::Circuit,
        thousands_max: usize::MAX,
    },
    // Kairo as published, which stores a packet once for each tuple of each table.
    #[cfg(feature = "dbsp")]
    Engine {
        name: "published",
        new: |pipeline| Box::new(published_kairo(pipeline, PublishedSettings::default())),
        clock: Clock::Circuit,
        thousands_max: 102,
    },
];

/// Creates the published design with two virtual seconds between events.
///
/// So the design settles before each change.
#[cfg(feature = "dbsp")]
pub(super) fn published_kairo(pipeline: &Pipeline, settings: PublishedSettings) -> PublishedKairo {
    let apart = PublishedSettings::default().propagation.unwrap_or_default();
    let mut now = Time::ZERO;
    let clock = move || {
        now = now.after(apart);
        now
    };
    PublishedKairo::new(pipeline, &[BRIDGE], settings, clock)
}
