//! Memory of the daemon, by use. The parts add up to the resident set.

use std::{collections::BTreeMap, fs};

use shunt_switch::{DatapathReader, with_causes};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "memory/show" "", 0..=0, Read, show,
        "Show the numbers of objects, and the resident memory by use in KiB";
}

async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let maps = fs::read_to_string("/proc/self/smaps");
    let maps = maps.map_err(|error| format!("cannot read /proc/self/smaps: {error}"))?;
    let evictions = methods.switch.evictions().await.map_err(|error| with_causes(&error))?;
    let bridges = methods.switch.bridges();
    let ports: usize = bridges.iter().map(|bridge| bridge.ports.len()).sum();
    let rules: u64 = bridges.iter().map(|bridge| bridge.rules).sum();
    let threads = DatapathReader::new(&methods.switch).packet_threads();
    let entries: u64 = threads.iter().map(|own| own.entries).sum();
    let mut parts = vec![
        ("handlers".to_owned(), threads.len() as u64),
        ("ports".to_owned(), ports as u64),
        ("rules".to_owned(), rules),
        ("udpif keys".to_owned(), entries),
    ];
    parts.extend(by_use(&maps, evictions.engine_bytes.unwrap_or_default() / 1024));
    let parts: Vec<String> = parts.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    Ok(parts.join(" "))
}

/// Returns the resident KiB by use, then their sum.
///
/// `engine` is the part of the anonymous memory that the eviction engine has. The use of the other
/// anonymous memory is not known: tables, caches, packet buffers and connections are in it.
fn by_use(maps: &str, engine: u64) -> Vec<(String, u64)> {
    let mut uses = BTreeMap::<&str, u64>::new();
    let mut current = "other-kB";
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let size = size.trim().trim_end_matches("kB").trim().parse().unwrap_or(0);
            *uses.entry(current).or_default() += size;
        } else if is_mapping(line) {
            current = use_of(line.split_whitespace().nth(5).unwrap_or_default());
        }
    }
    let total: u64 = uses.values().sum();
    let anonymous = uses.entry(UNKNOWN).or_default();
    let engine = engine.min(*anonymous);
    *anonymous -= engine;
    uses.insert("eviction-engine-kB", engine);
    let all = uses.into_iter().chain([("resident-kB", total)]);
    all.map(|(name, size)| (name.to_owned(), size)).collect()
}

const UNKNOWN: &str = "anonymous-of-unknown-use-kB";

/// Returns whether a line begins a mapping: `address-address rwxp ..`.
fn is_mapping(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    first.split_once('-').is_some_and(|(from, to)| {
        [from, to].iter().all(|part| u64::from_str_radix(part, 16).is_ok())
    })
}

/// Returns the use of a mapping by its name (proc(5)).
fn use_of(name: &str) -> &'static str {
    match name {
        "" | "[heap]" => UNKNOWN,
        "[stack]" => "main-stack-kB",
        _ if name.starts_with("[anon") => UNKNOWN,
        _ if name.starts_with("socket:") => "packet-rings-kB",
        _ if name.starts_with("anon_inode:") => "other-kB",
        _ if name.starts_with('/') => "program-and-libraries-kB",
        _ => "other-kB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_resident_memory() {
        let maps = "55d0-55d1 r-xp 00000000 08:01 1 /usr/sbin/shuntd\nSize: 8 kB\nRss: 300 kB\n\
                    7f00-7f01 rw-p 00000000 00:00 0\nRss:  5000 kB\n\
                    7f02-7f03 rw-s 00000000 00:08 9 socket:[77]\nRss: 1024 kB\n\
                    7ffc-7ffd rw-p 00000000 00:00 0 [stack]\nRss: 12 kB\n";
        let parts = by_use(maps, 700);
        let of = |name: &str| parts.iter().find(|(own, _)| own == name).map(|(_, size)| *size);
        assert_eq!(of(UNKNOWN), Some(4300));
        assert_eq!(of("eviction-engine-kB"), Some(700));
        assert_eq!(of("packet-rings-kB"), Some(1024));
        let (total, parts) = parts.split_last().unwrap();
        assert_eq!(*total, ("resident-kB".to_owned(), 6336));
        assert_eq!(parts.iter().map(|(_, size)| size).sum::<u64>(), total.1);
    }
}
