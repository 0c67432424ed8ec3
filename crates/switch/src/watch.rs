//! What happens to threads and ports by itself: threads that end, links that go up or down, devices
//! that vanish and come back.

use shunt_datapath::thread::CacheMismatch;
use shunt_pipeline::BridgeId;
use tracing::{error, info, warn};

use crate::{
    control::Control,
    ports::bridges::Bridges,
    trace::report::{Trace, TraceVisit},
};

impl Control {
    /// Takes out the threads that have ended by a panic, and puts down the ports whose packets nobody
    /// receives any more.
    pub(crate) async fn watch_threads(&self) {
        let gone = self.plane.reclaim();
        if gone.listener {
            error!(
                "the listener thread has ended by a panic: controllers hear of no packet any more"
            );
        }
        if gone.target {
            self.lose_nic_owner(gone.vital.is_some());
        }
        if let Some(thread) = gone.vital {
            error!(thread, "it has ended by a panic: packet threads stop, restart the switch");
        } else {
            for thread in &gone.packet {
                error!(thread, "a packet thread has ended by a panic; the others go on without it");
            }
        }
        let _structure = self.structure.lock().await;
        let is_last = self.plane.living().is_empty();
        let cut_off = cut_off(&self.bridges.lock(), &gone.packet, is_last);
        for (name, thread) in cut_off {
            let trouble = match gone.vital {
                Some(thread) => format!("the {thread} has ended by a panic"),
                None => format!("packet thread {thread} has ended by a panic"),
            };
            warn!(port = name, trouble, "the port goes down");
            self.put_down(&name, &trouble).await;
        }
    }

    /// Looks after ports: notes links that went up or down, takes out what broke, opens what comes
    /// back.
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
            warn!(port = name, "the port has vanished; it stays down until it comes back");
            self.put_down(&name, "the device has vanished").await;
        }
        for (name, id, number) in closed {
            if self.open_port(&name).await.is_ok() {
                info!(port = name, "the port is back");
                self.changed_ports.add(id, number);
            }
        }
    }

    /// Says which cached answers were wrong, of many at once the first.
    pub(crate) fn tell_differences(&self) {
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
            "a cache entry was wrong and is dropped: this is a bug"
        );
    }

    /// Closes a port and says why; it keeps its place and its number.
    pub(crate) async fn put_down(&self, name: &str, trouble: &str) {
        let place = self.bridges.lock().find_port(name).map(|(own, port)| (own.id, port.number));
        let Ok((id, number)) = place else { return };
        if self.detach(name).await.is_ok() {
            self.with_port(id, number, |port| {
                port.trouble = Some(trouble.to_owned());
                // No thread has its queues any more, so this is the one who writes.
                port.traffic.iter().for_each(|traffic| traffic.rx_broken.set(0));
            });
            self.changed_ports.add(id, number);
        }
    }
}

/// What a trace comes to, in a line: rules by table, then actions.
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

/// The ports that nobody receives from, or not all of it, now that threads are gone: by name, each
/// with a thread that it misses.
fn cut_off(bridges: &Bridges, gone: &[usize], is_last: bool) -> Vec<(String, usize)> {
    let ports = bridges.iter().flat_map(|bridge| bridge.ports.values());
    let open = ports.filter(|port| port.open.is_some());
    let missed = |port: &crate::ports::port::BridgePort| {
        let receiver = gone.iter().find(|thread| port.receivers.contains(thread));
        receiver.filter(|_| !port.spreads()).or_else(|| gone.first().filter(|_| is_last)).copied()
    };
    open.filter_map(|port| Some((port.settings.name.clone(), missed(port)?))).collect()
}
