//! Commands for the datapath: its ports and its cache entries.

use std::time::Duration;

use shunt_switch::{
    BridgePortStatus, DatapathFlow, DatapathFlowFilter, DatapathFlowFormat, DatapathReader, Switch,
};

use super::{
    command::commands,
    dpif::{LookupTotals, interface_type},
    methods::DaemonMethods,
    table,
};

commands! {
    "dpctl/del-flows" "[dp]", 0..=1, Change, delete_flows,
        "Remove all cache entries of packet threads, as `revalidator/purge`";
    "dpctl/dump-dps" "", 0..=0, Read, dump_datapaths, "Show the name of the datapath";
    "dpctl/dump-flows" "[-m] [--names] [dp] [type=..] [pmd=thread]", 0..=5, Read, dump_flows,
        "List the cache entries by packet thread, in the syntax of the datapath";
    "dpctl/get-flow" "[dp] ufid:.. [-m] [--names]", 1..=4, Read, get_flow, "Show one cache entry";
    "dpctl/list-commands" "", 0..=0, Read, list_commands,
        "List the commands of `dpctl/` with their arguments";
    "dpctl/show" "[-s] [dp...]", 0..=4, Read, show, "Show lookups, entries and ports";
}

/// The name of the datapath, as of Open vSwitch's userspace datapath.
pub(super) const DATAPATH: &str = "netdev@ovs-netdev";

/// Handles `dpctl/del-flows`: removes the cache entries of all packet threads.
async fn delete_flows(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    arguments.iter().try_for_each(|word| check_datapath(word))?;
    methods.switch.empty_caches().await;
    Ok(String::new())
}

/// Handles `dpctl/list-commands`: lists the commands of the datapath.
async fn list_commands(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(table::list("dpctl/"))
}

/// Handles `dpctl/dump-dps`: shows the name of the datapath.
async fn dump_datapaths(_: &DaemonMethods, _: &[String]) -> Result<String, String> {
    Ok(format!("{DATAPATH}\n"))
}

/// The arguments of a command about cache entries.
#[derive(Default)]
struct FlowSelection {
    /// The form of the output.
    format: DatapathFlowFormat,
    /// The condition on the entries to print.
    filter: DatapathFlowFilter<'static>,
    /// UUID or name of a single entry.
    ufid: Option<String>,
}

impl FlowSelection {
    /// Parses the flows that `dpctl/dump-flows` selects.
    fn of(words: &[String]) -> Result<Self, String> {
        let mut selection = Self::default();
        for word in words {
            match (word.as_str(), word.split_once('=')) {
                ("-m" | "--more", _) => {
                    selection.format = DatapathFlowFormat { port_names: true, wildcards: true };
                }
                ("--names", _) => selection.format.port_names = true,
                ("--no-names", _) => selection.format.port_names = false,
                (_, Some(("type", "ovs" | "non-offloaded"))) => {
                    selection.filter.is_offloaded = Some(false);
                }
                (_, Some(("type", "offloaded"))) => selection.filter.is_offloaded = Some(true),
                (_, Some(("pmd", thread))) => {
                    let number = thread.parse();
                    let wrong = |_| format!("pmd={thread}: not the number of a packet thread");
                    selection.filter.thread = Some(number.map_err(wrong)?);
                }
                (_, Some(("filter", _))) => {
                    return Err("filter= does not exist: select lines with `grep`".to_owned());
                }
                (_, _) if word.starts_with("ufid:") => selection.ufid = Some(word.clone()),
                _ => check_datapath(word)?,
            }
        }
        Ok(selection)
    }
}

/// Returns whether an argument is the name of the datapath.
pub(super) fn is_datapath(word: &str) -> bool {
    [DATAPATH, "ovs-netdev"].contains(&word)
}

/// Refuses the name of any other datapath.
pub(super) fn check_datapath(word: &str) -> Result<(), String> {
    if is_datapath(word) {
        return Ok(());
    }
    Err(format!("{word}: datapath not found, or an unknown option; the datapath is {DATAPATH}"))
}

/// Handles `dpctl/dump-flows`: lists the cache entries by packet thread.
async fn dump_flows(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let FlowSelection { format, filter, .. } = FlowSelection::of(arguments)?;
    let flows = DatapathReader::new(&methods.switch).flows(format, filter).await;
    let (mut text, mut owner) = (String::new(), None);
    for flow in &flows {
        if owner != Some(flow.thread) {
            owner = Some(flow.thread);
            text += &match flow.thread {
                Some(thread) => format!("flow-dump from packet thread {thread}:\n"),
                None => "flow-dump from the NIC:\n".to_owned(),
            };
        }
        text += &flow_line(flow, format.wildcards);
    }
    Ok(text)
}

