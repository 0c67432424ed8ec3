//! Reactions to events outside: threads that panic, links that go up or down, devices that vanish
//! and return.

use shunt_datapath::thread::CacheMismatch;
use shunt_pipeline::BridgeId;
use tracing::{error, info, warn};

use crate::{
    control::ControlPlane,
    ports::bridges::BridgeRegistry,
    trace::report::{Trace, TraceVisit},
};

impl ControlPlane {
    /// Removes threads that panicked, and takes down ports without a receiver.
    pub(crate) async fn watch_threads(&self) {
        let stopped = self.plane.reclaim();
        if stopped.listener {
            error!(
                "listener thread: panicked; controllers receive no packet-ins, restart the switch"
            );
        }
        if stopped.offload {
            self.lose_nic_agent(stopped.vital.is_some());
        }
        if let Some(thread) = stopped.vital {
            error!("{thread}: panicked; all packet threads stop, restart the switch");
        } else {
            for thread in &stopped.packet {
                error!("packet thread {thread}: panicked; the other threads continue");
            }
        }
        let _structure = self.structure.lock().await;
        let is_last = self.plane.living().is_empty();
        let cut_off = cut_off(&self.bridges.lock(), &stopped.packet, is_last);
        for (name, thread) in cut_off {
            let trouble = match stopped.vital {
                Some(thread) => format!("the {thread} panicked"),
                None => format!("packet thread {thread} panicked"),
            };
            warn!(reason = trouble, "port {name}: down");
            self.take_down(&name, &trouble).await;
        }
    }

    /// Checks ports.
    ///
    /// Records link changes, closes broken ports, and opens ports when their device returns.
    pub(crate) async fn watch_ports(&self) {
        let _structure = self.structure.lock().await;
        let has_threads = !self.plane.living().is_empty();
        let nic = self.nic().filter(|nic| nic.closes_ports().is_some());
        let (mut broken, mut closed, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for bridge in self.bridges.lock().iter_mut() {
            for port in bridge.ports.values_mut() {
                let name = port.settings.name.clone();
                if port.is_broken() {
                    broken.push(name);
                } else if let Some(open) = &port.open {
                    let link_up = open.link_up();
                    if link_up != port.link_up {
                        port.link_up = link_up;
                        info!("port {name}: link {}", if link_up { "up" } else { "down" });
                        changed.push((bridge.id, port.number));
                    }
                } else if port.trouble.is_some()
                    && port.comes_back()
                    && has_threads
                    && !nic.as_ref().is_some_and(|nic| nic.takes(bridge.id, port.number))
                {
                    closed.push((name, bridge.id, port.number));
                }
            }
        }
        if !changed.is_empty() {
            self.publish_ports();
        }
        changed.into_iter().for_each(|(id, number)| self.changed_ports.add(id, number));
        for name in broken {
            warn!("port {name}: device has vanished, down until it returns");
            self.take_down(&name, "the device has vanished").await;
        }
        for (name, id, number) in closed {
            if self.open_port(&name).await.is_ok() {
                info!("port {name}: device has returned, up");
                self.changed_ports.add(id, number);
            }
        }
    }

    /// Logs that cached results were wrong.
    ///
    /// The first one in full, and the number of all.
    pub(crate) fn log_differences(&self) {
        let found = self.plane.take_differences();
        let Some(CacheMismatch { cached, fresh }) = found.first() else { return };
        let bridge = BridgeId::new(u16::try_from(fresh.key.bridge()).unwrap_or_default());
        let fresh = self.explain_alone(fresh, bridge);
        let pieces = cached.iter().map(|piece| answer(&self.explain_alone(piece, bridge)));
        let cached = pieces.collect::<Vec<_>>().join(" | ");
        let count = self.cache_status().differences;
        warn!(
            flow = fresh.flow,
            cached,
            tables = answer(&fresh),
            version = fresh.version,
            count,
            "cache entry: wrong result, entry dropped; please report this bug"
        );
    }

    /// Closes a port and records the reason; the port keeps its number.
    pub(crate) async fn take_down(&self, name: &str, trouble: &str) {
        let place = self.bridges.lock().find_port(name).map(|(own, port)| (own.id, port.number));
        let Ok((id, number)) = place else { return };
        if self.detach(name).await.is_ok() {
            self.with_port(id, number, |port| {
                port.trouble = Some(trouble.to_owned());
                // No thread has a queue of this port, so this is the only writer.
                port.traffic.iter().for_each(|traffic| traffic.rx_broken.set(0));
            });
            self.changed_ports.add(id, number);
        }
    }
}

/// Returns a trace in one line: rules by table, then actions.
fn answer(trace: &Trace) -> String {
    let rule = |visit: &TraceVisit| match &visit.rule {
        Some(rule) => {
            format!("{}. priority {}, cookie {}; ", visit.table, rule.priority, rule.cookie)
        }
        None => format!("{}. No match; ", visit.table),
    };
    let actions = if trace.actions.is_empty() { "drop".into() } else { trace.actions.join(",") };
    trace.visits.iter().map(rule).collect::<String>() + &actions
}

/// Returns the names of ports that lost a receiving thread, each with that thread.
fn cut_off(bridges: &BridgeRegistry, stopped: &[usize], is_last: bool) -> Vec<(String, usize)> {
    let ports = bridges.iter().flat_map(|bridge| bridge.ports.values());
    let open = ports.filter(|port| port.open.is_some());
    let missed = |port: &crate::ports::port::BridgePort| {
        let receiver = stopped.iter().find(|thread| port.receivers.contains(thread));
        receiver
            .filter(|_| !port.spreads())
            .or_else(|| stopped.first().filter(|_| is_last))
            .copied()
    };
    open.filter_map(|port| Some((port.settings.name.clone(), missed(port)?))).collect()
}
