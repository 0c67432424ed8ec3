//! DPDK ports of rings and capture files; a ring returns the packets sent to it.

use std::{fs, thread};

use shunt_datapath::{
    Packet, Pool, VirtioHeader,
    port::{
        EalOptions, FrameCopies, HugePages, Port, PortCopies, PortCounters, Queues, TxEnd,
        dpdk::Dpdk,
    },
};
use shunt_pipeline::DatapathPort;

/// Opens a DPDK port, with the queues of `threads` packet threads.
pub(crate) fn open(devargs: &str, threads: u16) -> (Dpdk, Vec<Queues>) {
    let eal = EalOptions { huge_pages: HugePages::Off, ..EalOptions::default() };
    let mut port = Dpdk::open(devargs, None, None, &eal, 7).unwrap();
    let queues = port.split(threads).unwrap();
    assert!(port.split(threads).is_err(), "queues are created once");
    (port, queues)
}

pub(crate) fn packet(pool: &mut Pool, frame: &[u8], virtio: VirtioHeader) -> Packet {
    let mut packet = pool.take(frame.len(), DatapathPort::default()).unwrap();
    packet.frame_mut().copy_from_slice(frame);
    packet.virtio = virtio;
    packet
}

/// Receives frames until the ring is empty.
fn receive_frames(queues: &mut [Queues], pool: &mut Pool) -> Vec<Vec<u8>> {
    let rx = queues.iter_mut().find_map(|own| own.rx.as_mut()).unwrap();
    assert!(rx.wait_fd().is_none(), "the queue must be polled");
    let (mut frames, mut burst) = (Vec::new(), Vec::new());
    while !rx.rx(pool, &mut burst).unwrap().is_drained {}
    for packet in burst {
        frames.push(packet.frame().to_vec());
        pool.put_back(packet);
    }
    frames
}

/// Returns a TCP or UDP packet over IPv4, with a payload of `length` bytes.
///
/// The checksum covers only the pseudo-header.
pub(crate) fn partial(protocol: u8, length: usize) -> (Vec<u8>, VirtioHeader) {
    let header = if protocol == 6 { 20 } else { 8 };
    let mut frame = vec![0; 14 + 20 + header + length];
    frame[12] = 8;
    let total = u16::try_from(frame.len() - 14).unwrap();
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, protocol]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    if protocol == 6 {
        frame[46] = 5 << 4;
    } else {
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    }
    frame[34 + header..].iter_mut().zip(1..).for_each(|(byte, at): (&mut u8, u32)| {
        *byte = u8::try_from(at % 251).unwrap();
    });
    let offset = if protocol == 6 { 16 } else { 6 };
    let pseudo = folded(&[&frame[26..34], &[0, protocol], &(total - 20).to_be_bytes()].concat());
    frame[34 + offset..36 + offset].copy_from_slice(&pseudo.to_be_bytes());
    let virtio = VirtioHeader {
        needs_checksum: true,
        checksum_start: 34,
        checksum_offset: u16::try_from(offset).unwrap(),
        ..VirtioHeader::default()
    };
    (frame, virtio)
}

/// Computes the Internet checksum (RFC 1071) word by word.
fn folded(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Returns whether a packet of [`partial`] has the correct transport checksum.
pub(crate) fn is_complete(frame: &[u8]) -> bool {
    let length = u16::try_from(frame.len() - 34).unwrap();
    let pseudo = [&frame[26..34], &[0, frame[23]], &length.to_be_bytes()].concat();
    folded(&[&pseudo, &frame[34..]].concat()) == 0xffff
}

#[test]
fn packets_come_back_in_order_unchanged() {
    let (port, mut queues) = open("net_ring0", 1);
    let mut pool = Pool::new();
    assert!(port.link_up());
    assert_eq!(port.link_reason(), None);
    assert_ne!(port.mac(), [0; 6]);
    let sent: Vec<Vec<u8>> =
        (0..100).map(|number| vec![number; 60 + usize::from(number)]).collect();
    let packets: Vec<_> =
        sent.iter().map(|frame| packet(&mut pool, frame, VirtioHeader::default())).collect();
    assert_eq!(queues[0].tx.tx(&packets), 100);
    queues[0].tx.flush();
    packets.into_iter().for_each(|packet| pool.put_back(packet));
    assert_eq!(receive_frames(&mut queues, &mut pool), sent);
    assert_eq!(port.counters(), PortCounters::default());
    // One copy into the buffer of DPDK, and one out of it.
    let bytes = sent.iter().map(|frame| frame.len() as u64).sum();
    let copies = FrameCopies { frames: 100, bytes };
    assert_eq!(port.copies(), PortCopies { rx: copies, tx: copies });
    assert_eq!(pool.out(), 0);
}

/// A ring has no offloads, so the port makes checksums and segments.
#[test]
fn software_replaces_missing_checksum_and_segmentation_offloads() {
    let (port, mut queues) = open("net_ring1", 1);
    assert!(!port.capabilities().tx_checksum && !port.capabilities().tx_segmentation);
    let mut pool = Pool::new();
    for protocol in [6, 17] {
        let (frame, virtio) = partial(protocol, 700);
        let whole = packet(&mut pool, &frame, virtio);
        assert_eq!(queues[0].tx.tx(std::slice::from_ref(&whole)), 1);
        pool.put_back(whole);
        let frames = receive_frames(&mut queues, &mut pool);
        assert_eq!(frames.len(), 1);
        assert!(is_complete(&frames[0]), "protocol {protocol}");
    }
    let (frame, virtio) = partial(6, 4000);
    let gso_type = VirtioHeader::GSO_TCPV4;
    let virtio = VirtioHeader { gso_type, gso_size: 1000, header_length: 54, ..virtio };
    let whole = packet(&mut pool, &frame, virtio);
    assert_eq!(queues[0].tx.tx(std::slice::from_ref(&whole)), 1);
    pool.put_back(whole);
    let frames = receive_frames(&mut queues, &mut pool);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1054; 4]);
    assert!(frames.iter().all(|frame| is_complete(frame)));
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
    assert_eq!(payload, frame[54..], "the segments have the whole payload");
}

