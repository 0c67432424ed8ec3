//! Starts DPDK in this process, once, with memory and without devices.
//!
//! The Environment Abstraction Layer (EAL) reserves the memory and loads the drivers. The EAL
//! probes no device: each port attaches the device that it uses. A process cannot repeat a failed
//! start, so this module chooses the kind of memory before the start.
//!
//! Source: DPDK Programmer's Guide, "Environment Abstraction Layer"; "EAL parameters" of the Linux
//! guide.

use std::{ffi::CString, path::Path, thread};

use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::{
    error::DpdkError,
    huge_pages::{HugePageSize, huge_page_sizes},
    log::Request,
    options::{EalOptions, HugePages},
    shim::{self, DpdkErrno, Started},
};

/// The result of the start of DPDK; `None` before the start.
static STARTED: Mutex<Option<Result<Started, DpdkError>>> = Mutex::new(None);

/// Access to DPDK, which has started in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal(pub(crate) Started);

/// Returns the name and version of the linked DPDK, such as `DPDK 22.11.11`.
#[must_use]
pub fn version() -> &'static str {
    shim::version()
}

impl Eal {
    /// Starts DPDK, unless DPDK has started before.
    ///
    /// Options of later calls have no effect.
    ///
    /// # Errors
    ///
    /// If DPDK does not start. After an error about missing huge pages, another start is possible;
    /// any other error is final.
    pub fn start(options: &EalOptions) -> Result<Self, DpdkError> {
        let mut started = STARTED.lock();
        if let Some(result) = &*started {
            return result.clone().map(Self);
        }
        let arguments = arguments(options, &huge_page_sizes())?;
        let result = init(&arguments);
        if result.is_ok() {
            info!(arguments = arguments.join(" "), "DPDK: started {}", version());
        }
        started.insert(result).clone().map(Self)
    }

    /// Returns access to DPDK if it has started.
    #[must_use]
    pub fn find() -> Option<Self> {
        STARTED.lock().as_ref().and_then(|result| result.as_ref().ok()).copied().map(Self)
    }
}

/// Starts DPDK on a separate thread.
///
/// DPDK binds this thread to CPUs, and the threads that it creates inherit the CPUs.
fn init(arguments: &[String]) -> Result<Started, DpdkError> {
    let mut strings = vec![c"shuntd".to_owned()];
    for argument in arguments {
        let wrong = |_| DpdkError::Argument { argument: argument.clone() };
        strings.push(CString::new(argument.as_str()).map_err(wrong)?);
    }
    let failed = |reason| DpdkError::Start { reason };
    let request = Request::begin();
    let start = thread::Builder::new().name("shunt-eal".to_owned()).spawn(|| shim::start(strings));
    let start = start.map_err(|error| failed(error.to_string()))?;
    match start.join() {
        Ok(Ok(started)) => Ok(started),
        Ok(Err(DpdkErrno(errno))) => Err(failed(request.reason(errno))),
        Err(_) => Err(failed("its thread panicked".to_owned())),
    }
}

/// Returns the command-line arguments of the EAL.
fn arguments(options: &EalOptions, sizes: &[HugePageSize]) -> Result<Vec<String>, DpdkError> {
    let own = &options.extra_args;
    let mut arguments = vec!["--no-telemetry".to_owned()];
    if !has_any(own, &["--lcores", "-l", "-c", "--lcore"]) {
        // DPDK needs one nominal thread, which runs nothing. This thread may run on each CPU of the
        // daemon.
        arguments.push(format!("--lcores=0@({})", own_cpus()));
    }
    if !has_any(own, &["-a", "-b", "--allow", "--block", "--no-pci"]) {
        // With a list of allowed cards, the scan of the PCI bus takes no other card. No card has
        // this address.
        let has_pci = Path::new("/sys/bus/pci/devices").exists();
        arguments.extend(match has_pci {
            true => ["-a".to_owned(), "0000:00:00.0".to_owned()].to_vec(),
            false => vec!["--no-pci".to_owned()],
        });
    }
    arguments.extend(memory_kind(options, sizes)?.iter().map(|word| (*word).to_owned()));
    if !has_any(own, &["--socket-mem"]) {
        arguments.extend(["-m".to_owned(), options.memory_mib.to_string()]);
    }
    arguments.extend(own.iter().cloned());
    Ok(arguments)
}

/// Returns whether any of the arguments has one of these names.
fn has_any(arguments: &[String], names: &[&str]) -> bool {
    arguments.iter().any(|given| {
        let name = given.split_once('=').map_or(given.as_str(), |(name, _)| name);
        // A short option may have its value in the same word, such as `-l0,1`.
        names.iter().any(|own| name == *own || (own.len() == 2 && given.starts_with(own)))
    })
}

