//! Commands for misses, and for evictions of cache entries.

use shunt_switch::{DatapathReader, config::CacheKind, with_causes};

use super::{command::commands, dpctl::DATAPATH, methods::DaemonMethods};

commands! {
    "revalidator/purge" "", 0..=0, Change, purge,
        "Remove all cache entries of packet threads; the next packets make them again";
    "revalidator/wait" "", 0..=0, Read, wait,
        "Return at once, because no cache entry outlives a change";
    "upcall/enable-megaflows" "", 0..=0, Read, enable_megaflows,
        "Do nothing, because megaflows are always enabled; refused with `caches.kind=flows`";
    "upcall/enable-ufid" "", 0..=0, Read, enable_ufid,
        "Do nothing, because each cache entry has a UUID";
    "upcall/set-flow-limit" "flow-limit-number", 1..=1, Change, set_flow_limit,
        "Set the maximum number of megaflows of all packet threads: `caches.megaflow_entries`";
    "upcall/show" "", 0..=0, Read, show, "Show the cache entries of each packet thread";
}

/// Handles `revalidator/purge`: removes all cache entries of packet threads.
async fn purge(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    methods.switch.empty_caches().await;
    Ok(String::new())
}

/// Handles `revalidator/wait`: returns at once, as no stale entry is ever left.
async fn wait(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

/// Handles `upcall/enable-megaflows`: says that megaflows are enabled.
async fn enable_megaflows(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    if methods.switch.config().caches.kind == CacheKind::Flows {
        return Err("caches.kind is \"flows\", which has no cache entries: run `shuntctl set \
                    caches.kind=megaflow`"
            .to_owned());
    }
    Ok("megaflows enabled\n".to_owned())
}

/// Handles `upcall/enable-ufid`: says that entries have UUIDs.
async fn enable_ufid(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok("Datapath dumping tersely using UFID enabled for supported datapaths\n".to_owned())
}

/// Handles `upcall/set-flow-limit`: changes the limit of megaflows.
///
/// Each packet thread gets an equal share of the limit, rounded up.
async fn set_flow_limit(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let [text] = arguments else { return Err("one argument is needed: a number".to_owned()) };
    let (switch, threads) = (&methods.switch, packet_threads(methods));
    let limit: usize =
        text.parse().ok().filter(|limit: &usize| *limit > 0).ok_or_else(|| {
            format!("bad flow limit {text:?}: it must be a whole number, at least 1")
        })?;
    let share = limit.div_ceil(threads);
    let value = share.to_string();
    switch.set(&[("caches.megaflow_entries", value.as_str())]).await.map_err(|error| {
        format!("flow limit {limit} for {threads} packet threads: {}", with_causes(&error))
    })?;
    let in_force = switch.config().caches.megaflow_entries * threads;
    if in_force != share * threads {
        return Err(format!(
            "flow limit {limit}: other_config:flow-limit of the database has precedence: change \
             the key, or remove it"
        ));
    }
    Ok(format!("set flow_limit to {in_force}\n"))
}

/// Returns the number of packet threads.
fn packet_threads(methods: &DaemonMethods) -> usize {
    DatapathReader::new(&methods.switch).packet_threads().len().max(1)
}

/// Shows the numbers of cache entries.
///
/// Shunt does not dump the datapath periodically, so the values for dumps are `?`.
async fn show(methods: &DaemonMethods, _: &[String]) -> Result<String, String> {
    let threads = DatapathReader::new(&methods.switch).packet_threads();
    let entries: u64 = threads.iter().map(|own| own.entries).sum();
    let limit = methods.switch.config().caches.megaflow_entries * threads.len();
    let mut text = format!(
        "{DATAPATH}:\n  flows         : (current {entries}) (avg ?) (max ?) (limit {limit})\n  \
         dump duration : ?ms\n  ufid enabled : true\n\n"
    );
    for (number, thread) in threads.iter().enumerate() {
        text += &format!("  {number}: (keys {})\n", thread.entries);
    }
    Ok(text)
}
