//! Commands for the quality of service (QoS) of ports.

use std::fmt::Write as _;

use shunt_datapath::egress::htb::{HtbOptions, HtbQueue};
use shunt_switch::{BridgePortStatus, EgressQueueStatus, config::QosType};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "qos/show" "interface", 1..=1, Read, qos, "Show the QoS of a port";
    "qos/show-types" "interface", 1..=1, Read, qos_types, "List the QoS types of a port";
}

/// Handles `qos/show`: shows the QoS of a port.
async fn qos(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let port = find_port(methods, arguments)?;
    let Some(qos) = &port.qos else { return Ok(format!("QoS not configured on {}", port.name)) };
    let head = format!("QoS: {} {}\n", port.name, qos.kind.name());
    let rest = match qos.kind {
        QosType::EgressPolicer => format!("cbs: {}\ncir: {}\n", qos.cbs, qos.cir),
        QosType::LinuxHtb => {
            port.htb.as_ref().map(|rates| htb(rates, &port.queues)).unwrap_or_default()
        }
        QosType::LinuxNoop => String::new(),
    };
    Ok(head + &rest)
}

/// Returns the rates and the queues of `linux-htb` as text.
fn htb(options: &HtbOptions, counts: &[EgressQueueStatus]) -> String {
    let mut text = format!("max-rate: {}\n", options.max_rate);
    for (HtbQueue { min_rate, max_rate, burst, priority }, counts) in
        options.queues.values().zip(counts)
    {
        let EgressQueueStatus { id, tx_packets, tx_bytes, tx_errors, .. } = counts;
        let name = if *id == 0 { "Default".to_owned() } else { format!("Queue {id}") };
        let burst = if *burst > 0 { format!("  burst: {burst}\n") } else { String::new() };
        let _ = write!(
            text,
            "\n{name}:\n{burst}  max-rate: {max_rate}\n  min-rate: {min_rate}\n  priority: {priority}\n  \
             tx_packets: {tx_packets}\n  tx_bytes: {tx_bytes}\n  tx_errors: {tx_errors}\n"
        );
    }
    text
}

/// Handles `qos/show-types`: lists the QoS types of a port.
async fn qos_types(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let port = find_port(methods, arguments)?;
    if !port.may_have_qos() {
        return Ok(format!("No QoS types supported for interface: {}", port.name));
    }
    Ok(QosType::ALL.iter().map(|kind| format!("QoS type: {}\n", kind.name())).collect())
}

/// Returns the port that the first argument names.
fn find_port(methods: &DaemonMethods, arguments: &[String]) -> Result<BridgePortStatus, String> {
    let name = arguments.first().map_or("", String::as_str);
    let bridges = methods.switch.bridges().into_iter();
    let mut ports = bridges.flat_map(|bridge| bridge.ports);
    ports.find(|port| port.name == name).ok_or_else(|| "no such interface".to_owned())
}
