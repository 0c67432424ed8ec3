//! The share of a CPU that one thread of a process had, from the scheduler's own account.

use std::fs;

/// The id of the thread of process `id` whose name begins with `name`.
#[must_use]
pub fn find_thread(id: u32, name: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).ok()?;
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).find(|task: &u32| {
        fs::read_to_string(format!("/proc/{id}/task/{task}/comm"))
            .is_ok_and(|comm| comm.starts_with(name))
    })
}

/// Nanoseconds that a thread has run so far.
///
/// # Panics
///
/// When there is no such thread.
#[must_use]
pub fn run_ns(id: u32, thread: u32) -> u64 {
    let path = format!("/proc/{id}/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or_default()
}
