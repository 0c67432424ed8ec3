//! Tests ports without privileges: every packet is delivered or counted.

#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of test functions fail the test that calls them"
)]

use std::path::Path;

use shunt_datapath::{
    BURST, Packet, Pool, PortError, RxQueue, VirtioHeader,
    port::{
        FrameCopies, Port, PortCopies, PortSpec, Queues, Repeat, RxReport, open,
        pair::{self, pair},
        tap,
    },
};
use shunt_pipeline::DatapathPort;

fn packets(pool: &mut Pool, count: usize) -> Vec<Packet> {
    let packet = |number: usize| {
        let mut packet = pool.take(60 + number, DatapathPort::default()).unwrap();
        packet.frame_mut().fill(u8::try_from(number % 256).unwrap());
        packet
    };
    (0..count).map(packet).collect()
}

fn only_queues(mut queues: Vec<Queues>) -> Queues {
    assert_eq!(queues.len(), 1);
    queues.remove(0)
}

/// Receives until a poll returns no packet.
/// Returns the frames, the number of refused frames, and whether the queue is exhausted.
fn drain(rx: &mut dyn RxQueue, pool: &mut Pool) -> (Vec<Vec<u8>>, u32, bool) {
    let (mut frames, mut refused) = (Vec::new(), 0);
    loop {
        let mut burst = Vec::new();
        let report = rx.rx(pool, &mut burst).unwrap();
        assert!(burst.len() <= BURST);
        refused += report.refused;
        frames.extend(burst.iter().map(|packet| packet.frame().to_vec()));
        let received = burst.len();
        burst.into_iter().for_each(|packet| pool.put_back(packet));
        if received == 0 && report.refused == 0 {
            return (frames, refused, report.exhausted);
        }
    }
}

fn put_all_back(pool: &mut Pool, packets: Vec<Packet>) {
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}

#[test]
fn a_null_port_takes_everything_and_gives_nothing() {
    let mut port = open(&PortSpec::Null, 1).unwrap();
    assert_eq!((port.mac(), port.link_up()), ([2, 0, 0, 0, 0, 1], true));
    let queues = port.split(3).unwrap();
    assert!(queues.len() == 3 && queues.iter().all(|queues| queues.rx.is_none()));
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 100);
    for mut queues in queues {
        assert_eq!(queues.tx.tx(&sent), 100);
        queues.tx.flush();
    }
    put_all_back(&mut pool, sent);
    assert_eq!(pool.out(), 0);
}

/// Returns the copies of some frames with 60, 61 .. bytes.
fn copies_of(count: u64) -> FrameCopies {
    FrameCopies { frames: count, bytes: (0..count).map(|number| 60 + number).sum() }
}

#[test]
fn a_null_port_copies_nothing() {
    let mut port = open(&PortSpec::Null, 1).unwrap();
    let (mut queues, mut pool) = (only_queues(port.split(1).unwrap()), Pool::new());
    let sent = packets(&mut pool, 100);
    assert_eq!(queues.tx.tx(&sent), 100);
    put_all_back(&mut pool, sent);
    assert_eq!(port.copies(), PortCopies::default());
}

/// The receiver takes over the buffer of the sender.
#[test]
fn a_pair_copies_each_packet_on_send() {
    let (mut left, mut right) = pair(1, 0);
    let (mut near, mut far) =
        (only_queues(left.split(1).unwrap()), only_queues(right.split(1).unwrap()));
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 70);
    assert_eq!(near.tx.tx(&sent), 70);
    assert_eq!(drain(far.rx.as_mut().unwrap().as_mut(), &mut pool).0.len(), 70);
    assert_eq!(left.copies(), PortCopies { tx: copies_of(70), ..PortCopies::default() });
    assert_eq!(right.copies(), PortCopies::default());
    // A full ring takes no more copies.
    let taken: usize = (0..20).map(|_| near.tx.tx(&sent)).sum();
    assert_eq!(left.copies().tx.frames, 70 + taken as u64);
    put_all_back(&mut pool, sent);
}

#[test]
fn a_capture_file_is_copied_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 90);
    let mut writer = pcap(None, Some(&path), Repeat::Once).unwrap();
    let mut queues = writer.split(2).unwrap();
    for (queues, sent) in queues.iter_mut().zip(sent.chunks(45)) {
        assert_eq!(queues.tx.tx(sent), 45);
    }
    assert_eq!(writer.copies(), PortCopies { tx: copies_of(90), ..PortCopies::default() });
    drop((queues, writer));
    let mut reader = pcap(Some(&path), None, Repeat::Once).unwrap();
    let mut queues = only_queues(reader.split(1).unwrap());
    assert_eq!(drain(queues.rx.as_mut().unwrap().as_mut(), &mut pool).0.len(), 90);
    assert_eq!(reader.copies(), PortCopies { rx: copies_of(90), ..PortCopies::default() });
    // Without a file to write, nothing is taken and nothing is copied.
    assert_eq!(queues.tx.tx(&sent), 0);
    assert_eq!(reader.copies().tx, FrameCopies::default());
    put_all_back(&mut pool, sent);
}

