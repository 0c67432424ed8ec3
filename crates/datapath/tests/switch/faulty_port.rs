//! Tests ports with faults: receive queues that fail or panic, and partial sends.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
};

use shunt_datapath::{
    DropReason, Packet, Pool, PortError, RxQueue, ThreadConfig, TxEnd, TxQueue, Waker,
    command::ThreadPort,
    port::{Capabilities, Queues, RxReport},
};
use shunt_flow::{Match, PortNo};
use shunt_pipeline::DatapathPort;

use crate::harness::{BRIDGE, Switch, output, rule};

/// The function that computes the result of each poll of a faulty receive queue.
pub(crate) type ReceiveResult = fn() -> Result<RxReport, PortError>;

/// A receive queue with a descriptor that is always readable.
struct FaultyRx {
    trick: ReceiveResult,
    event: Waker,
}

/// A transmit queue that takes no packet.
struct NoTx;

impl RxQueue for FaultyRx {
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

/// A transmit queue that stops at frames of certain lengths.
struct RefusingTx {
    end: TxEnd,
}

/// Length of the frames for which [`RefusingTx`] never has room.
const UNSENDABLE_FRAMES: usize = 61;
/// Length of the frames that [`RefusingTx`] refuses.
const REFUSED: usize = 62;
/// Length of the frames at which [`RefusingTx`] is full.
const FULL: usize = 63;
/// Length of the frames at which the device of [`RefusingTx`] is down.
const DOWN: usize = 66;

impl TxQueue for RefusingTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        let stops = [UNSENDABLE_FRAMES, REFUSED, FULL, DOWN];
        let place = packets.iter().position(|packet| stops.contains(&packet.len()));
        let Some(place) = place else { return packets.len() };
        self.end = match packets[place].len() {
            UNSENDABLE_FRAMES => TxEnd::Crowded,
            REFUSED => TxEnd::Refused,
            DOWN => TxEnd::Down,
            _ => TxEnd::Full,
        };
        place
    }

    fn tx_end(&self) -> TxEnd {
        self.end
    }

    fn flush(&mut self) {}
}

/// Returns a port with a faulty receive queue.
pub(crate) fn faulty_port(port: u32, trick: ReceiveResult) -> ThreadPort {
    faulty_port_with(port, trick, Box::new(NoTx))
}

fn faulty_port_with(port: u32, trick: ReceiveResult, tx: Box<dyn TxQueue>) -> ThreadPort {
    let event = Waker::new().unwrap();
    // No one clears this signal, so the descriptor stays readable.
    event.prepare_park();
    event.wake();
    ThreadPort {
        port: DatapathPort::new(port),
        bridge: BRIDGE,
        number: PortNo::new(port),
        capabilities: Capabilities {
            tx_checksum: true,
            tx_segmentation: true,
            tx_tunnel_segmentation: true,
            frame_max: Pool::LARGE,
            can_wait: true,
        },
        queues: Queues { rx: Some(Box::new(FaultyRx { trick, event })), tx },
        traffic: Arc::default(),
    }
}

fn report_removed_device() -> Result<RxReport, PortError> {
    Err(PortError::DeviceGone { name: "faulty".to_owned() })
}

fn exhausted_report() -> Result<RxReport, PortError> {
    Ok(RxReport { exhausted: true, ..RxReport::default() })
}

#[test]
fn an_ended_queue_wakes_no_thread() {
    for trick in [report_removed_device as ReceiveResult, exhausted_report] {
        let mut switch = Switch::new(1, 0, ThreadConfig::default());
        let port = faulty_port(1, trick);
        let traffic = Arc::clone(&port.traffic);
        let command = shunt_datapath::Command::AddPort(Box::new(port));
        switch.controls[0].send(command).unwrap();
        let thread = &mut switch.threads[0];
        thread.run_iteration(switch.now);
        assert_eq!(traffic.rx_broken.get(), u64::from(trick().is_err()), "polled once");
        assert!(thread.prepare_sleep());
        assert!(!switch.is_woken(0), "the readable descriptor wakes the thread");
    }
}

#[test]
fn an_unsendable_frame_is_dropped_alone() {
    // The lengths of the frames, and the numbers of sent frames, refused frames, frames dropped for
    // a full queue, and frames dropped for a device that is down.
    let cases: [(&[usize], [u64; 4]); 7] = [
        (&[60, 64, 65], [3, 0, 0, 0]),
        (&[60, REFUSED, 60, REFUSED], [2, 2, 0, 0]),
        (&[UNSENDABLE_FRAMES, 60, UNSENDABLE_FRAMES, 60], [2, 0, 2, 0]),
        (&[60, UNSENDABLE_FRAMES, UNSENDABLE_FRAMES, 60, 60], [1, 0, 4, 0]),
        (&[UNSENDABLE_FRAMES, REFUSED, 60], [1, 1, 1, 0]),
        (&[60, FULL, 60], [1, 0, 2, 0]),
        (&[60, REFUSED, DOWN, 60], [1, 1, 0, 2]),
    ];
    for (lengths, expected) in cases {
        let mut switch = Switch::new(1, 2, ThreadConfig::default());
        let picky = Box::new(RefusingTx { end: TxEnd::Full });
        let port = faulty_port_with(2, exhausted_report, picky);
        let traffic = Arc::clone(&port.traffic);
        switch.controls[0].send(shunt_datapath::Command::AddPort(Box::new(port))).unwrap();
        switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
        for length in lengths {
            assert!(switch.send(0, 1, &vec![0x22; *length]));
        }
        switch.settle();
        let counters = switch.counters(0);
        let dropped = |reason: DropReason| counters.dropped[reason as usize].get();
        let seen = [
            counters.sent.get(),
            dropped(DropReason::TxRefused),
            dropped(DropReason::TxQueueFull),
            dropped(DropReason::TxDeviceDown),
        ];
        assert_eq!((seen, counters.unaccounted()), (expected, 0), "{lengths:?}");
        assert_eq!(
            (traffic.tx_packets.get(), traffic.tx_dropped_total()),
            (seen[0], seen[1..].iter().sum::<u64>())
        );
    }
}
