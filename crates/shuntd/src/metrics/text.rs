//! A writer of the Prometheus text format.

use std::{fmt, ops::RangeInclusive};

use shunt_switch::LatencyStatus;

/// A metric with one value for each status `T`: name, type, help text and value.
pub(super) type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> MetricValue);

/// The labels of a metric value.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The number that a line of a metric shows.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum MetricValue {
    Count(u64),
    Average(f64),
    /// The value is not known, so the metric is omitted.
    Unknown,
}

/// The metrics text so far; new values belong to the last family.
#[derive(Default)]
pub(super) struct MetricsText {
    /// The lines of metrics so far.
    text: String,
    /// The name of the last metric family.
    family: &'static str,
}

/// Bounds of histograms as powers of two, in nanoseconds: 1 us to 17 s.
const BOUNDS: RangeInclusive<u32> = 10..=34;

impl MetricsText {
    /// Returns the metrics text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Starts a family of values.
    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.family = name;
    }

    /// Adds a value to the last family.
    pub(super) fn value(&mut self, labels: &[(&str, &str)], value: impl fmt::Display) {
        self.sample("", labels, value);
    }

    /// Adds a value to the last family; `suffix` names a series of a histogram.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, own)| format!("{name}=\"{}\"", escape(own))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.text += &format!("{}{suffix}{labels} {value}\n", self.family);
    }

    /// Adds families with one value each; families with unknown values are omitted.
    pub(super) fn singles<T>(&mut self, status: &T, metrics: &[Metric<T>]) {
        self.families(&[(Vec::new(), status)], metrics);
    }

    /// Adds families with one value for each status; unknown values are omitted.
    pub(super) fn families<T>(&mut self, statuses: &[(Labels<'_>, &T)], metrics: &[Metric<T>]) {
        for (name, kind, help, value) in metrics {
            let known: Vec<_> = statuses
                .iter()
                .map(|(labels, status)| (labels, value(status)))
                .filter(|(_, value)| *value != MetricValue::Unknown)
                .collect();
            if !known.is_empty() {
                self.family(name, kind, help);
                known.iter().for_each(|(labels, value)| self.value(labels, value));
            }
        }
    }

    /// Adds a value for each pair of a name and a count.
    pub(super) fn pairs(&mut self, label: &str, pairs: &[(impl AsRef<str>, u64)]) {
        pairs.iter().for_each(|(name, count)| self.value(&[(label, name.as_ref())], count));
    }

    /// Adds a histogram of times.
    ///
    /// The bounds of its buckets are constant, because Prometheus compares series over time.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str, times: &LatencyStatus) {
        self.family(name, "histogram", help);
        for bound in BOUNDS.map(|power| 1 << power) {
            let below = times.buckets.iter().filter(|(own, _)| *own <= bound);
            let below: u64 = below.map(|(_, count)| count).sum();
            self.sample("_bucket", &[("le", &seconds(bound))], below);
        }
        self.sample("_bucket", &[("le", "+Inf")], times.count);
        self.sample("_sum", &[], seconds(times.sum_ns));
        self.sample("_count", &[], times.count);
    }
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<Option<u64>> for MetricValue {
    fn from(count: Option<u64>) -> Self {
        count.map_or(Self::Unknown, Self::Count)
    }
}

impl From<f64> for MetricValue {
    fn from(average: f64) -> Self {
        Self::Average(average)
    }
}

impl fmt::Display for MetricValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(formatter),
            Self::Average(average) => average.fmt(formatter),
            Self::Unknown => formatter.write_str("NaN"),
        }
    }
}

/// Escapes the characters of a label value that would end the label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns a time in nanoseconds as text in seconds.
pub(super) fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}
