//! The metrics of the process and its threads.
//!
//! The kernel measures the CPU time of threads, so packet threads read no clock for it.

use std::{collections::BTreeMap, fs, io, path::Path};

use shunt_switch::{ThreadState, ThreadStatus};

use super::text::{MetricsText, seconds};

/// Returns the metrics of the process and its threads.
///
/// `cpu_times` has the CPU time of each thread in nanoseconds.
pub(crate) fn threads(threads: &[ThreadStatus], cpu_times: &BTreeMap<String, u64>) -> String {
    let mut text = MetricsText::default();
    text.family("shunt_build_info", "gauge", "Always 1; the label has the version of the daemon.");
    text.value(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(
        "shunt_thread_running",
        "gauge",
        "1 while a thread runs, 0 if it panicked or was stopped.",
    );
    for thread in threads {
        let is_running = thread.state == ThreadState::Running;
        text.value(&[("thread", &label(&thread.name))], u64::from(is_running));
    }
    text.family(
        "shunt_thread_iterations_total",
        "counter",
        "Poll loop iterations of a packet thread, idle ones included.",
    );
    for (name, count) in threads.iter().filter_map(|own| Some((&own.name, own.iterations?))) {
        text.value(&[("thread", &label(name))], count);
    }
    text.family(
        "shunt_thread_cpu_seconds_total",
        "counter",
        "CPU time of a thread, or of all threads of one name; the rate of this metric is the busy share.",
    );
    for (thread, time) in cpu_times {
        text.value(&[("thread", thread)], seconds(*time));
    }
    text.into_text()
}

/// Returns the label of a thread, made from its name in the status.
fn label(name: &str) -> String {
    match (name.strip_prefix(PACKET), name.strip_prefix(TRAINER)) {
        (Some(number), _) => format!("packet-{number}"),
        (_, Some(number)) => format!("trainer-{number}"),
        _ => name.strip_suffix(" thread").unwrap_or(name).to_owned(),
    }
}

/// The start of the names of packet threads in the status.
const PACKET: &str = "packet thread ";

/// The start of the names of trainer threads in the status.
const TRAINER: &str = "trainer of packet thread ";

/// The start of the names of the daemon's threads in the kernel.
const PREFIX: &str = "shunt-";

/// Returns the CPU time of each named thread of this process in nanoseconds.
///
/// The times of threads with the same name are added. Empty if the kernel does not provide the
/// times.
pub(crate) fn cpu_times() -> BTreeMap<String, u64> {
    cpu_times_in(Path::new("/proc/self/task")).unwrap_or_default()
}

/// Reads `comm` and `schedstat` of each thread (proc(5)).
fn cpu_times_in(folder: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(folder)? {
        let thread = thread?.path();
        // A thread may end while it is read.
        let read = |file| fs::read_to_string(thread.join(file)).unwrap_or_default();
        let (name, times_text) = (read("comm"), read("schedstat"));
        let time = times_text.split(' ').next().and_then(|time| time.parse::<u64>().ok());
        if let (Some(name), Some(time)) = (name.trim_end().strip_prefix(PREFIX), time) {
            *times.entry(name.to_owned()).or_default() += time;
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_name_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        let threads = [
            ("1", "shuntd\n", "5 0 1\n"),
            ("2", "shunt-control\n", "7 0 1\n"),
            ("3", "shunt-control\n", "8 0 1\n"),
            ("4", "shunt-packet-0\n", "9 0 1\n"),
            ("5", "shunt-ovsdb\n", "\n"),
        ];
        for (id, name, times) in threads {
            let own = folder.path().join(id);
            fs::create_dir(&own).unwrap();
            fs::write(own.join("comm"), name).unwrap();
            fs::write(own.join("schedstat"), times).unwrap();
        }
        let times = cpu_times_in(folder.path()).unwrap();
        assert_eq!(times, BTreeMap::from([("control".into(), 15), ("packet-0".into(), 9)]));
    }

    #[test]
    fn a_thread_has_one_label() {
        assert_eq!(label("packet thread 12"), "packet-12");
        assert_eq!(label("eviction thread"), "eviction");
        assert_eq!(label("trainer of packet thread 3"), "trainer-3");
    }
}
