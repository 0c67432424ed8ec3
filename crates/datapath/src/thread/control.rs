//! A packet thread's commands of the control plane, and its transition to sleep.

use std::{os::fd::BorrowedFd, time::Duration};

use nix::sys::epoll::EpollTimeout;
use shunt_flow::{FlowKey, extract::extract};
use shunt_pipeline::DatapathPort;

use super::{
    PacketThread,
    receive::{RxPort, RxPorts, RxState},
    translations::{stall_budget::StallBudget, waiting::WaitingPackets},
    upkeep::{CREDIT_WAIT_MAX, DirtyCounts, dumped_entry},
};
use crate::{
    command::{
        Command, DumpedEntry, Injection, RemovedQueues, RxQueueState, ThreadPort, ThreadReceiver,
    },
    metrics::DropReason,
    thread::{execute::ParsedPacket, tx_port::TxPort},
};

/// Maximum number of commands taken in an iteration.
const COMMANDS_PER_ITERATION: usize = 32;

impl PacketThread {
    /// Executes queued commands of the control plane; returns their number.
    pub(super) fn take_commands(&mut self) -> usize {
        for count in 0..COMMANDS_PER_ITERATION {
            let Ok(command) = self.commands.pop() else { return count };
            self.handle_command(command);
        }
        COMMANDS_PER_ITERATION
    }

    /// Executes a command of the control plane.
    fn handle_command(&mut self, command: Command) {
        match command {
            Command::AddPort(port) => self.add_port(*port),
            Command::AddReceiver(receiver) => self.add_receiver(*receiver),
            Command::ReleaseReceiver(port, number, reply) => {
                self.rx_ports.begin_release(port, number, self.now, reply);
            }
            Command::RemovePort(port, reply) => reply(self.remove_port(port)),
            Command::Bind(port, bridge, number) => {
                self.port_bindings.set(port, bridge, number);
                self.rx_ports.bind(port, bridge, number);
            }
            Command::PoliceIngress(port, policer) => self.rx_ports.police(port, policer.as_ref()),
            Command::SetQos(port, qos) => self.outputs.set_qos(&mut self.pool, port, qos),
            Command::Inject(injection) => self.inject(&injection),
            Command::Ping(reply) => reply(()),
            Command::Pull(reply) => {
                // The counts of table decisions are few, and separate from the dirty cache slots.
                self.decisions.credit(&self.pipeline, 0, CREDIT_WAIT_MAX);
                let (entries, decisions) =
                    (self.caches.owner.entries().dirty(), self.decisions.dirty());
                self.jobs.pull(DirtyCounts { entries, decisions }, reply);
            }
            Command::Dump(reply) => self.jobs.dump(reply),
            Command::Entry(slot, reply) => reply(self.entry_in(slot)),
            Command::Tune(tuning) => {
                self.config.max_idle = tuning.max_idle;
                self.config.translations_per_iteration = tuning.translations_per_iteration;
                self.config.sleep_max = tuning.sleep_max;
                self.config.vlan_limit = tuning.vlan_limit;
                self.verifier.one_in = tuning.verify_one_in;
                self.repairer.set(tuning.repair);
                // Before the replacement, which puts the limit of the new cache in force.
                self.caches.set_entries_max(tuning.entries_max);
                self.caches.replace(tuning.wildcard);
                self.counters.chain.clear_stages();
            }
            Command::EmptyCaches => self.caches.empty(),
            Command::OffloadCandidate(candidates) => {
                self.candidates = candidates.map(|candidates| *candidates);
            }
            Command::Forecasts(forecasts) => {
                (self.forecasts, self.rx_ports.is_changed) = (forecasts, true);
            }
            Command::StartCapture(tap) => self.outputs.taps.add(tap),
            Command::StopCapture(id, reply) => reply(self.outputs.taps.remove(id)),
            Command::Sample(bridge, protocol, sampler) => {
                self.set_sampler(bridge, protocol, sampler);
            }
            Command::SampleByRules(sampler) => self.outputs.rule_samples.set(sampler),
            Command::CountFlows(bridge, cache, reply) => {
                reply(self.netflow.replace(bridge, cache));
            }
        }
    }

    /// Returns a snapshot of the entry in a slot.
    fn entry_in(&self, slot: u32) -> Option<DumpedEntry> {
        let speculation = self.forecasts.as_ref().map(|own| &own.speculation);
        dumped_entry(&self.caches, speculation, slot)
    }

    /// Adds a port to which this thread sends.
    fn add_port(&mut self, added: ThreadPort) {
        let ThreadPort { port, bridge, number, capabilities, queues, traffic } = added;
        // A port with this number may exist: the new port replaces it.
        drop(self.remove_port(port));
        let tx = TxPort::new(port, queues.tx, capabilities, traffic.clone());
        self.outputs.add(tx);
        self.port_bindings.set(port, bridge, number);
        if let Some(queue) = queues.rx {
            let (policer, state) = (None, RxQueueState::default());
            let added = ThreadReceiver { port, bridge, number, queue, traffic, policer, state };
            self.add_receiver(added);
        }
    }