#[test]
fn pair_carries_virtio_headers_in_both_directions() {
    let (mut left, mut right) = pair(1, 5);
    assert_ne!(left.mac(), right.mac());
    let (mut left, mut right) =
        (only_queues(left.split(1).unwrap()), only_queues(right.split(1).unwrap()));
    let mut pool = Pool::new();
    let mut sent = packets(&mut pool, 3);
    sent[1].virtio =
        VirtioHeader { needs_checksum: true, checksum_start: 34, ..VirtioHeader::default() };
    assert_eq!(left.tx.tx(&sent), 3);
    let mut burst = Vec::new();
    let report = right.rx.as_mut().unwrap().rx(&mut pool, &mut burst).unwrap();
    assert_eq!((burst.len(), report), (3, RxReport::default()));
    for (sent, received) in sent.iter().zip(&burst) {
        assert_eq!((sent.frame(), sent.virtio), (received.frame(), received.virtio));
    }
    assert_eq!(right.tx.tx(&burst), 3);
    let (back, refused, _) = drain(left.rx.as_mut().unwrap().as_mut(), &mut pool);
    assert_eq!((back.len(), refused), (3, 0));
    put_all_back(&mut pool, sent);
    put_all_back(&mut pool, burst);
    assert_eq!(pool.out(), 0, "every pool gets back what it gave");
}

#[test]
fn full_pair_leaves_packets_with_sender() {
    let (mut left, mut right) = pair(1, 0);
    let (mut left, mut right) =
        (only_queues(left.split(1).unwrap()), only_queues(right.split(1).unwrap()));
    let (mut sender, mut receiver) = (Pool::new(), Pool::new());
    let sent = packets(&mut sender, 50);
    let (mut taken, mut received) = (0, 0);
    for round in 0..200 {
        taken += left.tx.tx(&sent);
        if round % 3 == 2 {
            received += drain(right.rx.as_mut().unwrap().as_mut(), &mut receiver).0.len();
        }
        assert!(taken - received <= pair::RING);
    }
    assert!(taken == 200 * 50, "a ring that is drained in time takes all");
    received += drain(right.rx.as_mut().unwrap().as_mut(), &mut receiver).0.len();
    assert_eq!((received, receiver.out()), (taken, 0));

    let full: usize = (0..100).map(|_| left.tx.tx(&sent)).sum();
    assert_eq!(full, pair::RING);
}

#[test]
fn a_receiver_without_buffers_counts_refused_frames() {
    let (mut left, mut right) = pair(1, 0);
    let (mut left, mut right) =
        (only_queues(left.split(1).unwrap()), only_queues(right.split(1).unwrap()));
    let (mut sender, mut receiver) = (Pool::new(), Pool::new());
    let held: Vec<_> = std::iter::from_fn(|| receiver.take(60, DatapathPort::default())).collect();
    assert_eq!(held.len(), Pool::SMALL_MAX);
    let sent = packets(&mut sender, 10);
    assert_eq!(left.tx.tx(&sent), 10);
    let (frames, refused, _) = drain(right.rx.as_mut().unwrap().as_mut(), &mut receiver);
    assert_eq!((frames.len(), refused), (0, 10));
    put_all_back(&mut receiver, held);
    assert_eq!(left.tx.tx(&sent), 10, "the sender has its buffers back");
    assert_eq!(drain(right.rx.as_mut().unwrap().as_mut(), &mut receiver).0.len(), 10);
}

#[test]
fn closed_peer_is_reported_after_last_packet() {
    let (mut left_port, mut right_port) = pair(1, 0);
    let (mut left, mut right) =
        (only_queues(left_port.split(1).unwrap()), only_queues(right_port.split(1).unwrap()));
    assert!(left_port.link_up() && right_port.link_up());
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 1);
    assert_eq!(left.tx.tx(&sent), 1);
    drop(left);
    assert!(left_port.link_up() && !right_port.link_up());
    assert_eq!(right.tx.tx(&sent), 0);
    let (frames, _, exhausted) = drain(right.rx.as_mut().unwrap().as_mut(), &mut pool);
    assert_eq!((frames.len(), exhausted), (1, true));
}

#[test]
fn pair_across_threads_loses_no_packet() {
    const COUNT: usize = 20_000;
    let (mut left, mut right) = pair(1, 0);
    let (mut left, mut right) =
        (only_queues(left.split(1).unwrap()), only_queues(right.split(1).unwrap()));
    let sender = std::thread::spawn(move || {
        let mut pool = Pool::new();
        let mut sent = 0;
        while sent < COUNT {
            let burst = packets(&mut pool, (COUNT - sent).min(BURST));
            let taken = left.tx.tx(&burst);
            put_all_back(&mut pool, burst);
            sent += taken;
            if taken == 0 {
                std::thread::yield_now();
            }
        }
        left
    });
    let (mut pool, mut received) = (Pool::new(), 0);
    while received < COUNT {
        received += drain(right.rx.as_mut().unwrap().as_mut(), &mut pool).0.len();
    }
    assert_eq!((received, pool.out()), (COUNT, 0));
    drop(sender.join().unwrap());
}

