//! The threads of a daemon, and the receive queues of its packet threads.

use serde_json::Value;

use super::{count, list, table, threads, word};

/// Returns all threads with their states, and the queues that have had packets.
pub(crate) fn thread_list(all: &Value) -> String {
    let mut rows = vec![["thread", "state", "cpus", "idle"].map(str::to_owned).to_vec()];
    for thread in list(all) {
        let [name, state] = ["name", "state"].map(|key| word(&thread[key]).to_owned());
        rows.push(vec![name, state, cpus(thread), idle(thread)]);
    }
    table(&rows) + &queues(all) + &threads(all)
}

/// Returns the CPUs of a packet thread, and their NUMA node.
fn cpus(thread: &Value) -> String {
    on_node(word(&thread["cpus"]), thread)
}

/// Returns a text with the NUMA node of its object, if there is one.
fn on_node(text: &str, object: &Value) -> String {
    match object["numa_node"].as_u64() {
        Some(node) => format!("{text} (node {node})"),
        None => text.to_owned(),
    }
}

/// Returns the idle share of a packet thread in the last minute, if known.
fn idle(thread: &Value) -> String {
    let queues = list(&thread["queues"]);
    let busy: Option<u64> = queues.iter().map(|queue| queue["busy_percent"].as_u64()).sum();
    let busy = busy.filter(|_| !queues.is_empty());
    busy.map_or_else(String::new, |busy| format!("{} %", 100_u64.saturating_sub(busy)))
}

/// Returns the table of receive queues that have had packets; empty without any.
fn queues(all: &Value) -> String {
    let header = ["polled by", "port", "queue", "busy", "packets", "per burst", "ns per packet"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut unused = 0_u32;
    for thread in list(all) {
        for queue in list(&thread["queues"]) {
            if count(&queue["packets"]) == 0 {
                unused += 1;
            } else {
                rows.push(queue_row(word(&thread["name"]), queue));
            }
        }
    }
    let without = match unused {
        0 => String::new(),
        unused => format!("receive queues without packets: {unused}\n"),
    };
    if rows.len() == 1 {
        return without;
    }
    format!("\n{}{without}", table(&rows))
}

fn queue_row(thread: &str, queue: &Value) -> Vec<String> {
    let [packets, bursts, busy_ns] =
        [&queue["packets"], &queue["bursts"], &queue["busy_ns"]].map(count);
    let tenths = u128::from(packets) * 10 / u128::from(bursts.max(1));
    let busy = queue["busy_percent"].as_u64();
    vec![
        thread.to_owned(),
        on_node(word(&queue["port"]), queue),
        count(&queue["queue"]).to_string(),
        busy.map_or_else(|| "-".to_owned(), |busy| format!("{busy} %")),
        packets.to_string(),
        format!("{}.{}", tenths / 10, tenths % 10),
        (busy_ns / packets.max(1)).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_thread_is_listed_with_its_state() {
        let all = json!([{"name": "packet thread 0", "state": "running"},
            {"name": "eviction thread", "state": "panicked"}]);
        let expected = "\
thread           state     cpus  idle
packet thread 0  running
eviction thread  panicked
eviction thread: panicked; restart the daemon
";
        assert_eq!(thread_list(&all), expected);
    }

    #[test]
    fn queues_with_packets_have_their_load() {
        let queue = |port, number, busy, packets| {
            json!({"port": port, "queue": number, "thread": 0, "busy_percent": busy,
                "busy_ns": 300 * packets, "packets": packets, "bursts": packets / 16})
        };
        let queues = [queue("eth1", 0, Some(12), 1640), queue("eth1", 1, Some(5), 0)];
        let new = [queue("eth2", 0, None, 32)];
        let all = json!([
            {"name": "packet thread 0", "state": "running", "cpus": "2", "numa_node": 0,
                "queues": queues},
            {"name": "packet thread 1", "state": "running", "cpus": "0-3", "queues": new},
        ]);
        let expected = "\
thread           state    cpus        idle
packet thread 0  running  2 (node 0)  83 %
packet thread 1  running  0-3

polled by        port  queue  busy  packets  per burst  ns per packet
packet thread 0  eth1  0      12 %  1640     16.0       300
packet thread 1  eth2  0      -     32       16.0       300
receive queues without packets: 1
";
        assert_eq!(thread_list(&all), expected);
    }

    #[test]
    fn a_queue_has_the_node_of_its_device() {
        let queue = json!({"port": "eth1", "queue": 0, "busy_percent": 3, "busy_ns": 300,
            "packets": 1, "bursts": 1, "numa_node": 1});
        let all = json!([{"name": "packet thread 0", "state": "running", "queues": [queue]}]);
        let line = "packet thread 0  eth1 (node 1)  0      3 %   1        1.0        300\n";
        assert!(thread_list(&all).ends_with(line), "{}", thread_list(&all));
    }
}
