//! The share of a CPU that a thread or a process had, from the scheduler's own account.

use std::{
    fs,
    time::{Duration, Instant},
};

pub use shunt_kernels::cpu::timed;

/// The threads of a process.
fn threads(id: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The id of the thread of process `id` whose name begins with `name`.
#[must_use]
pub fn find_thread(id: u32, name: &str) -> Option<u32> {
    threads(id).into_iter().find(|task| {
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
    find_run_ns(id, thread).unwrap_or_else(|| panic!("process {id} has no thread {thread}"))
}

fn find_run_ns(id: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Nanoseconds that all threads of a process whose names begin with `name` have run so far.
#[must_use]
pub fn threads_ns(id: u32, name: &str) -> u64 {
    let named = threads(id).into_iter().filter(|task| {
        fs::read_to_string(format!("/proc/{id}/task/{task}/comm"))
            .is_ok_and(|comm| comm.starts_with(name))
    });
    named.filter_map(|thread| find_run_ns(id, thread)).sum()
}

/// Waits until the other threads of this process have hardly anything left to do, for half a minute at
/// most.
pub fn rest() {
    let look = Duration::from_millis(100);
    for _ in 0..300 {
        let account = Account::open(std::process::id());
        std::thread::sleep(look);
        if account.spent().share() < IDLE_PERCENT {
            return;
        }
    }
}

/// A process that uses less of a CPU is idle.
const IDLE_PERCENT: f64 = 5.0;

/// What all threads of a process used since some moment.
#[derive(Debug)]
pub struct Account {
    id: u32,
    run_ns: u64,
    since: Instant,
}

/// CPU and time that passed.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Nanoseconds that the threads ran.
    pub run_ns: f64,
    /// Seconds of wall time.
    pub seconds: f64,
}

impl Spent {
    /// The share of one CPU, in percent.
    #[must_use]
    pub fn share(self) -> f64 {
        self.run_ns / self.seconds / 1e7
    }
}

impl Account {
    /// Opens the account of a process.
    #[must_use]
    pub fn open(id: u32) -> Self {
        Self { id, run_ns: process_ns(id), since: Instant::now() }
    }

    /// What was spent since it was opened.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let seconds = self.since.elapsed().as_secs_f64();
        Spent { run_ns: process_ns(self.id).saturating_sub(self.run_ns) as f64, seconds }
    }
}

fn process_ns(id: u32) -> u64 {
    threads(id).into_iter().filter_map(|thread| find_run_ns(id, thread)).sum()
}

/// Bytes of memory that a process has had at most.
#[must_use]
pub fn most_resident_bytes(id: u32) -> f64 {
    status_bytes(id, "VmHWM:")
}

/// Bytes of huge pages that a process has, which are no part of what is resident.
#[must_use]
pub fn huge_bytes(id: u32) -> f64 {
    status_bytes(id, "HugetlbPages:")
}

fn status_bytes(id: u32, name: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0
}

/// Bytes of memory that a process has.
#[must_use]
pub fn resident_bytes(id: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0
}