#[test]
fn a_port_splits_into_queues_only_once() {
    let (mut left, _right) = pair(2, 0);
    assert!(matches!(left.split(1), Err(PortError::OtherThreads { made: 2, wanted: 1, .. })));
    assert_eq!(left.split(2).unwrap().len(), 2);
    assert!(matches!(left.split(2), Err(PortError::AlreadySplit { .. })));
}

fn pcap(rx: Option<&Path>, tx: Option<&Path>, repeat: Repeat) -> Result<Box<dyn Port>, PortError> {
    let spec = PortSpec::Pcap { rx: rx.map(Into::into), tx: tx.map(Into::into), repeat };
    open(&spec, 9)
}

#[test]
fn a_written_file_replays_the_same_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 300);
    let mut port = pcap(None, Some(&path), Repeat::Once).unwrap();
    for queues in port.split(3).unwrap().iter_mut().zip(sent.chunks(100)) {
        let (queues, sent) = queues;
        assert!(queues.rx.is_none());
        assert_eq!(queues.tx.tx(sent), 100);
        queues.tx.flush();
    }
    drop(port);

    let mut port = pcap(Some(&path), None, Repeat::Once).unwrap();
    let mut queues = port.split(2).unwrap();
    assert!(queues[1].rx.is_none(), "the first thread receives");
    let (frames, refused, exhausted) = drain(queues[0].rx.as_mut().unwrap().as_mut(), &mut pool);
    assert_eq!((refused, exhausted), (0, true));
    assert_eq!(frames, sent.iter().map(|packet| packet.frame().to_vec()).collect::<Vec<_>>());
    assert!(matches!(port.split(2), Err(PortError::AlreadySplit { .. })));
}

#[test]
fn an_endless_file_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let mut pool = Pool::new();
    let sent = packets(&mut pool, 5);
    let mut writer = only_queues(pcap(None, Some(&path), Repeat::Once).unwrap().split(1).unwrap());
    assert_eq!(writer.tx.tx(&sent), 5);
    drop(writer);

    let mut reader =
        only_queues(pcap(Some(&path), None, Repeat::Endless).unwrap().split(1).unwrap());
    for _ in 0..10 {
        let mut burst = Vec::new();
        let report = reader.rx.as_mut().unwrap().rx(&mut pool, &mut burst).unwrap();
        assert_eq!((burst.len(), report), (BURST, RxReport::default()));
        assert_eq!(burst[7].len(), burst[2].len());
        put_all_back(&mut pool, burst);
    }
}

#[test]
fn an_endless_file_without_packets_is_exhausted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    drop(pcap(None, Some(&path), Repeat::Once).unwrap());
    let mut reader =
        only_queues(pcap(Some(&path), None, Repeat::Endless).unwrap().split(1).unwrap());
    let mut pool = Pool::new();
    assert_eq!(drain(reader.rx.as_mut().unwrap().as_mut(), &mut pool), (Vec::new(), 0, true));
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/folder");
    let message = |rx, tx| pcap(rx, tx, Repeat::Once).err().map(|error| error.to_string());
    let name = missing.display();
    assert_eq!(message(None, Some(&missing)), Some(format!("cannot write {name}")));
    assert_eq!(message(Some(&missing), None), Some(format!("cannot read {name}")));
    assert_eq!(
        message(None, Some(Path::new("/dev/full"))),
        Some("cannot write /dev/full".to_owned())
    );
}

#[test]
fn impossible_device_name_is_refused() {
    for device in ["", "sixteen-bytes-xx", "a/b", "a b", "a:b", "tap%d", ".", ".."] {
        for spec in [
            PortSpec::Tap { device: device.to_owned(), settings: tap::TapSettings::default() },
            PortSpec::AfPacket { device: device.to_owned(), mtu: None, rx_slots: None },
        ] {
            assert!(matches!(open(&spec, 0), Err(PortError::BadName { .. })), "{device:?}");
        }
    }
}

mod fuzz {
    use proptest::prelude::*;
    use shunt_testkit::fuzz::{fuzz_offload, fuzz_pcap};

    proptest! {
        #[test]
        fn no_bytes_make_a_fuzz_target_panic(
            is_capture in any::<bool>(), mut data in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            if is_capture && data.len() >= 24 {
                data[..8].copy_from_slice(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
                data[20..24].copy_from_slice(&[1, 0, 0, 0]);
            }
            fuzz_pcap(&data);
            fuzz_offload(&data);
        }
    }
}
