//! Commands for misses, and for evictions of cache entries.

use shunt_switch::DatapathReader;

use super::{command::commands, dpctl::DATAPATH, methods::DaemonMethods};

commands! {
    "revalidator/purge" "", 0..=0, Change, purge,
        "Remove all cache entries of packet threads; the next packets make them again";
    "revalidator/wait" "", 0..=0, Read, wait,
        "Return at once, because no cache entry outlives a change";
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
