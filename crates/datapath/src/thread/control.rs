//! Commands of control, executed between two turns' bursts; and the way to sleep.

use std::{collections::VecDeque, os::fd::AsFd as _, os::fd::BorrowedFd};

use shunt_flow::{FlowKey, extract::extract};
use shunt_pipeline::DatapathPort;

use super::{
    PacketThread,
    receive::{RxPort, RxState},
    stall_budget::StallBudget,
};
use crate::{
    command::{Command, Injection, ThreadPort},
    metrics::DropReason,
    port::Queues,
    thread::execute::{Parsed, TxPort},
};

/// Commands taken in a turn.
const COMMANDS_PER_ITERATION: usize = 32;

impl PacketThread {
    /// Takes the commands that wait; answers how many there were.
    pub(super) fn take_commands(&mut self) -> usize {
        for count in 0..COMMANDS_PER_ITERATION {
            let Ok(command) = self.commands.pop() else { return count };
            self.obey(command);
        }
        COMMANDS_PER_ITERATION
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::AddPort(port) => self.add_port(*port),
            Command::RemovePort(port, reply) => reply(self.remove_port(port)),
            Command::Bind(port, bridge, number) => {
                for input in self.inputs.iter_mut().filter(|input| input.port == port) {
                    (input.bridge, input.number) = (bridge, number);
                }
            }
            Command::Inject(injection) => self.inject(&injection),
            Command::Pull(reply) => self.jobs.pull(self.caches.owner.entries().dirty(), reply),
            Command::Dump(reply) => self.jobs.dump(reply),
            Command::Entry(slot, reply) => reply(self.entry(slot)),
            Command::Tune(tuning) => {
                self.config.max_idle = tuning.max_idle;
                self.config.translations_per_iteration = tuning.translations_per_iteration;
                self.verifier.one_in = tuning.verify_one_in;
                self.repairer.set(tuning.repair);
                self.caches.replace(tuning.wildcard);
                self.counters.chain.clear_stages();
            }
            Command::OffloadCandidate(offers) => self.offers = offers.map(|offers| *offers),
            Command::StartCapture(tap) => self.outputs.taps.add(tap),
            Command::StopCapture(id, reply) => reply(self.outputs.taps.remove(id)),
        }
    }

    fn add_port(&mut self, added: ThreadPort) {
        let ThreadPort { port, bridge, number, capabilities, queues, traffic } = added;
        // A port of the same number gives way, as if it had been removed before.
        drop(self.remove_port(port));
        let tx = TxPort::new(port, queues.tx, capabilities, traffic.clone());
        self.outputs.add(tx);
        if let Some(queue) = queues.rx {
            self.inputs.push(RxPort {
                port,
                bridge,
                number,
                queue,
                state: RxState::Open,
                traffic,
                waiting: VecDeque::with_capacity(self.config.waiting_per_port),
                patience: StallBudget::new(self.config.patience, self.now),
            });
        }
        self.ports_changed += 1;
    }

    fn remove_port(&mut self, port: DatapathPort) -> Option<Queues> {
        self.outputs.flush(&mut self.pool);
        let tx = self.outputs.remove(port)?.queue;
        let input = self.inputs.iter().position(|input| input.port == port);
        let rx = input.map(|input| {
            let removed = self.inputs.remove(input);
            for packet in removed.waiting {
                self.outputs.drop(&mut self.pool, packet, DropReason::PortRemoved);
            }
            removed.queue
        });
        self.served_first = 0;
        self.ports_changed += 1;
        Some(Queues { rx, tx })
    }

    fn inject(&mut self, injection: &Injection) {
        let Injection { frame, ingress, traversal } = injection;
        self.outputs.tally.injected += 1;
        self.pipeline.credit(traversal, 1, frame.len() as u64, self.now);
        let Some(mut packet) = self.pool.take(frame.len(), *ingress) else {
            self.outputs.tally.dropped[DropReason::NoBuffer as usize] += 1;
            return;
        };
        packet.frame_mut().copy_from_slice(frame);
        let mut key = FlowKey::ZERO;
        let layers = extract(packet.frame(), self.config.vlan_limit, &mut key);
        key.set_bridge(traversal.key.bridge());
        key.set_in_port(traversal.key.in_port());
        let parsed = Parsed { key: &mut key, layers };
        self.execute_traversals(packet, std::slice::from_ref(traversal), parsed);
        self.recirculate();
    }

    /// Says that the thread is about to sleep, if it may: it holds no packet, has handed in its
    /// counts, can be woken by every queue, and nothing has come meanwhile. If the answer is `true`
    /// the caller waits on [`Self::wait_fds`] and then calls [`Self::unpark`].
    pub fn prepare_sleep(&mut self) -> bool {
        let can_be_woken =
            |input: &RxPort| input.state != RxState::Open || input.queue.wait_fd().is_some();
        if self.held() > 0 || !self.is_kept_up() || !self.inputs.iter().all(can_be_woken) {
            return false;
        }
        // Whoever finds it asleep counts on its looking into the mailbox first (rule 10).
        self.slept = true;
        self.link.waker().prepare_park();
        if self.link.mailbox().is_flagged() || !self.commands.is_empty() {
            self.link.waker().unpark();
            return false;
        }
        true
    }

    /// What wakes the thread when it sleeps.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.inputs.iter().filter(|input| input.state == RxState::Open);
        let queues = open.filter_map(|input| input.queue.wait_fd());
        std::iter::once(self.link.waker().as_fd()).chain(queues)
    }

    /// How often [`Self::wait_fds`] has changed.
    #[must_use]
    pub const fn ports_changed(&self) -> u64 {
        self.ports_changed
    }

    /// Says that the thread is awake again; a turn follows.
    pub fn unpark(&self) {
        self.link.waker().unpark();
    }
}