/// Handles `dpctl/get-flow`: shows one cache entry.
async fn get_flow(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let FlowSelection { format, filter, ufid } = FlowSelection::of(arguments)?;
    let ufid = ufid.ok_or("parsing flow ufid: write ufid:UUID, as in dpctl/dump-flows -m")?;
    let found = DatapathReader::new(&methods.switch).flow(&ufid, format).await;
    let found = found.filter(|flow| filter.selects_owner(flow.thread));
    let line = found.map(|flow| flow_line(&flow, format.wildcards));
    line.ok_or_else(|| "getting flow: no such entry; idle and stale entries are removed".to_owned())
}

/// Formats a datapath flow as a line.
fn flow_line(flow: &DatapathFlow, more: bool) -> String {
    let (ufid, dp) = match (more, flow.thread) {
        (false, _) => (String::new(), ""),
        (true, Some(_)) => (format!("ufid:{}, ", flow.ufid), " dp:ovs,"),
        (true, None) => (format!("ufid:{}, ", flow.ufid), " offloaded:yes, dp:tc,"),
    };
    format!("{ufid}{}, {},{dp} actions:{}\n", flow.key, flow_counters(flow), flow.actions)
}

/// Returns the counters of an entry.
pub(super) fn flow_counters(flow: &DatapathFlow) -> String {
    let used = |since: Duration| format!("{}.{:03}s", since.as_secs(), since.subsec_millis());
    let used = flow.used.map_or_else(|| "never".to_owned(), used);
    format!("packets:{}, bytes:{}, used:{used}", flow.packets, flow.bytes)
}

/// Handles `dpctl/show`: shows lookups, entries and ports.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let with_counters = arguments.iter().any(|word| word == "-s");
    arguments.iter().filter(|word| *word != "-s").try_for_each(|word| check_datapath(word))?;
    let LookupTotals { hit, missed, lost, entries } = LookupTotals::of(methods);
    let mut text = format!(
        "{DATAPATH}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {entries}\n"
    );
    for (number, port) in datapath_ports(&methods.switch) {
        text += &format!("  port {number}: {} ({})\n", port.name, interface_type(&port));
        if with_counters {
            text += &counters(&port);
        }
    }
    Ok(text)
}

/// Returns the ports that packet threads have, ordered by datapath number.
fn datapath_ports(switch: &Switch) -> Vec<(u32, BridgePortStatus)> {
    let ports = switch.bridges().into_iter().flat_map(|bridge| bridge.ports);
    let mut numbered: Vec<_> = ports.filter_map(|port| Some((port.datapath?, port))).collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered
}

/// Returns the counters of a port; `?` for counters that Shunt does not have.
fn counters(port: &BridgePortStatus) -> String {
    format!(
        "    RX packets:{} errors:? dropped:{} overruns:? frame:?\n    \
         TX packets:{} errors:? dropped:{} aborted:? carrier:?\n    collisions:?\n    \
         RX bytes:{}  TX bytes:{}\n",
        port.rx_packets,
        port.rx_dropped,
        port.tx_packets,
        port.tx_dropped,
        bytes(port.rx_bytes),
        bytes(port.tx_bytes)
    )
}

/// Writes a number of bytes, with a shorter form from 1 KiB on.
fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let power = (count.max(1).ilog2() / 10).min(4);
    let Some(unit) = power.checked_sub(1).and_then(|index| units.get(index as usize)) else {
        return count.to_string();
    };
    // Tenths of the unit, rounded down; 128 bits cannot overflow here.
    let tenths = (u128::from(count) * 10) >> (10 * power);
    format!("{count} ({}.{} {unit})", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short_from_1_kib_on() {
        assert_eq!([0, 14, 1023].map(bytes), ["0", "14", "1023"]);
        assert_eq!(bytes(1150), "1150 (1.1 KiB)");
        assert_eq!(bytes(3 << 30), "3221225472 (3.0 GiB)");
    }

    #[test]
    fn words_that_select_no_flow_are_refused() {
        let of = |word: &str| FlowSelection::of(&[word.to_owned()]).err().unwrap_or_default();
        for word in ["--nmaes", "system@ovs-system", "filter=tcp", "pmd=x"] {
            assert!(!of(word).is_empty(), "{word}");
        }
        for word in ["-m", "netdev@ovs-netdev", "ovs-netdev", "type=ovs", "pmd=1"] {
            assert_eq!(of(word), "", "{word}");
        }
    }
}
