//! Tests forecasts for ports of other packet threads, and tickets of preloads, with each cache.

use std::sync::Arc;

use shunt_datapath::{
    PortError,
    forecast::{ForecastConfig, ForecastSender, ForecastTicket},
    port::{
        Capabilities, Port, PortCopies, PortCounters, Queues,
        pair::{Pair, pair},
    },
};
use shunt_flow::testing::packet::PacketBuilder;
use shunt_foresight::{ForecastRefusal, Foresight, GovernorConfig, Reply};

use super::{
    forecasts::{forecast, frame, replies, switch},
    thread_config,
};
use crate::harness::{Switch, added};

/// A port from which a single packet thread receives.
struct OneReceiver {
    near: Pair,
    thread: usize,
}

impl Port for OneReceiver {
    fn capabilities(&self) -> Capabilities {
        self.near.capabilities()
    }

    fn split(&mut self, threads: u16) -> Result<Vec<Queues>, PortError> {
        let mut queues = self.near.split(threads)?;
        let others = queues.iter_mut().enumerate().filter(|(thread, _)| *thread != self.thread);
        others.for_each(|(_, own)| own.rx = None);
        Ok(queues)
    }

    fn link_up(&self) -> bool {
        true
    }

    fn mac(&self) -> [u8; 6] {
        self.near.mac()
    }

    fn copies(&self) -> PortCopies {
        PortCopies::default()
    }

    fn counters(&self) -> PortCounters {
        self.near.counters()
    }
}

/// Returns the reply to [`frame`].
fn reply() -> Vec<u8> {
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 0, 0, 1]).udp(2, 7).build()
}

/// Returns a switch of two packet threads that forecasts replies.
///
/// Only the second thread polls port 3, as for a device with one queue.
fn two_threads() -> (Switch, Vec<ForecastSender>) {
    let mut switch = Switch::new(2, 3, thread_config());
    let (near, mut far) = pair(2, 6);
    switch.attach_wired(3, &mut OneReceiver { near, thread: 1 }, far.split(2).unwrap());
    switch.settle();
    let senders = switch.attach_predictors(ForecastConfig::default(), || {
        let mut foresight = Foresight::new(GovernorConfig::default());
        foresight.add(Box::new(Reply::default()));
        foresight
    });
    switch.apply(&added(&[
        "udp,nw_dst=10.1.0.1,tp_dst=2,actions=output:3",
        "udp,nw_src=10.1.0.1,tp_src=2,actions=output:1",
    ]));
    (switch, senders)
}

/// The outcome of the forecast counts for the thread that predicted the reply.
#[test]
fn a_forecast_reaches_the_thread_of_its_port() {
    let (mut switch, senders) = two_threads();
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    assert_eq!(switch.receive(0, 3).len(), 1);
    let [first, second] = [0, 1].map(|thread| replies(&senders[thread]));
    assert_eq!((first.received, first.installed), (1, 1));
    assert_eq!((second.received, second.installed), (0, 0));
    assert!(switch.send(1, 3, &reply()));
    switch.settle();
    switch.settle();
    assert_eq!(switch.receive(1, 1).len(), 1);
    assert_eq!(switch.counters(1).upcalls.get(), 0, "the reply does not miss");
    assert_eq!((replies(&senders[0]).hits, replies(&senders[1]).hits), (1, 0));
}

#[test]
fn a_forecast_wakes_the_thread_of_its_port() {
    let (mut switch, senders) = two_threads();
    assert!(switch.sleep(1));
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    while switch.run_iteration(0) {}
    assert!(switch.is_woken(1));
    switch.settle();
    assert_eq!(replies(&senders[0]).installed, 1);
}

#[test]
fn a_thread_that_has_ended_gets_no_forecast() {
    let (mut switch, senders) = two_threads();
    drop(switch.threads.pop());
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    while switch.run_iteration(0) {}
    let counts = replies(&senders[0]);
    assert_eq!((counts.received, counts.refused_total()), (1, 1));
    assert_eq!(counts.refused[ForecastRefusal::NoSuchPort as usize], 1);
}

/// Two simultaneous preloads each count their own flows.
#[test]
fn a_preload_counts_its_own_flows_only() {
    let (mut switch, mut sender) = switch(thread_config());
    let tickets = [(), ()].map(|()| Arc::<ForecastTicket>::default());
    let flows = [(0, [10, 1, 0, 1]), (1, [10, 1, 0, 1]), (1, [10, 2, 0, 1]), (1, [10, 3, 0, 1])];
    for (call, target) in flows {
        assert!(sender.send_with(forecast(&switch, target), Some(Arc::clone(&tickets[call]))));
    }
    switch.settle();
    let [first, second] = tickets.each_ref().map(|ticket| ticket.counts());
    assert_eq!((first.installed, first.covered, first.device_offered), (1, 0, 0));
    assert_eq!((second.installed, second.covered), (1, 1));
    assert_eq!(second.refused[ForecastRefusal::Learns as usize], 1);
}
