//! Statistics of the host and of its daemons, for the column `statistics` of `Open_vSwitch`.
//!
//! The keys and the formats are those of ovs-vswitchd.conf.db(5). A value that cannot be determined
//! is omitted. Sources: proc(5), sysinfo(2), statvfs(3). Memory has the unit KiB, and times are in milliseconds.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::{statvfs::statvfs, sysinfo::sysinfo},
    time::{ClockId, clock_gettime},
};

use crate::lock_file::record_owner;

/// Maximum number of pid files that are read.
const PROCESSES_MAX: usize = 64;

/// Maximum number of file systems in the value.
const FILE_SYSTEMS_MAX: usize = 256;

/// Maximum number of bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Milliseconds of a tick of `/proc/PID/stat`; Linux has 100 ticks in a second.
const TICK_MS: u64 = 10;

/// The name of the daemon's pid file in its run directory.
const OWN_PID_FILE: &str = "shuntd.pid";

/// Returns the statistics of the host, and of daemons with a pid file in `run_dir`.
pub(crate) fn read(run_dir: Option<&Path>) -> BTreeMap<String, String> {
    let file = |path: &str| read_text(Path::new(path)).unwrap_or_default();
    let of_host = [
        ("cpu", cpus(&file("/sys/devices/system/cpu/online"))),
        ("load_average", load_average()),
        ("memory", memory(&file("/proc/meminfo"))),
        ("file_systems", file_systems(&file("/proc/self/mounts"), capacity)),
    ];
    let of_host = of_host.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    of_host.chain(run_dir.map(processes).unwrap_or_default()).collect()
}

/// Returns the start of a file as text.
fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the number of CPUs in a list of ranges, such as `0-3,8`.
pub(crate) fn cpus(list: &str) -> Option<String> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let [first, last] = [first, last].map(|number| number.parse::<u32>().ok());
        Some(u64::from(last?.checked_sub(first?)?) + 1)
    };
    let counts: Option<Vec<u64>> = list.trim().split(',').map(range).collect();
    let sum = counts?.into_iter().try_fold(0_u64, u64::checked_add)?;
    Some(sum.to_string())
}

/// Returns the load averages of 1, 5 and 15 minutes.
fn load_average() -> Option<String> {
    let (one, five, fifteen) = sysinfo().ok()?.load_average();
    Some(format!("{one:.2},{five:.2},{fifteen:.2}"))
}

/// Returns the time since the start of the system, with the time in suspend.
fn uptime() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// Returns the memory of the host, from `/proc/meminfo`.
///
/// The values are: total, used, caches, swap in total, swap in use.
pub(crate) fn memory(text: &str) -> Option<String> {
    let find = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let total = find("MemTotal")?;
    let used = total.saturating_sub(find("MemFree")?);
    let caches = find("Buffers").unwrap_or(0).saturating_add(find("Cached").unwrap_or(0));
    let swap = find("SwapTotal").unwrap_or(0);
    let swap_used = swap.saturating_sub(find("SwapFree").unwrap_or(0));
    Some(format!("{total},{used},{caches},{swap},{swap_used}"))
}

