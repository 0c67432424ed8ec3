//! The state of controllers and listeners in `show`.

use serde_json::Value;

use crate::render::{count, word};

/// Returns the state of a controller as text.
pub(super) fn controller_state(controller: &Value) -> String {
    match word(&controller["state"]) {
        "connected" => format!("connected, role {}", word(&controller["role"])),
        "waiting" => {
            let (reason, seconds) = (word(&controller["reason"]), count(&controller["retry_in_s"]));
            format!("not connected: {reason}, next attempt in {seconds} s")
        }
        state => {
            // The system chose the port of `ptcp:0`.
            let port = controller["port"].as_u64().map(|port| format!(" on port {port}"));
            let problem = controller["problem"].as_str();
            let problem =
                problem.map(|problem| format!(", but no controller can connect: {problem}"));
            format!("{state}{}{}", port.unwrap_or_default(), problem.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::render::show;

    #[test]
    fn a_controller_is_shown_with_its_state() {
        let controllers = json!([
            {"target": "tcp:1.2.3.4", "state": "connected", "role": "master"},
            {"target": "tcp:1.2.3.5", "state": "waiting", "reason": "connection refused", "retry_in_s": 4},
            {"target": "tcp:1.2.3.6", "state": "connecting"},
            {"target": "ptcp:6634", "state": "listening"},
            {"target": "ptcp:0", "state": "listening", "port": 40123},
            {"target": "pssl:6653", "state": "listening", "problem": "no private key"},
        ]);
        let shown = show(&json!([{"name": "br0", "rules": 0, "controllers": controllers}]));
        let lines: Vec<&str> = shown.lines().skip(1).map(str::trim).collect();
        let expected = [
            "controller tcp:1.2.3.4 (connected, role master)",
            "controller tcp:1.2.3.5 (not connected: connection refused, next attempt in 4 s)",
            "controller tcp:1.2.3.6 (connecting)",
            "controller ptcp:6634 (listening)",
            "controller ptcp:0 (listening on port 40123)",
            "controller pssl:6653 (listening, but no controller can connect: no private key)",
        ];
        assert_eq!(lines, expected);
    }
}
