//! Text for the exporters of a bridge: sFlow, NetFlow and IPFIX.

use std::fmt::Write;

use serde_json::Value;

use super::{count, counted, list, word};

/// Returns the exporters of a bridge as lines, with counters of sent data.
pub(crate) fn exports(bridge: &Value) -> String {
    let exporters = [("sflow", sflow as fn(&Value) -> _), ("netflow", netflow), ("ipfix", ipfix)];
    let running = exporters.into_iter().filter(|(key, _)| bridge[key].is_object());
    let lines = running.map(|(key, line)| line(&bridge[key]));
    lines.chain(list(&bridge["collector_sets"]).iter().map(collector_set)).collect()
}

/// Returns the line about a set of collectors.
fn collector_set(set: &Value) -> String {
    format!(
        "    collector-set {} (targets={}{} cache_active_timeout={} cache_max_flows={}, sent {} of {} in {}, {} active{}{})\n",
        count(&set["id"]),
        targets(set),
        virtual_id(set),
        count(&set["cache_active_timeout"]),
        count(&set["cache_max_flows"]),
        counted(count(&set["flows"]), "flow"),
        counted(count(&set["samples"]), "sample"),
        counted(count(&set["messages"]), "message"),
        counted(count(&set["active_flows"]), "flow"),
        losses_text(set, &[("flows_lost", "flow"), ("messages_lost", "message")]),
        problem_suffix(set),
    )
}

/// Returns the observation point text of an exporter; empty if there is none.
fn virtual_id(exporter: &Value) -> String {
    match word(&exporter["virtual_obs_id"]) {
        "" => String::new(),
        id => format!(" virtual_obs_id={id}"),
    }
}

/// Returns the line about sFlow.
fn sflow(sflow: &Value) -> String {
    format!(
        "    sflow (targets={} agent={} sampling={} polling={} header={}, sent {} in {}{}{})\n",
        targets(sflow),
        word(&sflow["agent_address"]),
        count(&sflow["sampling"]),
        count(&sflow["polling"]),
        count(&sflow["header"]),
        counted(count(&sflow["samples"]), "sample"),
        counted(count(&sflow["datagrams"]), "datagram"),
        losses_text(sflow, &[("samples_dropped", "sample"), ("datagrams_lost", "datagram")]),
        problem_suffix(sflow),
    )
}

/// Returns the line about NetFlow.
fn netflow(netflow: &Value) -> String {
    let id = if netflow["add_id_to_interface"] == true { " add_id_to_interface" } else { "" };
    format!(
        "    netflow (targets={} active_timeout={} engine_type={} engine_id={}{id}, sent {} in {}, {} active{}{})\n",
        targets(netflow),
        netflow["active_timeout"],
        count(&netflow["engine_type"]),
        count(&netflow["engine"]),
        counted(count(&netflow["flows"]), "flow"),
        counted(count(&netflow["datagrams"]), "datagram"),
        counted(count(&netflow["active_flows"]), "flow"),
        losses_text(netflow, &[("flows_lost", "flow"), ("datagrams_lost", "datagram")]),
        problem_suffix(netflow),
    )
}

/// Returns the line about IPFIX.
fn ipfix(ipfix: &Value) -> String {
    format!(
        "    ipfix (targets={} sampling={} obs_domain_id={} obs_point_id={}{} cache_active_timeout={} cache_max_flows={}, sent {} of {} in {}, {} active{}{})\n",
        targets(ipfix),
        count(&ipfix["sampling"]),
        count(&ipfix["obs_domain_id"]),
        count(&ipfix["obs_point_id"]),
        virtual_id(ipfix),
        count(&ipfix["cache_active_timeout"]),
        count(&ipfix["cache_max_flows"]),
        counted(count(&ipfix["flows"]), "flow"),
        counted(count(&ipfix["samples"]), "sample"),
        counted(count(&ipfix["messages"]), "message"),
        counted(count(&ipfix["active_flows"]), "flow"),
        losses_text(
            ipfix,
            &[("samples_dropped", "sample"), ("flows_lost", "flow"), ("messages_lost", "message")]
        ),
        problem_suffix(ipfix),
    )
}

/// Returns the addresses of the collectors.
fn targets(exporter: &Value) -> String {
    list(&exporter["targets"]).iter().map(word).collect::<Vec<_>>().join(",")
}

