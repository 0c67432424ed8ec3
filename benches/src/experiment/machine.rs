//! What machine this is, in a line.

use std::{env, fs};

/// The CPUs of this machine, and whether heaps are in huge pages.
#[must_use]
pub fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    let heaps = if are_heaps_huge() { ", heaps in huge pages" } else { "" };
    format!("{count} x {}{heaps}", model.map_or("unknown CPU", |(_, name)| name))
}

/// Whether the C library asks for huge pages, as the unit of the daemon has it do, and the kernel gives
/// them.
fn are_heaps_huge() -> bool {
    let is_asked = env::var("GLIBC_TUNABLES").is_ok_and(|all| all.contains("malloc.hugetlb=1"));
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    is_asked && setting.is_ok_and(|text| !text.contains("[never]"))
}