/// Returns the local file systems that can be written, from `/proc/self/mounts`.
///
/// Each has its mount point, its size and the size in use. `capacity` returns both sizes of a mount
/// point; `None`: the file system is omitted.
pub(crate) fn file_systems(
    mounts: &str,
    mut capacity: impl FnMut(&str) -> Option<[u128; 2]>,
) -> Option<String> {
    let system = |line: &str| {
        let mut words = line.split_whitespace();
        let (device, folder, options) = (words.next()?, words.next()?, words.nth(1)?);
        if !device.starts_with("/dev") || !options.split(',').any(|option| option == "rw") {
            return None;
        }
        let folder = unescaped(folder)?;
        let [total, used] = capacity(&folder)?;
        let is_separator = |own: char| own == ',' || own.is_whitespace();
        Some(format!("{},{total},{used}", folder.replace(is_separator, "_")))
    };
    let all: Vec<_> = mounts.lines().filter_map(system).take(FILE_SYSTEMS_MAX).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Returns a mount point without the escapes of proc(5), such as `\040` (a space).
fn unescaped(word: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let is_code = |own: &&[u8]| *first == b'\\' && own.iter().all(u8::is_ascii_digit);
        let digits = tail.get(..3).filter(is_code);
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// Returns the size of the file system at a mount point, and its used part, in KiB.
fn capacity(folder: &str) -> Option<[u128; 2]> {
    let found = statvfs(folder).ok()?;
    let kib = |blocks| u128::from(found.fragment_size()) * u128::from(blocks) / 1024;
    let total = kib(found.blocks());
    Some([total, total.saturating_sub(kib(found.blocks_free()))])
}

/// Returns an entry for each pid file of a running process in a run directory.
fn processes(run_dir: &Path) -> BTreeMap<String, String> {
    let inode = |path: &Path| {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    let own = inode(&run_dir.join(OWN_PID_FILE));
    let uptime = uptime().unwrap_or_default();
    let files = fs::read_dir(run_dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|own| own == "pid"));
    let entry = |path: PathBuf| {
        let name = path.file_stem()?.to_str()?;
        let file = inode(&path)?;
        // Opening and closing the own pid file, also by a link, would release its record lock.
        let process = if Some(file) == own { std::process::id() } else { owner(&path)? };
        let file = |name: &str| read_text(Path::new(&format!("/proc/{process}/{name}")));
        let value = || process_value(&file("stat")?, &file("status")?, uptime);
        // As in Open vSwitch, the value is empty if it cannot be determined.
        Some((format!("process_{name}"), value().unwrap_or_default()))
    };
    files.take(PROCESSES_MAX).filter_map(entry).collect()
}

/// Returns the process with the record lock on a pid file that has its id.
fn owner(pid_file: &Path) -> Option<u32> {
    let mut file = File::open(pid_file).ok()?;
    let owner = u32::try_from(record_owner(&file).ok()??).ok()?;
    let mut text = String::new();
    file.by_ref().take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    (text.trim().parse() == Ok(owner)).then_some(owner)
}

/// Returns the value of a process, from `/proc/PID/stat` and `/proc/PID/status`.
///
/// `uptime` is the time since the start of the system.
///
/// The values are: virtual memory, resident memory, CPU time, crashes, time since the start, time
/// since the last crash, CPU. A service manager, and no monitor, starts a daemon that crashed. So
/// the number of crashes is 0.
pub(crate) fn process_value(stat: &str, status: &str, uptime: Duration) -> Option<String> {
    let size = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    // The name of the program, in parentheses, may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // proc(5) numbers the fields from 1, and the state is field 3.
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
    let (virtual_kib, resident_kib) = (size("VmSize")?, size("VmRSS")?);
    let cpu_ms = field(14)?.saturating_add(field(15)?).saturating_mul(TICK_MS);
    let age_ms = uptime.as_millis().saturating_sub(field(22)?.saturating_mul(TICK_MS).into());
    let cpu = field(39)?;
    Some(format!("{virtual_kib},{resident_kib},{cpu_ms},0,{age_ms},{age_ms},{cpu}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn values_have_the_format_of_open_vswitch() {
        assert_eq!(cpus("0-1\n").unwrap(), "2");
        assert_eq!(cpus("0,2-3,8-15\n").unwrap(), "11");
        let load = load_average().unwrap();
        assert!(load.split(',').all(|word| word.parse::<f64>().is_ok()), "{load}");
        let text = "MemTotal:       24683652 kB\nMemFree:        20579256 kB\n\
                    MemAvailable:   22762196 kB\nBuffers:           44916 kB\n\
                    Cached:          2098460 kB\nSwapCached:            0 kB\n\
                    SwapTotal:          100 kB\nSwapFree:            60 kB\n";
        assert_eq!(memory(text).unwrap(), "24683652,4104396,2143376,100,40");
    }

    #[test]
    fn wrong_values_are_omitted() {
        for list in ["", "1-", "3-1", "0,,1", "x"] {
            assert_eq!(cpus(list), None, "{list}");
        }
        assert_eq!(memory("MemTotal: 5 kB\n"), None);
        assert_eq!(process_value("", "", Duration::ZERO), None);
    }

    #[test]
    fn only_local_writable_file_systems_are_listed() {
        let mounts = "/dev/vda / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n\
                      /dev/vdb /a\\040b,c ext4 rw 0 0\n/dev/vdc /cd iso9660 ro,relatime 0 0\n\
                      /dev/vdd /gone ext4 rw 0 0\n/dev/vde\n";
        let capacity = |folder: &str| match folder {
            "/" => Some([264_212_084, 28_113_928]),
            "/a b,c" => Some([7, 5]),
            _ => None,
        };
        let expected = "/,264212084,28113928 /a_b_c,7,5";
        assert_eq!(file_systems(mounts, capacity).unwrap(), expected);
        assert_eq!(file_systems(mounts, |_| None), None);
        assert_eq!(unescaped("\\134\\04").unwrap(), "\\\\04");
    }

    #[test]
    fn a_process_is_read_behind_its_name() {
        let stat = "77 (a) (b c)) S 1 77 77 0 -1 4194560 3000 0 0 0 120 40 0 0 20 0 9 0 5000 \
                    478605312 4475 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0";
        let status = "Name:\ta\nVmPeak:\t  467400 kB\nVmSize:\t  467388 kB\nVmRSS:\t   17900 kB\n";
        let value = process_value(stat, status, Duration::from_millis(60_790)).unwrap();
        assert_eq!(value, "467388,17900,1600,0,10790,10790,1");
    }

    /// The own process has two names, and files without a running owner have no entry.
    #[test]
    fn daemons_are_found_by_their_pid_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let id = std::process::id();
        fs::write(at(OWN_PID_FILE), format!("{id}\n")).unwrap();
        symlink(OWN_PID_FILE, at("ovs-vswitchd.pid")).unwrap();
        fs::write(at("ovsdb-server.pid"), format!("{id}\n")).unwrap();
        fs::create_dir(at("folder.pid")).unwrap();
        let all = read(Some(folder.path()));
        let names = all.keys().filter(|key| key.starts_with("process_"));
        assert_eq!(names.collect::<Vec<_>>(), ["process_ovs-vswitchd", "process_shuntd"]);
        let numbers: Vec<u64> =
            all["process_shuntd"].split(',').map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 7);
        assert!(numbers[1] > 0 && numbers[0] > numbers[1] && numbers[4] == numbers[5]);
        for key in ["cpu", "load_average", "memory"] {
            assert!(all.contains_key(key), "{all:?}");
        }
        assert!(!read(None).keys().any(|key| key.starts_with("process_")));
    }
}
