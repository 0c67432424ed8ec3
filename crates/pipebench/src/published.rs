//! Published figures of papers, for comparison with measurements.
//!
//! The data file names the source of each figure. No generated workload depends on these figures.

use std::sync::LazyLock;

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The metric, such as `hit_rate`.
    pub metric: &'static str,
    /// The short name of the pipeline, or the rule set; `-` for all.
    pub pipeline: &'static str,
    /// The locality: The locality `high` or `low`, or `-` for both.
    pub locality: &'static str,
    /// The measured configuration, such as `Megaflow 1x32K`.
    pub configuration: &'static str,
    /// The value as it was published.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
    /// The figure, table or section of the paper.
    pub place: &'static str,
}

impl Figure {
    /// Returns the figure of a metric for a pipeline, a locality and a configuration.
    #[must_use]
    pub fn find(
        metric: &str,
        pipeline: &str,
        locality: &str,
        configuration: &str,
    ) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| {
            figure.metric == metric
                && figure.pipeline == pipeline
                && figure.locality == locality
                && figure.configuration == configuration
        })
    }
}

/// All published figures.
pub static FIGURES: LazyLock<Vec<Figure>> =
    LazyLock::new(|| TABLE.lines().filter_map(row).collect());

/// The published figures, one in a line.
static TABLE: &str = include_str!("../data/vswitch-thesis.tsv");

/// Parses a line of the table of published figures.
fn row(line: &'static str) -> Option<Figure> {
    let mut words = line.split('\t');
    let metric = words.next().filter(|word| !word.starts_with('#'))?;
    let (pipeline, locality, configuration) = (words.next()?, words.next()?, words.next()?);
    let value = words.next()?.parse().ok()?;
    let (unit, place) = (words.next()?, words.next()?);
    Some(Figure { metric, pipeline, locality, configuration, value, unit, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline_file::{BUILTIN, PipelineFile};

    #[test]
    fn published_figures_are_valid_and_unique() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(FIGURES.len(), lines);
        for (index, figure) in FIGURES.iter().enumerate() {
            let again =
                Figure::find(figure.metric, figure.pipeline, figure.locality, figure.configuration);
            assert_eq!(again, FIGURES.get(index), "{figure:?}");
        }
    }

    #[test]
    fn pipelines_and_figures_agree() {
        for builtin in BUILTIN {
            let pipeline = PipelineFile::parse(builtin.json).unwrap();
            let published = pipeline.published_counts.unwrap();
            let of = |metric| Figure::find(metric, builtin.name, "-", "-").unwrap().value;
            assert_eq!(of("tables"), published.tables as f64);
            assert_eq!(of("traversals"), published.traversals as f64);
            let rules = Figure::find("rules", builtin.name, "-", "10K filters");
            let rules = rules.map(|figure| figure.value);
            assert_eq!(rules, pipeline.published_rules.map(f64::from));
        }
    }
}
