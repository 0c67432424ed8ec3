//! Text for the BFD session of a port, as a part of the line of the port.

use serde_json::Value;

use super::word;

/// Returns the state of a BFD session as text; empty without a session.
pub(crate) fn bfd_state(session: &Value) -> String {
    let Some(state) = session["state"].as_str() else { return String::new() };
    let forwarding = match (state, session["forwarding"] == true) {
        ("up", false) => ", not forwarding",
        ("up", true) | (_, false) => "",
        (_, true) => ", forwarding",
    };
    let reason = Some(word(&session["diagnostic"]));
    let reason = reason.filter(|text| state != "up" && *text != "No Diagnostic");
    let reason = reason.map_or_else(String::new, |text| format!(" ({text})"));
    format!(", bfd {state}{reason}{forwarding}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn a_port_shows_its_bfd_session() {
        let line = |state: &str, forwarding: bool, diagnostic: &str| {
            let session =
                json!({"state": state, "forwarding": forwarding, "diagnostic": diagnostic});
            let port =
                json!({"name": "p1", "number": 1, "type": "null", "link": "up", "bfd": session});
            let shown = super::super::show(&json!([{"name": "br0", "rules": 0, "ports": [port]}]));
            shown.lines().nth(1).unwrap().trim().to_owned()
        };
        let expired = "Control Detection Time Expired";
        assert_eq!(line("up", true, expired), "port 1 p1 (null, up, bfd up)");
        assert_eq!(line("up", false, expired), "port 1 p1 (null, up, bfd up, not forwarding)");
        let down = format!("port 1 p1 (null, up, bfd down ({expired}))");
        assert_eq!(line("down", false, expired), down);
        assert_eq!(
            line("init", true, "No Diagnostic"),
            "port 1 p1 (null, up, bfd init, forwarding)"
        );
    }
}