/// Returns the arguments that choose the kind of memory.
///
/// With these arguments DPDK leaves no files behind, unless the configuration adds `--legacy-mem`.
fn memory_kind(
    options: &EalOptions,
    sizes: &[HugePageSize],
) -> Result<&'static [&'static str], DpdkError> {
    let own = &options.extra_args;
    refuse_contradictions(own, options.huge_pages)?;
    if has_any(own, &["--no-huge"]) {
        return Ok(&["--no-shconf"]);
    }
    // The operator's amounts for NUMA nodes may differ from `memory_mib`, which is then not
    // checked.
    let has_nodes = has_any(own, &["--socket-mem"]);
    if has_any(own, &["--in-memory", "--legacy-mem"]) {
        if options.huge_pages == HugePages::Required && !has_nodes {
            uses_huge_pages(options, sizes)?;
        }
        return Ok(&[]);
    }
    // DPDK refuses amounts for NUMA nodes that it does not find.
    match has_nodes || uses_huge_pages(options, sizes)? {
        true => Ok(&["--in-memory"]),
        false => Ok(&["--no-huge", "--no-shconf"]),
    }
}

/// Refuses memory arguments of the operator that contradict other options.
///
/// DPDK would ignore the option, or fail to start, which is final.
fn refuse_contradictions(own: &[String], huge_pages: HugePages) -> Result<(), DpdkError> {
    /// The problem of an option that contradicts required huge pages.
    const REQUIRED: &str = "contradicts `huge_pages = \"required\"`";
    /// The problem of an option that contradicts memory without huge pages.
    const OFF: &str = "contradicts `huge_pages = \"off\"`";
    let is_off = huge_pages == HugePages::Off;
    let is_required = huge_pages == HugePages::Required;
    let has_ordinary = has_any(own, &["--no-huge"]);
    let rules = [
        (true, "-m", "contradicts `memory_mib`", "`memory_mib`"),
        (is_required, "--no-huge", REQUIRED, "`huge_pages`"),
        (is_off, "--socket-mem", OFF, "`huge_pages`"),
        (is_off, "--in-memory", OFF, "`huge_pages`"),
        (is_off, "--legacy-mem", OFF, "`huge_pages`"),
        (has_ordinary, "--socket-mem", "contradicts `--no-huge`", "`memory_mib`"),
    ];
    for (applies, argument, conflict, remedy) in rules {
        if applies && has_any(own, &[argument]) {
            return Err(DpdkError::ExtraArgument { argument, conflict, remedy });
        }
    }
    Ok(())
}

/// Returns whether DPDK uses huge pages.
fn uses_huge_pages(options: &EalOptions, sizes: &[HugePageSize]) -> Result<bool, DpdkError> {
    let wanted_mib = options.memory_mib;
    // DPDK prefers pages of a single size, so one size must suffice.
    let free_mib = sizes.iter().map(HugePageSize::free_mib).max().unwrap_or(0);
    let is_enough = free_mib >= u64::from(wanted_mib);
    match options.huge_pages {
        HugePages::Off => Ok(false),
        HugePages::Auto | HugePages::Required if is_enough => Ok(true),
        HugePages::Auto => {
            warn!(
                free_mib,
                wanted_mib,
                "DPDK: too few huge pages, so it uses ordinary ones, which network cards cannot use; \
                 run `sysctl -w vm.nr_hugepages={}` before the start",
                pages_to_reserve(wanted_mib, sizes)
            );
            Ok(false)
        }
        HugePages::Required => {
            let pages = pages_to_reserve(wanted_mib, sizes);
            Err(DpdkError::HugePages { wanted_mib, free_mib, pages })
        }
    }
}

/// Returns the number of 2 MiB pages to reserve, including pages in use.
fn pages_to_reserve(wanted_mib: u32, sizes: &[HugePageSize]) -> u64 {
    let small = sizes.iter().find(|size| size.page_kib == 2048);
    let used = small.map_or(0, |size| size.total.saturating_sub(size.free));
    u64::from(wanted_mib).div_ceil(2).saturating_add(used)
}

