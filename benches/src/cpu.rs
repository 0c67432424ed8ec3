//! CPU time and memory of threads and processes, as the kernel accounts them.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
pub use shunt_kernels::cpu::measure_ns;

/// Returns the threads of a process.
fn threads(id: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten();
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the id of the thread of process `id` with the name prefix `name`.
#[must_use]
pub fn find_thread(id: u32, name: &str) -> Option<u32> {
    threads(id).into_iter().find(|task| {
        fs::read_to_string(format!("/proc/{id}/task/{task}/comm"))
            .is_ok_and(|comm| comm.starts_with(name))
    })
}

/// Returns the nanoseconds that a thread has run so far.
///
/// # Panics
///
/// If there is no such thread.
#[must_use]
pub fn run_ns(id: u32, thread: u32) -> u64 {
    find_run_ns(id, thread).unwrap_or_else(|| panic!("process {id} has no thread {thread}"))
}

fn find_run_ns(id: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the nanoseconds of all threads with the name prefix `name` so far.
#[must_use]
pub fn threads_ns(id: u32, name: &str) -> u64 {
    let named = threads(id).into_iter().filter(|task| {
        fs::read_to_string(format!("/proc/{id}/task/{task}/comm"))
            .is_ok_and(|comm| comm.starts_with(name))
    });
    named.filter_map(|thread| find_run_ns(id, thread)).sum()
}

/// Binds the calling thread to all CPUs but one, which belongs to another thread.
///
/// Without effect on a machine with one CPU.
pub fn avoid(cpu: usize) {
    let (own, mut set) = (Pid::from_raw(0), CpuSet::new());
    for other in (0..CpuSet::count()).filter(|other| *other != cpu) {
        let _ = set.set(other);
    }
    // The system ignores CPUs that do not exist, and refuses a set without any that does.
    let _ = sched_setaffinity(own, &set);
}

/// Waits at most half a minute until the other threads of this process are idle.
pub fn wait_until_idle() {
    let look = Duration::from_millis(100);
    for _ in 0..300 {
        let account = Account::open(std::process::id());
        std::thread::sleep(look);
        if account.spent().share() < IDLE_PERCENT {
            return;
        }
    }
}

/// A process that uses less than this share of a CPU counts as idle.
const IDLE_PERCENT: f64 = 5.0;

/// CPU time of all threads of a process since a start time.
#[derive(Debug)]
pub struct Account {
    id: u32,
    run_ns: u64,
    since: Instant,
}

/// CPU time and wall time since the start.
#[derive(Clone, Copy, Debug)]
pub struct TimeSpent {
    /// Nanoseconds that the threads ran.
    pub run_ns: f64,
    /// Seconds of wall time.
    pub seconds: f64,
}

impl TimeSpent {
    /// Returns the share of one CPU in percent.
    #[must_use]
    pub fn share(self) -> f64 {
        self.run_ns / self.seconds / 1e7
    }
}

impl Account {
    /// Starts the account of a process.
    #[must_use]
    pub fn open(id: u32) -> Self {
        Self { id, run_ns: process_ns(id), since: Instant::now() }
    }

    /// Returns the time spent since the start.
    #[must_use]
    pub fn spent(&self) -> TimeSpent {
        let seconds = self.since.elapsed().as_secs_f64();
        TimeSpent { run_ns: process_ns(self.id).saturating_sub(self.run_ns) as f64, seconds }
    }
}

fn process_ns(id: u32) -> u64 {
    threads(id).into_iter().filter_map(|thread| find_run_ns(id, thread)).sum()
}

/// Returns the peak resident memory of a process in bytes.
#[must_use]
pub fn most_resident_bytes(id: u32) -> f64 {
    status_bytes(id, "VmHWM:")
}

/// Returns the bytes of the huge pages of a process,
/// which resident memory excludes.
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

/// Returns the resident memory of a process in bytes.
#[must_use]
pub fn resident_bytes(id: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or_default() * 4096.0
}