/// Returns counters of lost data of an exporter; empty if nothing is lost.
fn losses_text(exporter: &Value, counts: &[(&str, &str)]) -> String {
    let mut lost = String::new();
    for (key, what) in counts {
        if count(&exporter[key]) > 0 {
            let _ = write!(lost, ", lost {}", counted(count(&exporter[key]), what));
        }
    }
    lost
}

/// Returns the end of a line that names the problem of an exporter.
fn problem_suffix(exporter: &Value) -> String {
    exporter["problem"].as_str().map_or_else(String::new, |own| format!("; {own}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_sflow_agent_is_shown_with_its_losses() {
        let mut agent = json!({"targets": ["192.0.2.1", "192.0.2.2:99"], "agent_address": "192.0.2.7",
            "sampling": 64, "polling": 10, "header": 128, "samples": 1, "samples_dropped": 0,
            "datagrams": 2, "datagrams_lost": 0, "problem": null});
        let shown = exports(&json!({"sflow": agent, "netflow": null}));
        let options =
            "targets=192.0.2.1,192.0.2.2:99 agent=192.0.2.7 sampling=64 polling=10 header=128";
        assert_eq!(shown, format!("    sflow ({options}, sent 1 sample in 2 datagrams)\n"));
        agent["samples_dropped"] = json!(3);
        agent["datagrams_lost"] = json!(1);
        agent["problem"] = json!("no route");
        let shown = exports(&json!({"sflow": agent}));
        let expected = "in 2 datagrams, lost 3 samples, lost 1 datagram; no route)\n";
        assert!(shown.ends_with(expected), "{shown}");
    }

    #[test]
    fn a_netflow_exporter_is_shown_with_its_flows() {
        let mut exporter = json!({"targets": ["192.0.2.1"], "active_timeout": -1, "engine_type": 2,
            "engine_id": -1, "engine": 1, "add_id_to_interface": false, "active_flows": 7,
            "flows": 1, "flows_lost": 0, "datagrams": 1, "datagrams_lost": 0, "problem": null});
        let shown = exports(&json!({"netflow": exporter}));
        let options = "targets=192.0.2.1 active_timeout=-1 engine_type=2 engine_id=1";
        let expected =
            format!("    netflow ({options}, sent 1 flow in 1 datagram, 7 flows active)\n");
        assert_eq!(shown, expected);
        exporter["add_id_to_interface"] = json!(true);
        exporter["flows_lost"] = json!(3);
        let shown = exports(&json!({"netflow": exporter}));
        assert!(shown.contains("engine_id=1 add_id_to_interface, sent"), "{shown}");
        assert!(shown.ends_with("7 flows active, lost 3 flows)\n"), "{shown}");
    }

    #[test]
    fn set_of_collectors_is_shown_with_samples() {
        let set = json!({"id": 7, "targets": ["192.0.2.1"], "virtual_obs_id": "", "flows": 1,
            "cache_active_timeout": 60, "cache_max_flows": 9, "samples": 5, "flows_lost": 0,
            "messages": 3, "messages_lost": 1, "active_flows": 4, "problem": null});
        let shown = exports(&json!({"collector_sets": [set]}));
        let options = "targets=192.0.2.1 cache_active_timeout=60 cache_max_flows=9";
        let sent = "sent 1 flow of 5 samples in 3 messages, 4 flows active, lost 1 message";
        assert_eq!(shown, format!("    collector-set 7 ({options}, {sent})\n"));
    }

    #[test]
    fn an_ipfix_exporter_is_shown_with_its_samples() {
        let mut exporter = json!({"targets": ["192.0.2.1"], "sampling": 64, "obs_domain_id": 1,
            "obs_point_id": 2, "cache_active_timeout": 60, "cache_max_flows": 1000, "flows": 1,
            "samples": 5, "samples_dropped": 2, "flows_lost": 7, "messages": 3, "messages_lost": 1,
            "active_flows": 4, "problem": null});
        let shown = exports(&json!({"ipfix": exporter}));
        let options = "targets=192.0.2.1 sampling=64 obs_domain_id=1 obs_point_id=2 \
                       cache_active_timeout=60 cache_max_flows=1000";
        let sent = "sent 1 flow of 5 samples in 3 messages, 4 flows active, lost 2 samples, lost 7 flows, \
                    lost 1 message";
        assert_eq!(shown, format!("    ipfix ({options}, {sent})\n"));
        exporter["virtual_obs_id"] = json!("vm7");
        let shown = exports(&json!({"ipfix": exporter}));
        assert!(shown.contains("obs_point_id=2 virtual_obs_id=vm7 cache"), "{shown}");
    }
}
