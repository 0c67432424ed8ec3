//! Doorbells: notifications by which the sender of a queue wakes the receiver.
//!
//! The sender notifies the doorbell, which sets a signal. A receiver that finds its queue empty
//! suppresses the notification *and polls the queue once more*. The second poll finds packets that
//! were sent before the suppression. Packets that are sent later notify the doorbell again. If a
//! doorbell is notified already, the sender does not set the signal again, so two busy threads make
//! no system calls.
//!
//! A `shunt_datapath::Waker` belongs to a thread, which announces that it will park before it reads
//! all of its queues once more. A doorbell belongs to one queue of a port, and `RxQueue::wait_fd`
//! returns its descriptor. The receiver of the queue may be any thread, and does not announce that
//! it parks.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use shunt_datapath::{
    Packet, Pool, PortError, RxQueue, Signal, TxEnd, TxQueue,
    port::{Queues, RxReport},
};

use super::flow_order::FinishedFrames;

/// A doorbell that wakes the receiver of a queue.
#[derive(Debug)]
struct Doorbell {
    signal: Signal,
    is_notified: AtomicBool,
}

impl Doorbell {
    /// Returns a doorbell that is not notified. Fails without a free descriptor.
    fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { signal: Signal::new()?, is_notified: AtomicBool::new(false) }))
    }

    /// Notifies the receiver after packets were sent.
    fn notify(&self) {
        // AcqRel pairs with `suppress`, after which the receiver sees the packets that were sent
        // before.
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            self.signal.set();
        }
    }

    /// Suppresses the notification; returns whether the receiver must poll once more.
    fn suppress(&self) -> bool {
        // AcqRel pairs with `notify`.
        let was_notified = self.is_notified.swap(false, Ordering::AcqRel);
        if was_notified {
            self.signal.clear();
        }
        was_notified
    }
}

/// Connected queues with doorbells.
pub(crate) struct Connected {
    pub(crate) near: Vec<Queues>,
    pub(crate) far: Vec<Queues>,
    /// The number of finished frames of the receiver of each far queue.
    pub(crate) progress: Vec<Arc<FinishedFrames>>,
}

/// Adds doorbells to connected queues.
///
/// Each `far` queue receives the packets that the `near` queue of the same number sends, and vice
/// versa.
pub(crate) fn add_doorbells(near: Vec<Queues>, far: Vec<Queues>) -> io::Result<Connected> {
    let mut connected = [Vec::new(), Vec::new()];
    let mut progress = Vec::new();
    for (near, far) in near.into_iter().zip(far) {
        progress.push(Arc::<FinishedFrames>::default());
        let mut published = progress.last().cloned();
        let doorbells = [Doorbell::new()?, Doorbell::new()?];
        for ((own, queues), (here, there)) in
            connected.iter_mut().zip([near, far]).zip([(0, 1), (1, 0)])
        {
            // Only the receivers of far queues publish their progress.
            let progress = if here == 1 { published.take() } else { None };
            let (here, there) = (Arc::clone(&doorbells[here]), Arc::clone(&doorbells[there]));
            let progress = progress.map(|progress| (progress, Arc::clone(&there)));
            own.push(Queues {
                rx: queues.rx.map(|inner| -> Box<dyn RxQueue> {
                    Box::new(DoorbellRx { inner, doorbell: here, progress })
                }),
                tx: Box::new(DoorbellTx {
                    inner: queues.tx,
                    notify_on_drop: NotifyOnDrop(there),
                    has_sent: false,
                }),
            });
        }
    }
    let [near, far] = connected;
    Ok(Connected { near, far, progress })
}

/// A receive queue with a doorbell.
struct DoorbellRx {
    inner: Box<dyn RxQueue>,
    doorbell: Arc<Doorbell>,
    /// The finished frames that the receiver publishes, and the doorbell of the sender.
    progress: Option<(Arc<FinishedFrames>, Arc<Doorbell>)>,
}

impl RxQueue for DoorbellRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let report = self.inner.rx(pool, burst)?;
        if burst.len() > before
            || report.refused > 0
            || report.exhausted
            || !self.doorbell.suppress()
        {
            return Ok(report);
        }
        self.inner.rx(pool, burst)
    }

    fn finished(&mut self, count: u64) {
        if let Some((progress, sender)) = &self.progress
            && progress.publish(count)
        {
            sender.notify();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.signal.as_fd())
    }
}

/// A transmit queue with a doorbell.
struct DoorbellTx {
    // The queue is dropped before the doorbell, so that the last notification also reports the end
    // of the queue.
    inner: Box<dyn TxQueue>,
    notify_on_drop: NotifyOnDrop,
    has_sent: bool,
}

/// Notifies the doorbell once more when the sender that owns this value is dropped.
struct NotifyOnDrop(Arc<Doorbell>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify();
    }
}

impl TxQueue for DoorbellTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let taken = self.inner.tx(packets);
        self.has_sent |= taken > 0;
        taken
    }

    fn tx_end(&self) -> TxEnd {
        self.inner.tx_end()
    }

    fn flush(&mut self) {
        self.inner.flush();
        if std::mem::take(&mut self.has_sent) {
            self.notify_on_drop.0.notify();
        }
    }
}