    /// Adds a receive queue that this thread polls.
    fn add_receiver(&mut self, added: ThreadReceiver) {
        let ThreadReceiver { port, bridge, number, queue, traffic, policer, state } = added;
        let RxQueueState { number: number_in_port, received, load } = state;
        self.rx_ports.add(RxPort {
            port,
            bridge,
            number,
            queue,
            state: RxState::Open,
            may_have_more: false,
            traffic,
            policer,
            waiting: WaitingPackets::default(),
            received,
            burst_start: received,
            finished: received,
            stall_budget: StallBudget::new(self.config.stall_budget, self.now),
            number_in_port,
            load,
            counted: received,
            release: None,
        });
    }

    /// Removes a port from the thread; returns its queues.
    fn remove_port(&mut self, port: DatapathPort) -> Option<RemovedQueues> {
        self.outputs.flush(&mut self.pool);
        let mut removed = self.outputs.remove(port)?;
        self.outputs.drop_queued(&mut self.pool, &mut removed);
        self.port_bindings.remove(port);
        let tx = removed.queue;
        let mut rx = Vec::new();
        while let Some(removed) = self.rx_ports.remove(port) {
            for packet in removed.waiting.into_packets() {
                self.outputs.drop(&mut self.pool, packet, DropReason::PortRemoved);
            }
            rx.push(removed.queue);
        }
        Some(RemovedQueues { rx, tx })
    }

    /// Executes the actions of a packet-out on its frame.
    fn inject(&mut self, injection: &Injection) {
        let Injection { frame, ingress, traversal } = injection;
        self.outputs.tally.injected += 1;
        self.pipeline.credit(traversal, 1, frame.len() as u64, self.now);
        if self.pool.left(frame.len()) == 0 {
            self.outputs.send_batches(&mut self.pool);
        }
        let Some(mut packet) = self.pool.take(frame.len(), *ingress) else {
            self.outputs.tally.dropped[DropReason::NoBuffer as usize] += 1;
            return;
        };
        packet.frame_mut().copy_from_slice(frame);
        let mut key = FlowKey::ZERO;
        let layers = extract(packet.frame(), self.config.vlan_limit, &mut key);
        key.set_bridge(traversal.key.bridge());
        key.set_in_port(traversal.key.in_port());
        let parsed = ParsedPacket { key: &mut key, layers };
        let pending = self.execute_traversals(packet, std::slice::from_ref(traversal), parsed);
        self.finish(pending);
    }

    /// Announces that the thread is about to sleep; returns false if it must not.
    ///
    /// A thread may sleep if it holds no packet, has credited all hits, and no message has arrived.
    /// No receive queue may be ready or need polling, no packet in an egress queue may be due soon,
    /// and the configured longest sleep must not be zero. The caller then waits until
    /// [`Self::wait_fd`] is readable, at most for [`Self::sleep_max`], and calls [`Self::unpark`].
    pub fn prepare_sleep(&mut self) -> bool {
        if self.config.sleep_max.is_zero()
            || self.held() > 0
            || self.rx_ports.is_releasing()
            || !self.rx_ports.ready.is_empty()
            || !self.is_upkeep_done()
            || self.outputs.sleep_max().is_none()
        {
            return false;
        }
        // A sender that finds the thread asleep relies on the thread to check its mailbox first
        // (rule 10).
        self.slept = true;
        self.link.waker().prepare_park();
        let has_forecasts = self.forecasts.as_ref().is_some_and(|own| !own.is_empty());
        if self.link.mailbox().is_flagged() || !self.commands.is_empty() || has_forecasts {
            self.link.waker().unpark();
            return false;
        }
        true
    }

    /// Returns the longest time that the thread may sleep.
    ///
    /// The time is short while a device has not taken all packets, because no event reports that
    /// the device has room. The thread wakes when a predictor has a forecast, before a packet in an
    /// egress queue is due, and when a scan of NetFlow flows is due.
    #[must_use]
    pub fn sleep_max(&self) -> Duration {
        let limit = self.outputs.sleep_max().unwrap_or(Duration::ZERO);
        let forecasts = self.forecasts.as_ref();
        let forecast = forecasts.map_or(Duration::MAX, |own| own.time_to_forecast(self.now));
        let scan = self.netflow.time_to_scan(self.now);
        self.config.sleep_max.min(limit).min(forecast).min(scan)
    }

    /// Returns a file descriptor that is readable while the thread has work.
    ///
    /// Work is a message to the thread, or a packet on a port that is not broken.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.rx_ports.events.descriptor()
    }

    /// Waits until a port or a message wakes the thread; lists the ready ports.
    ///
    /// Only the runner calls this function.
    pub(super) fn sleep(&mut self) {
        // Rounds up to milliseconds, so that the work is due when the wait ends.
        let timeout = EpollTimeout::try_from(self.sleep_max().as_micros().div_ceil(1000));
        self.await_ports(timeout.unwrap_or(EpollTimeout::NONE));
    }

    /// Lists the ports that are ready; waits for a ready port until the timeout.
    pub(super) fn await_ports(&mut self, timeout: EpollTimeout) {
        let RxPorts { events, ready, .. } = &mut self.rx_ports;
        events.ask(ready, timeout);
    }

    /// Finds ports that became ready, with a query of epoll if one is due.
    pub(super) fn find_ready(&mut self) {
        self.rx_ports.check_devices(self.now);
        if self.rx_ports.ready.must_query_epoll() {
            self.await_ports(EpollTimeout::ZERO);
        }
    }

    /// Announces that the thread is awake; an iteration must follow.
    pub fn unpark(&self) {
        self.link.waker().unpark();
    }
}
