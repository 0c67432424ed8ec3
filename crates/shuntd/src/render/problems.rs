//! Text for settings of ports and bridges that are not in force, or that conflict.

use serde_json::Value;

/// Returns the problems of a port: MTU, other users of the device, and NIC.
pub(super) fn port_problems(port: &Value) -> String {
    let problems = [&port["mtu_problem"], &port["user_problem"], &port["nic_problem"]];
    problems.into_iter().filter_map(Value::as_str).map(|problem| format!("; {problem}")).collect()
}

/// Returns the problems of a bridge as lines: datapath id, management socket, and
/// controllers.
pub(super) fn bridge_problems(bridge: &Value) -> String {
    let problems = [&bridge["datapath_id_problem"], &bridge["management_problem"]];
    let fail_open = (bridge["fail_open"] == true).then_some(FAIL_OPEN);
    let problems = problems.into_iter().filter_map(Value::as_str).chain(fail_open);
    problems.map(|problem| format!("    {problem}\n")).collect()
}

/// The line of a bridge that fails open.
const FAIL_OPEN: &str = "no controller is reachable: forwarding as a learning switch";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::render::{ports, show};

    #[test]
    fn port_shows_why_mtu_has_no_effect() {
        let problem = "MTU 1400 has no effect: the device has the MTU 1500";
        let shown = |problem: Option<&str>| {
            let port = json!({"name": "p1", "number": 1, "type": "af_packet", "link": "up",
                "mtu_problem": problem});
            let bridges = json!([{"name": "br0", "rules": 0, "ports": [port]}]);
            [show, ports].map(|text| text(&bridges).lines().nth(1).unwrap().to_owned())
        };
        let [line, row] = shown(Some(problem));
        assert!(line.ends_with(&format!("(af_packet, up; {problem})")), "{line}");
        assert!(row.ends_with(&format!("up; {problem}")), "{row}");
        assert!(shown(None).iter().all(|line| !line.contains("MTU")));
    }

    #[test]
    fn bridge_that_fails_open_is_shown() {
        let shown = |fail_open: bool| {
            show(&json!([{"name": "br0", "rules": 0, "ports": [], "fail_open": fail_open}]))
        };
        assert!(shown(true).contains("    no controller is reachable: "), "{}", shown(true));
        assert!(!shown(true).contains("drops every packet"), "{}", shown(true));
        assert!(!shown(false).contains("controller"), "{}", shown(false));
    }

    #[test]
    fn port_shows_other_users_of_device() {
        let port = json!({"name": "p1", "number": 1, "type": "af_packet", "link": "up",
            "user_problem": "device p1 has the address 192.0.2.1"});
        let shown = show(&json!([{"name": "br0", "rules": 0, "ports": [port]}]));
        assert!(shown.contains("(af_packet, up; device p1 has the address 192.0.2.1)"), "{shown}");
    }
}
