//! Resident memory of the process by use. The values add up to the resident set.

use std::{collections::BTreeMap, fs, io};

/// Anonymous memory that does not belong to the eviction engine.
///
/// This memory contains tables, caches, packet buffers and connections, which the kernel does not
/// tell apart.
const ANONYMOUS: &str = "anonymous";

/// Returns the resident memory in KiB by use.
///
/// `engine` is the memory of the eviction engine in KiB, a part of the anonymous memory. Reading
/// takes milliseconds for each gigabyte of the process.
///
/// # Errors
///
/// If the kernel does not provide `/proc/self/smaps` (proc(5)).
pub(crate) fn resident(engine: u64) -> io::Result<BTreeMap<&'static str, u64>> {
    Ok(by_use(&fs::read_to_string("/proc/self/smaps")?, engine))
}

/// Returns the resident memory by use, from `/proc/PID/smaps`.
fn by_use(maps: &str, engine: u64) -> BTreeMap<&'static str, u64> {
    let mut uses = BTreeMap::new();
    let mut current = "other";
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let size: u64 = size.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
            *uses.entry(current).or_default() += size;
        } else if is_mapping(line) {
            let mut words = line.split_whitespace();
            let is_shared = words.nth(1).is_some_and(|rights| rights.ends_with('s'));
            current = use_of(words.nth(3).unwrap_or_default(), is_shared);
        }
    }
    let anonymous: &mut u64 = uses.entry(ANONYMOUS).or_default();
    let engine = engine.min(*anonymous);
    *anonymous -= engine;
    uses.insert("eviction-engine", engine);
    uses
}

/// Returns whether a line is the first line of a mapping:
/// `address-address rwxp ..`.
fn is_mapping(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    first.split_once('-').is_some_and(|(from, to)| {
        [from, to].iter().all(|part| u64::from_str_radix(part, 16).is_ok())
    })
}

/// Returns the use of a mapping by its name (proc(5)).
///
/// Memory that is shared with other processes belongs to virtual machines, memif clients and DPDK.
fn use_of(name: &str, is_shared: bool) -> &'static str {
    match name {
        _ if name.starts_with('/') && is_shared => "shared-memory",
        "" | "[heap]" => ANONYMOUS,
        "[stack]" => "main-stack",
        _ if name.starts_with("[anon") => ANONYMOUS,
        _ if name.starts_with("socket:") => "packet-rings",
        _ if name.starts_with("anon_inode:") => "other",
        _ if name.starts_with('/') => "program-and-libraries",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_add_up_to_the_resident_memory() {
        let maps = "55d0-55d1 r-xp 00000000 08:01 1 /usr/sbin/shuntd\nSize: 8 kB\nRss: 300 kB\n\
                    7f00-7f01 rw-p 00000000 00:00 0\nRss:  5000 kB\n\
                    7f02-7f03 rw-s 00000000 00:08 9 socket:[77]\nRss: 1024 kB\n\
                    7f04-7f05 rw-s 00000000 00:01 5 /memfd:guest (deleted)\nRss: 2048 kB\n\
                    7ffc-7ffd rw-p 00000000 00:00 0 [stack]\nRss: 12 kB\n";
        let uses = by_use(maps, 700);
        assert_eq!(uses[ANONYMOUS], 4300);
        assert_eq!(uses["eviction-engine"], 700);
        assert_eq!(uses["packet-rings"], 1024);
        assert_eq!(uses["shared-memory"], 2048);
        assert_eq!(uses["program-and-libraries"], 300);
        assert_eq!(uses.values().sum::<u64>(), 300 + 5000 + 1024 + 2048 + 12);
    }

    #[test]
    fn engine_has_no_more_than_anonymous_memory() {
        let uses = by_use("7f00-7f01 rw-p 00000000 00:00 0\nRss: 10 kB\n", 700);
        assert_eq!((uses["eviction-engine"], uses[ANONYMOUS]), (10, 0));
    }
}
