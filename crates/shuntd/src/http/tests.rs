//! Tests of the health check with a hanging packet thread.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::{thread::sleep, time::Duration};

use shunt_datapath::{
    Packet, Pool, Port, PortError, RxQueue,
    port::{Capabilities, PortCopies, PortCounters, Queues, RxReport, null::Null},
};
use shunt_switch::{Config, Switch, config::BridgeOptions};

use super::health::HealthMonitor;

/// A port with a receive queue that does not return while `holds` is set.
struct HangingPort {
    null: Null,
    holds: Arc<AtomicBool>,
}

/// The receive queue of the port.
struct HangingRx(Arc<AtomicBool>);

impl Port for HangingPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities { can_wait: false, ..self.null.capabilities() }
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let mut queues = self.null.split(threads)?;
        queues[0].rx = Some(Box::new(HangingRx(Arc::clone(&self.holds))));
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mac(&self) -> [u8; 6] {
        self.null.mac()
    }

    fn copies(&self) -> PortCopies {
        PortCopies::default()
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

impl RxQueue for HangingRx {
    fn rx(&mut self, _: &mut Pool, _: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        while self.0.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
        Ok(RxReport::default())
    }
}

/// Waits until the problems that a monitor reports fulfil a condition.
async fn wait_until(monitor: &HealthMonitor, holds: impl Fn(&[String]) -> bool) {
    for _ in 0..2000 {
        let problems = monitor.problems();
        if holds(&problems) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", monitor.problems());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_thread_that_hangs_is_not_healthy() {
    let mut config = Config::default();
    config.threads.packet = 2;
    config.threads.sleep_max_ms = 100;
    let switch = Arc::new(Switch::start(&config, None, 1).await.unwrap());
    let bridge = BridgeOptions { name: "br0".into(), ..BridgeOptions::default() };
    switch.add_bridge(&bridge).await.unwrap();
    let holds = Arc::new(AtomicBool::new(false));
    let port = HangingPort { null: Null::new(1), holds: Arc::clone(&holds) };
    switch.add_own_port("br0", "p1", Box::new(port)).await.unwrap();
    // Each count must grow at least every half second.
    let monitor = Arc::new(HealthMonitor::new(Arc::clone(&switch), Duration::from_secs(1)));
    let observed = Arc::clone(&monitor);
    let observer = tokio::spawn(async move { observed.run().await });
    wait_until(&monitor, <[String]>::is_empty).await;
    holds.store(true, Ordering::Relaxed);
    let is_noticed = |problems: &[String]| {
        let has = |start: &str| problems.iter().any(|problem| problem.starts_with(start));
        has("packet thread 0: no progress for ") && has("periodic work of the control threads: ")
    };
    // The other threads may be slow on a busy machine, so only this problem is checked.
    wait_until(&monitor, is_noticed).await;
    holds.store(false, Ordering::Relaxed);
    wait_until(&monitor, <[String]>::is_empty).await;
    observer.abort();
}
