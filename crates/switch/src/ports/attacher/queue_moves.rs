//! Moves of receive queues between packet threads, while packets flow.

use std::{sync::Arc, time::Duration};

use shunt_datapath::{
    Command,
    command::{ReleasedReceiver, ThreadReceiver},
};
use shunt_pipeline::DatapathPort;
use tokio::{task::spawn_blocking, time::sleep};
use tracing::debug;

use super::PortAttacher;
use crate::threads::load::history::RxQueueName;

/// Number of requests to release a queue.
const RELEASE_ATTEMPTS: usize = 8;

/// Time between two requests, in which the thread empties the ring of the queue.
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

impl PortAttacher {
    /// Moves a receive queue to another packet thread; returns whether it has moved.
    ///
    /// The first thread releases the queue when it has sent all packets of the queue. The kernel
    /// queues the packets that arrive meanwhile. So the packets of each flow stay in order.
    pub(crate) async fn move_queue(&self, queue: RxQueueName, to: usize) -> bool {
        let RxQueueName { bridge, port, number } = queue;
        let found = self.bridges.with_port(bridge, port, |own| {
            // Queues that are held are not at their threads yet.
            let is_free = own.open.is_some() && own.held_queues.is_empty();
            let from = own.rx_queues.get(usize::from(number)).filter(|_| is_free)?.thread;
            Some((from, own.datapath?))
        });
        let Some((from, datapath)) = found.flatten().filter(|(from, _)| *from != to) else {
            return false;
        };
        let Some(released) = self.release_queue(from, datapath, number).await else {
            debug!(
                "packet thread {from}: keeps a receive queue, because its packets are not sent yet"
            );
            return false;
        };
        let ReleasedReceiver { queue, state } = released;
        let mut queue = Some(queue);
        let receiver = self.bridges.with_port(bridge, port, |own| {
            let traffic = Arc::clone(own.traffic.get(to)?);
            own.rx_queues.get_mut(usize::from(number))?.thread = to;
            let (policer, queue) = (own.policer.clone(), queue.take()?);
            let (port, number) = (datapath, own.number);
            Some(ThreadReceiver { port, bridge, number, queue, traffic, policer, state })
        });
        match receiver.flatten() {
            Some(receiver) => {
                self.plane.send(to, Command::AddReceiver(Box::new(receiver))).await;
                true
            }
            None => {
                // The port was removed. Closing its queue may take the kernel long.
                let _ = spawn_blocking(move || drop(queue)).await;
                false
            }
        }
    }

    /// Asks a packet thread for a receive queue; `None` if the thread keeps the queue.
    ///
    /// The thread polls the queue between two requests.
    async fn release_queue(
        &self,
        from: usize,
        port: DatapathPort,
        number: u16,
    ) -> Option<ReleasedReceiver> {
        for attempt in 0..RELEASE_ATTEMPTS {
            if attempt > 0 {
                sleep(RELEASE_PAUSE).await;
            }
            let release = |reply| Command::ReleaseReceiver(port, number, reply);
            let released = self.plane.ask_one(from, release).await?;
            if released.is_some() {
                return released;
            }
        }
        None
    }
}
