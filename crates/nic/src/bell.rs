//! Queues between two threads of which the one that sends wakes the one that receives.
//!
//! Who sends rings the bell, a descriptor that becomes readable; who receives and finds nothing muffles
//! it, *and looks once more*: what was sent before it was muffled is found by that look, and what is
//! sent afterwards rings again. A bell that was rung already is not rung again, so two threads that are
//! busy make no system call for it.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use shunt_datapath::{
    Packet, Pool, PortError, RxQueue, TxEnd, TxQueue,
    port::{Queues, RxReport},
};

/// What wakes the receiver of a queue.
#[derive(Debug)]
struct Doorbell {
    event: EventFd,
    is_rung: AtomicBool,
}

impl Doorbell {
    fn new() -> nix::Result<Arc<Self>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags)?;
        Ok(Arc::new(Self { event, is_rung: AtomicBool::new(false) }))
    }

    /// Wakes the receiver, after something was sent.
    fn ring(&self) {
        // AcqRel: partner of `suppress`. Who muffles what was rung here sees what was sent before.
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // A counter that is full wakes as well.
            let _ = self.event.write(1);
        }
    }

    /// The receiver has found nothing; answers whether it is to look once more.
    fn suppress(&self) -> bool {
        // AcqRel: partner of `ring`.
        let was_rung = self.is_rung.swap(false, Ordering::AcqRel);
        if was_rung {
            let _ = self.event.read();
        }
        was_rung
    }
}

/// Has the senders of queues ring, and their receivers muffle: `far` receives what `near` sends, and
/// the other way round, each queue the one of its number.
pub(crate) fn hang(near: Vec<Queues>, far: Vec<Queues>) -> nix::Result<[Vec<Queues>; 2]> {
    let mut hung = [Vec::new(), Vec::new()];
    for (near, far) in near.into_iter().zip(far) {
        let bells = [Doorbell::new()?, Doorbell::new()?];
        for ((own, queues), (here, there)) in hung.iter_mut().zip([near, far]).zip([(0, 1), (1, 0)])
        {
            let (here, there) = (Arc::clone(&bells[here]), Arc::clone(&bells[there]));
            own.push(Queues {
                rx: queues
                    .rx
                    .map(|inner| -> Box<dyn RxQueue> { Box::new(Muffler { inner, bell: here }) }),
                tx: Box::new(Ringer { inner: queues.tx, rope: Rope(there), has_sent: false }),
            });
        }
    }
    Ok(hung)
}

/// Receives.
struct Muffler {
    inner: Box<dyn RxQueue>,
    bell: Arc<Doorbell>,
}

impl RxQueue for Muffler {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        let before = burst.len();
        let report = self.inner.rx(pool, burst)?;
        if burst.len() > before || report.refused > 0 || report.exhausted || !self.bell.suppress() {
            return Ok(report);
        }
        self.inner.rx(pool, burst)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.event.as_fd())
    }
}

/// Sends.
struct Ringer {
    // It goes before the rope: that the queue is over is to be noticed, too.
    inner: Box<dyn TxQueue>,
    rope: Rope,
    has_sent: bool,
}

/// Rings for the last time when it is dropped.
struct Rope(Arc<Doorbell>);

impl Drop for Rope {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl TxQueue for Ringer {
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
            self.rope.0.ring();
        }
    }
}