/// Returns the CPUs of this process as a list, such as `0,2,3`.
fn own_cpus() -> String {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    let cpus = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    let cpus: Vec<String> = cpus.map(|cpu| cpu.to_string()).collect();
    if cpus.is_empty() { "0".to_owned() } else { cpus.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a size of huge pages with some free pages.
    fn size(free: u64) -> HugePageSize {
        HugePageSize { page_kib: 2048, total: 200, free }
    }

    /// Returns the arguments of DPDK for some options.
    fn words(options: &EalOptions, free: u64) -> String {
        arguments(options, &[size(free)]).map_or_else(|error| error.to_string(), |a| a.join(" "))
    }

    #[test]
    fn free_huge_pages_choose_the_memory() {
        let auto = EalOptions::default();
        assert!(words(&auto, 128).contains("--in-memory -m 256"));
        assert!(words(&auto, 127).contains("--no-huge --no-shconf -m 256"));
        let off = EalOptions { huge_pages: HugePages::Off, ..auto.clone() };
        assert!(words(&off, 128).contains("--no-huge"));
        let required = EalOptions { huge_pages: HugePages::Required, ..auto };
        assert!(words(&required, 128).contains("--in-memory"));
        let error = words(&required, 100);
        assert!(error.contains("256 MiB of huge pages, and 200 MiB are free"), "{error}");
        assert!(error.contains("vm.nr_hugepages=228"), "128 pages and those in use: {error}");
    }

    /// Returns options with arguments of the operator.
    fn extra(words: &[&str]) -> EalOptions {
        let extra_args = words.iter().map(|word| (*word).to_owned()).collect();
        EalOptions { extra_args, ..EalOptions::default() }
    }

    #[test]
    fn own_arguments_replace_those_that_contradict() {
        let plain = words(&extra(&["--iova-mode=va"]), 0);
        assert!(plain.contains("--lcores=0@(") && plain.ends_with("--iova-mode=va"), "{plain}");
        let own = words(&extra(&["-l0", "--in-memory", "--allow=0000:01:00.0"]), 0);
        assert_eq!(own, "--no-telemetry -m 256 -l0 --in-memory --allow=0000:01:00.0");
    }

    /// With `--legacy-mem`, DPDK leaves files behind.
    ///
    /// DPDK must then get neither `--in-memory` nor `--no-shconf`.
    #[test]
    fn own_arguments_for_memory_agree_with_huge_pages() {
        use HugePages::{Auto, Off, Required};
        let cases = [
            ("--socket-mem=64,64", Auto, "--no-telemetry --in-memory --socket-mem=64,64"),
            ("--socket-mem=64,64", Required, "--no-telemetry --in-memory --socket-mem=64,64"),
            ("--socket-mem=64,64", Off, "`--socket-mem`, which contradicts `huge_pages = \"off\"`"),
            ("--no-huge", Auto, "--no-telemetry --no-shconf -m 256 --no-huge"),
            ("--no-huge", Required, "`--no-huge`, which contradicts `huge_pages = \"required\"`"),
            ("--no-huge", Off, "--no-telemetry --no-shconf -m 256 --no-huge"),
            ("--in-memory", Auto, "--no-telemetry -m 256 --in-memory"),
            ("--in-memory", Required, "--no-telemetry -m 256 --in-memory"),
            ("--in-memory", Off, "`--in-memory`, which contradicts `huge_pages = \"off\"`"),
            ("--legacy-mem", Auto, "--no-telemetry -m 256 --legacy-mem"),
            ("--legacy-mem", Required, "--no-telemetry -m 256 --legacy-mem"),
            ("--legacy-mem", Off, "`--legacy-mem`, which contradicts `huge_pages = \"off\"`"),
            ("-m512", Auto, "`-m`, which contradicts `memory_mib`"),
            ("-m512", Required, "`-m`, which contradicts `memory_mib`"),
            ("-m512", Off, "`-m`, which contradicts `memory_mib`"),
        ];
        for (argument, huge_pages, expected) in cases {
            let own = EalOptions { huge_pages, ..extra(&["-l0", "--no-pci", argument]) };
            let found = words(&own, 128).replace("-l0 --no-pci ", "");
            assert!(found.contains(expected), "{argument} with {huge_pages:?}: {found}");
        }
    }

    /// DPDK cannot be started again after a start without enough memory, so free pages
    /// are counted first.
    #[test]
    fn own_arguments_keep_the_check_of_required_pages() {
        for argument in ["--in-memory", "--legacy-mem"] {
            let own = EalOptions { huge_pages: HugePages::Required, ..extra(&[argument]) };
            let error = words(&own, 127);
            assert!(error.contains("256 MiB of huge pages, and 254 MiB are free"), "{error}");
        }
        let error = words(&extra(&["--no-huge", "--socket-mem=64"]), 128);
        assert!(error.contains("`--socket-mem`, which contradicts `--no-huge`"), "{error}");
    }
}
