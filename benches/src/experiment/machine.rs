//! A one-line description of this machine.

use std::fs;

/// Returns the number and the model of the CPUs.
#[must_use]
pub fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} CPUs of {}", model.map_or("unknown CPU", |(_, name)| name))
}
