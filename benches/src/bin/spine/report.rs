//! The figures, as a table and as JSON.

use std::{fs, path::Path};

use serde_json::json;

use crate::Sample;

/// The samples of one workload.
pub(crate) struct Row {
    name: &'static str,
    pub(crate) ours: Vec<Sample>,
    pub(crate) rival: Vec<Sample>,
}

impl Row {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, ours: Vec::new(), rival: Vec::new() }
    }

    /// Speed beside the rival's: its cycles per packet by ours.
    fn ratio(&self) -> Option<f64> {
        Some(median(&self.rival)?.cycles / median(&self.ours)?.cycles)
    }
}

/// The sample with the median of cycles.
fn median(samples: &[Sample]) -> Option<Sample> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
    sorted.get(sorted.len() / 2).copied()
}

fn text(samples: &[Sample]) -> String {
    let Some(middle) = median(samples) else { return "not measured".to_owned() };
    let least = samples.iter().map(|sample| sample.cycles).fold(f64::INFINITY, f64::min);
    let most = samples.iter().map(|sample| sample.cycles).fold(0.0, f64::max);
    format!(
        "{:.0} cycles ({least:.0} to {most:.0}), {:.1} Mpps at {:.0} % of a CPU",
        middle.cycles,
        middle.rate / 1e6,
        middle.share * 100.0
    )
}

/// Prints the table.
pub(crate) fn print(rows: &[Row]) {
    println!("| workload | Shunt | OVS-DPDK | speed ratio |\n| --- | --- | --- | --- |");
    for row in rows {
        let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        println!("| {} | {} | {} | {ratio} |", row.name, text(&row.ours), text(&row.rival));
    }
}

/// Writes the JSON that documents quote.
pub(crate) fn write(path: &Path, rows: &[Row]) {
    let values = rows.iter().map(|row| {
        json!({
            "name": row.name,
            "metric": "TSC cycles x CPU share per packet",
            "unit": "cycles",
            "value": median(&row.ours).map(|sample| sample.cycles.round()),
            "rival": "OVS-DPDK (Debian 12), default caches",
            "rival_value": median(&row.rival).map(|sample| sample.cycles.round()),
            "ratio": row.ratio().map(|ratio| (ratio * 100.0).round() / 100.0),
            "published": null,
        })
    });
    let experiment = json!({
        "experiment": "spine",
        "source": "one L4 rule, capture in, null out, one core",
        "command": "cargo xtask bench spine",
        "machine": machine(),
        "rows": values.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&experiment).unwrap_or_default() + "\n";
    let folder = path.parent().unwrap_or(path);
    if let Err(error) = fs::create_dir_all(folder).and_then(|()| fs::write(path, text)) {
        println!("{} was not written: {error}", path.display());
    }
}

fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} x {}", model.map_or("unknown CPU", |(_, name)| name))
}
