//! The quality of service of ports.

use shunt_switch::{
    BridgePortStatus,
    config::{QosOptions, QosType},
};

use super::{command::commands, methods::DaemonMethods};

commands! {
    "qos/show" "interface", 1..=1, Read, qos, "Show the QoS of a port";
    "qos/show-types" "interface", 1..=1, Read, qos_types, "List the QoS types of a port";
}

async fn qos(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let port = find_port(methods, arguments)?;
    let Some(qos) = port.qos else { return Ok(format!("QoS not configured on {}", port.name)) };
    let QosOptions { kind, cir, cbs } = qos;
    let keys = match kind {
        QosType::EgressPolicer => format!("cbs: {cbs}\ncir: {cir}\n"),
        QosType::LinuxNoop => String::new(),
    };
    Ok(format!("QoS: {} {}\n{keys}", port.name, kind.name()))
}

async fn qos_types(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let port = find_port(methods, arguments)?;
    if !port.may_have_qos() {
        return Ok(format!("No QoS types supported for interface: {}", port.name));
    }
    Ok(QosType::ALL.iter().map(|kind| format!("QoS type: {}\n", kind.name())).collect())
}

fn find_port(methods: &DaemonMethods, arguments: &[String]) -> Result<BridgePortStatus, String> {
    let name = arguments.first().map_or("", String::as_str);
    let bridges = methods.switch.bridges().into_iter();
    let mut ports = bridges.flat_map(|bridge| bridge.ports);
    ports.find(|port| port.name == name).ok_or_else(|| "no such interface".to_owned())
}
