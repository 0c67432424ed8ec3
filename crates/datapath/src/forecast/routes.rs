//! Forecasts of flows that arrive on the ports of other packet threads.
//!
//! Only the packet thread that receives the packets of a flow can use an entry. The reply to a flow
//! may arrive on a port that another thread polls. So each thread publishes the ports that it
//! polls, and has an inbox for the forecasts of other threads.
//!
//! Packet threads only try the locks. A forecast that finds its inbox locked is refused (`queue_full`).
//! The outcome of a forecast counts for the predictor that made it, on its own thread.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use shunt_flow::PortNo;
use shunt_foresight::{Forecast, ForecastRefusal};
use shunt_pipeline::InstallNo;

use super::{ForecastAccount, ForecastQueue, WaitingForecast};
use crate::evict::link::Link;

/// The packet threads of a switch, with the ports that each of them polls.
#[derive(Clone, Debug, Default)]
pub struct ForecastRoutes(Arc<RwLock<Vec<Arc<ForecastInbox>>>>);

/// A port: the number of its bridge, and its number in the bridge.
pub(crate) type IngressPort = (u64, PortNo);

/// The ports of a packet thread, and forecasts of other threads for these ports.
#[derive(Debug)]
pub(crate) struct ForecastInbox {
    /// The ports that the packet thread polls.
    ports: Mutex<BTreeSet<IngressPort>>,
    /// The forecasts of other threads, with the counters for their outcomes.
    forecasts: Mutex<VecDeque<(Forecast, ForecastAccount)>>,
    /// The length of `forecasts`, which can be read without the lock.
    count: AtomicUsize,
    /// The link of the packet thread: its mailbox, waker and acknowledged version.
    link: Arc<Link>,
}

/// Maximum number of forecasts in an inbox.
const INBOX_MAX: usize = 256;

impl ForecastRoutes {
    /// Adds a packet thread, with the number of earlier threads as its index.
    pub(crate) fn join(&self, link: &Arc<Link>) -> Arc<ForecastInbox> {
        let inbox = Arc::new(ForecastInbox {
            ports: Mutex::default(),
            forecasts: Mutex::default(),
            count: AtomicUsize::new(0),
            link: Arc::clone(link),
        });
        self.0.write().push(Arc::clone(&inbox));
        inbox
    }

    /// Returns the indexes of the packet threads that poll a port.
    #[must_use]
    pub fn receivers(&self, bridge: u64, number: PortNo) -> Vec<usize> {
        let threads = self.0.read();
        let polls = |own: &Arc<ForecastInbox>| own.ports.lock().contains(&(bridge, number));
        let receivers = threads.iter().enumerate().filter(|(_, own)| polls(own));
        receivers.map(|(index, _)| index).collect()
    }

    /// Sends a forecast to a packet thread that polls its port, or refuses it.
    ///
    /// If several threads poll the port, the first of these threads gets the forecast, although the
    /// flow may arrive on another.
    pub(crate) fn send(&self, port: IngressPort, forecast: Forecast, account: ForecastAccount) {
        // The write lock is taken only when threads are added, at the start.
        let Some(threads) = self.0.try_read() else {
            return account.refuse(ForecastRefusal::QueueFull);
        };
        match threads.iter().find(|own| own.polls(port)) {
            Some(receiver) => receiver.push(forecast, account),
            None => account.refuse(ForecastRefusal::NoSuchPort),
        }
    }
}

impl ForecastInbox {
    /// Publishes the ports that the thread polls.
    pub(crate) fn set_ports(&self, ports: BTreeSet<IngressPort>) {
        // Other threads hold the lock only for a lookup.
        *self.ports.lock() = ports;
    }

    /// Returns whether the running thread of this inbox polls a port.
    fn polls(&self, port: IngressPort) -> bool {
        let is_listed = self.ports.try_lock().is_some_and(|ports| ports.contains(&port));
        is_listed && !self.link.is_retired()
    }

    /// Adds a forecast, or refuses it if the inbox is full or locked.
    fn push(&self, forecast: Forecast, account: ForecastAccount) {
        let inbox = self.forecasts.try_lock().filter(|inbox| inbox.len() < INBOX_MAX);
        let Some(mut inbox) = inbox else { return account.refuse(ForecastRefusal::QueueFull) };
        inbox.push_back((forecast, account));
        self.count.store(inbox.len(), Ordering::Relaxed);
        drop(inbox);
        self.link.waker().wake();
    }

    /// Moves forecasts to the queue of the thread.
    /// `last` is the number of the last install of the thread.
    pub(crate) fn take(&self, waiting: &mut ForecastQueue, last: InstallNo) {
        // Relaxed: the lock orders the contents. A thread that was woken sees the count, by the fences
        // of the waker.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut inbox) = self.forecasts.try_lock() else { return };
        for (forecast, account) in inbox.drain(..) {
            waiting.push(WaitingForecast { forecast, last, account });
        }
        self.count.store(0, Ordering::Relaxed);
    }

    /// Returns whether nothing waits, and nothing is about to be added.
    pub(crate) fn is_empty(&self) -> bool {
        self.forecasts.try_lock().is_some_and(|inbox| inbox.is_empty())
    }
}
