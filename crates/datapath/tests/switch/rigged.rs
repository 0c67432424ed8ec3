//! Ports that fail: a queue that breaks, and one that panics.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
};

use shunt_datapath::{
    Packet, Pool, PortError, RxQueue, ThreadConfig, TxQueue, Waker,
    command::ThreadPort,
    port::{Capabilities, Queues, RxReport},
};
use shunt_flow::PortNo;
use shunt_pipeline::DatapathPort;

use crate::harness::{BRIDGE, Switch};

/// What a receive queue does when it is asked.
pub(crate) type Trick = fn() -> Result<RxReport, PortError>;

/// A receive queue with something to say at all times.
struct RiggedRx {
    trick: Trick,
    event: Waker,
}

/// A transmit queue that takes nothing.
struct NoTx;

impl RxQueue for RiggedRx {
    fn rx(&mut self, _: &mut Pool, _: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        (self.trick)()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }
}

impl TxQueue for NoTx {
    fn tx(&mut self, _: &[Packet]) -> usize {
        0
    }

    fn flush(&mut self) {}
}

/// A port whose receive queue does this.
pub(crate) fn rigged(port: u32, trick: Trick) -> ThreadPort {
    let event = Waker::new().unwrap();
    // A signal that nobody clears: the descriptor is readable for ever.
    event.doze();
    event.wake();
    ThreadPort {
        port: DatapathPort::new(port),
        bridge: BRIDGE,
        number: PortNo::new(port),
        capabilities: Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: true,
        },
        queues: Queues { rx: Some(Box::new(RiggedRx { trick, event })), tx: Box::new(NoTx) },
        traffic: Arc::default(),
    }
}

fn gone() -> Result<RxReport, PortError> {
    Err(PortError::DeviceGone { name: "rigged".to_owned() })
}

fn finished() -> Result<RxReport, PortError> {
    Ok(RxReport { refused: 0, exhausted: true })
}

#[test]
fn a_queue_that_gives_nothing_any_more_wakes_nobody() {
    for trick in [gone as Trick, finished] {
        let mut switch = Switch::new(1, 0, ThreadConfig::default());
        let port = rigged(1, trick);
        let traffic = Arc::clone(&port.traffic);
        let command = shunt_datapath::Command::AddPort(Box::new(port));
        switch.controls[0].send(command).unwrap();
        let thread = &mut switch.threads[0];
        let (before, own) = (thread.ports_changed(), thread.wait_fds().count());
        thread.turn(switch.now);
        assert_eq!(thread.wait_fds().count(), own, "the port came and is left out already");
        assert_eq!(thread.ports_changed(), before + 2, "whoever waits hears of both");
        assert_eq!(traffic.rx_broken.get(), u64::from(trick().is_err()));
        assert!(thread.prepare_sleep());
    }
}
