//! Memory of the daemon, by use. The printed values add up to the resident set.

use shunt_switch::{DatapathReader, with_causes};

use super::{command::commands, methods::DaemonMethods};
use crate::memory_use;

commands! {
    "memory/show" "", 0..=0, Read, show,
        "Show the numbers of objects, and the resident memory by use in KiB";
}

/// Handles `memory/show`: shows numbers of objects, and the resident memory.
async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let evictions = methods.switch.evictions().await.map_err(|error| with_causes(&error))?;
    let uses = memory_use::resident(evictions.engine_bytes.unwrap_or_default() / 1024);
    let uses = uses.map_err(|error| format!("cannot read /proc/self/smaps: {error}"))?;
    let bridges = methods.switch.bridges();
    let ports: usize = bridges.iter().map(|bridge| bridge.ports.len()).sum();
    let rules: u64 = bridges.iter().map(|bridge| bridge.rules).sum();
    let threads = DatapathReader::new(&methods.switch).packet_threads();
    let entries: u64 = threads.iter().map(|own| own.entries).sum();
    let objects = [
        ("handlers", threads.len() as u64),
        ("ports", ports as u64),
        ("rules", rules),
        ("udpif keys", entries),
    ];
    let resident: u64 = uses.values().sum();
    let objects = objects.iter().map(|(name, count)| format!("{name}:{count}"));
    let uses = uses.iter().map(|(name, size)| format!("{name}-kB:{size}"));
    let parts: Vec<String> =
        objects.chain(uses).chain([format!("resident-kB:{resident}")]).collect();
    Ok(parts.join(" "))
}
