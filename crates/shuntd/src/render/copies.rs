//! The copies that ports made of frames.

use serde_json::Value;

use super::{count, list, number, ports_of, table, word};

/// The counters of the table, by their keys in JSON.
const COUNTERS: [&str; 4] = ["rx_copies", "rx_copied_bytes", "tx_copies", "tx_copied_bytes"];

/// Returns the table of ports that have copied frames; empty without such ports.
pub(super) fn copies(bridges: &Value) -> String {
    let header = ["bridge", "port", "name"].map(str::to_owned).into_iter();
    let header = header.chain(COUNTERS.map(|key| key.replace('_', " ")));
    let mut rows = vec![header.collect::<Vec<_>>()];
    for port in list(&ports_of(bridges)) {
        let counts = COUNTERS.map(|key| count(&port[key]));
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let names =
            [word(&port["bridge"]).to_owned(), number(port), word(&port["name"]).to_owned()];
        rows.push(names.into_iter().chain(counts.map(|count| count.to_string())).collect());
    }
    if rows.len() == 1 { String::new() } else { format!("\n{}", table(&rows)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_with_copies_have_a_table() {
        let port = |name: &str, counts: [u64; 4]| {
            let [rx_copies, rx_copied_bytes, tx_copies, tx_copied_bytes] = counts;
            json!({"bridge": "br0", "name": name, "number": 1, "rx_copies": rx_copies,
                "rx_copied_bytes": rx_copied_bytes, "tx_copies": tx_copies,
                "tx_copied_bytes": tx_copied_bytes})
        };
        let without = port("p1", [0; 4]);
        assert_eq!(copies(&json!([{"ports": [without]}])), "");
        let shown = copies(&json!([{"ports": [without, port("p2", [20, 1200, 3, 180])]}]));
        let expected = "
bridge  port  name  rx copies  rx copied bytes  tx copies  tx copied bytes
br0     1     p2    20         1200             3          180
";
        assert_eq!(shown, expected);
        assert!(
            super::super::ports(&json!([{"ports": [port("p2", [0, 0, 1, 60])]}]))
                .ends_with("br0     1     p2    0          0                1          60\n")
        );
    }
}