/// A capture file has one transmit queue for all threads.
///
/// Four threads send without waiting, and each packet is written or counted as lost.
#[test]
fn threads_share_a_queue_without_losing_count() {
    /// Number of frames that each thread sends.
    const EACH: u32 = 20_000;
    let file = tempfile::NamedTempFile::new().unwrap();
    let (port, queues) = open(&format!("net_pcap0,tx_pcap={}", file.path().display()), 4);
    let taken: u64 = thread::scope(|scope| {
        let send = |(mut own, thread): (Queues, u8)| {
            scope.spawn(move || {
                let (mut pool, mut taken) = (Pool::new(), 0);
                for number in 0..EACH {
                    let mut frame = [thread; 60];
                    frame[4..8].copy_from_slice(&number.to_be_bytes());
                    let whole = packet(&mut pool, &frame, VirtioHeader::default());
                    taken += own.tx.tx(std::slice::from_ref(&whole)) as u64;
                    pool.put_back(whole);
                    own.tx.flush();
                }
                while own.tx.is_pending() {
                    own.tx.flush();
                }
                taken
            })
        };
        let senders: Vec<_> = queues.into_iter().zip(0..).map(send).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    let lost = port.counters().tx_dropped;
    drop(port);
    let file = fs::read(file.path()).unwrap();
    let records: Vec<_> = file[24..].chunks(16 + 60).map(|record| &record[16..]).collect();
    assert_eq!(taken, records.len() as u64 + lost);
    assert!(records.len() > EACH as usize, "most packets are written: {}", records.len());
    for thread in 0..4 {
        let of_thread = records.iter().filter(|frame| frame[0] == thread);
        let numbers: Vec<_> = of_thread.map(|frame| &frame[4..8]).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "order of thread {thread}");
    }
}

/// A device can be opened again after its port has closed.
#[test]
fn a_port_opens_again() {
    for _ in 0..20 {
        let (port, queues) = open("net_null0", 2);
        assert_eq!(queues.iter().filter(|own| own.rx.is_some()).count(), 2);
        assert_eq!(port.mtu(), Some(1500));
        drop((port, queues));
    }
}

/// Each packet is received, or the transmit queue refused it.
///
/// The port counts no loss.
#[test]
fn counters_add_up_after_a_full_queue() {
    let (port, mut queues) = open("net_ring2", 1);
    let mut pool = Pool::new();
    let packets: Vec<_> =
        (0..1500).map(|_| packet(&mut pool, &[7; 60], VirtioHeader::default())).collect();
    let taken = queues[0].tx.tx(&packets);
    assert_eq!(queues[0].tx.tx_end(), TxEnd::Full);
    packets.into_iter().for_each(|packet| pool.put_back(packet));
    assert_eq!(receive_frames(&mut queues, &mut pool).len(), taken);
    assert_eq!(port.counters(), PortCounters::default());
    // The ring has room again.
    let packets: Vec<_> =
        (0..1000).map(|_| packet(&mut pool, &[8; 60], VirtioHeader::default())).collect();
    assert_eq!(queues[0].tx.tx(&packets), 1000);
    packets.into_iter().for_each(|packet| pool.put_back(packet));
    assert_eq!(receive_frames(&mut queues, &mut pool).len(), 1000);
}
