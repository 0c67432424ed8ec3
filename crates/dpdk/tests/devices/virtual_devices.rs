//! Tests frames, limits and errors of devices without hardware.

use std::fs;

use shunt_dpdk::{
    BurstEnd, DeviceSettings, DpdkDevice, DpdkError, DpdkQueues, DpdkReceiver, DpdkState, Eal,
    EalOptions, FrameOffload, HugePages,
};

/// Returns DPDK, started without huge pages.
pub(crate) fn eal() -> Eal {
    let options = EalOptions { huge_pages: HugePages::Off, ..EalOptions::default() };
    Eal::start(&options).unwrap()
}

pub(crate) const ONE_THREAD: DeviceSettings =
    DeviceSettings { rx_queues: None, threads: 1, mtu: None };

pub(crate) fn start(devargs: &str, settings: DeviceSettings) -> (DpdkDevice, DpdkQueues) {
    let mut device = DpdkDevice::attach(eal(), devargs).unwrap();
    let queues = device.start(settings).unwrap();
    (device, queues)
}

/// Returns a frame with bytes that depend on `number`.
pub(crate) fn frame(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

pub(crate) fn receive_all(receiver: &mut DpdkReceiver) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    loop {
        let frames = receiver.receive(32);
        if frames.is_empty() {
            return received;
        }
        for position in 0..frames.len() {
            let (length, _) = frames.describe(position).unwrap();
            let mut bytes = vec![0; length];
            assert!(!frames.read(position, &mut vec![0; length + 1]));
            assert!(frames.read(position, &mut bytes));
            received.push(bytes);
        }
        assert!(frames.describe(frames.len()).is_none());
    }
}

/// A ring returns the frames that are sent to it.
///
/// Frames that fill several buffers, and more than one burst, return unchanged.
#[test]
fn a_ring_returns_every_frame_in_order() {
    let (device, mut queues) = start("net_ring0", ONE_THREAD);
    assert!(device.link_is_up());
    assert!(!device.is_removed());
    let lengths = [14, 60, 1514, 2048, 9000, 60_000];
    let sent: Vec<_> = (0..200).map(|n| frame(n, lengths[n % lengths.len()])).collect();
    let frames = sent.iter().map(|bytes| (bytes.as_slice(), FrameOffload::default()));
    assert_eq!(queues.senders[0].send(frames), (sent.len(), BurstEnd::All));
    assert_eq!(receive_all(&mut queues.receivers[0]), sent);
}

/// A ring has 1024 slots. Frames that it refuses stay with the sender.
#[test]
fn a_full_ring_takes_no_more() {
    let (_device, mut queues) = start("net_ring1", ONE_THREAD);
    let sent: Vec<_> = (0..1500).map(|n| frame(n, 60)).collect();
    let frames = sent.iter().map(|bytes| (bytes.as_slice(), FrameOffload::default()));
    let (count, end) = queues.senders[0].send(frames);
    assert_eq!(end, BurstEnd::Full);
    assert!((1000..1500).contains(&count), "{count}");
    assert_eq!(receive_all(&mut queues.receivers[0]), sent[..count]);
}

/// The state changes at the first start; options of later starts have no effect.
#[test]
fn dpdk_starts_once() {
    eal();
    let other = EalOptions { memory_mib: 1 << 20, ..EalOptions::default() };
    assert!(Eal::start(&other).is_ok());
    assert!(DpdkState::read().is_started());
    assert!(DpdkState::read().version().unwrap().starts_with("DPDK "));
}

#[test]
fn a_wrong_device_has_a_reason() {
    let attach = |devargs: &str| DpdkDevice::attach(eal(), devargs).map(drop).unwrap_err();
    assert!(matches!(attach(""), DpdkError::Devargs { .. }));
    assert!(matches!(attach("net null0"), DpdkError::Devargs { .. }));
    let error = attach("net_nul0");
    assert!(matches!(error, DpdkError::NoDriver { .. }), "{error:?}");
    let card = attach("0000:ff:1f.7");
    assert!(card.to_string().contains("dpdk-devbind.py"), "{card}");
    let file = attach("net_pcap9,rx_pcap=/no/such/file.pcap").to_string();
    assert!(file.contains("/no/such/file.pcap"), "{file}");
}

#[test]
fn device_belongs_to_one_port() {
    let (device, queues) = start("net_null10", ONE_THREAD);
    let again = DpdkDevice::attach(eal(), "net_null10").map(drop);
    assert_eq!(again, Err(DpdkError::InUse { device: "net_null10".to_owned() }));
    // The device is not closed until its last queue is dropped.
    drop(device);
    assert!(DpdkDevice::attach(eal(), "net_null10").is_err());
    drop(queues);
    assert!(DpdkDevice::attach(eal(), "net_null10").is_ok());
}

#[test]
fn queues_are_created_once_within_limits() {
    let mut device = DpdkDevice::attach(eal(), "net_pcap2,tx_pcap=/dev/null").unwrap();
    let many = DeviceSettings { rx_queues: Some(1000), ..ONE_THREAD };
    assert!(matches!(device.start(many), Err(DpdkError::Queues { wanted: 1000, .. })));
    // A capture file has one queue for any number of threads.
    let queues = device.start(DeviceSettings { threads: 4, ..ONE_THREAD }).unwrap();
    assert_eq!((queues.receivers.len(), queues.senders.len()), (1, 1));
    assert!(matches!(device.start(ONE_THREAD), Err(DpdkError::AlreadyStarted { .. })));
    let (_null, queues) = start("net_null11", DeviceSettings { threads: 4, ..ONE_THREAD });
    assert_eq!((queues.receivers.len(), queues.senders.len()), (4, 4));
}

/// A capture device receives the frames of one file unchanged.
///
/// The device writes sent frames to another file.
#[test]
fn capture_files_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let frames: Vec<_> = (0..100).map(|n| frame(n, 60 + n * 14)).collect();
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([0, 0, 4, 0, 1, 0, 0, 0]);
    for frame in &frames {
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        file.extend([[0; 4], [0; 4], length, length].concat());
        file.extend(frame);
    }
    fs::write(&input, file).unwrap();
    let devargs = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let (device, mut queues) = start(&devargs, ONE_THREAD);
    let received = receive_all(&mut queues.receivers[0]);
    assert_eq!(received, frames);
    let sent = received.iter().map(|bytes| (bytes.as_slice(), FrameOffload::default()));
    assert_eq!(queues.senders[0].send(sent), (100, BurstEnd::All));
    drop((device, queues));
    let written = fs::read(&output).unwrap();
    let own: usize = frames.iter().map(|frame| 16 + frame.len()).sum();
    assert_eq!(written.len(), 24 + own);
    assert!(written.ends_with(&frames[99]));
}

/// A hundred devices, one after the other, use the same memory.
///
/// Later devices use the buffers of earlier devices.
#[test]
fn a_hundred_successive_devices_use_the_same_memory() {
    for _ in 0..100 {
        let (_device, mut queues) = start("net_ring3", ONE_THREAD);
        let bytes = frame(0, 60);
        let frames = [(bytes.as_slice(), FrameOffload::default())].into_iter();
        assert_eq!(queues.senders[0].send(frames), (1, BurstEnd::All));
    }
}

#[test]
fn a_device_without_an_mtu_setting_refuses_one() {
    let mut device = DpdkDevice::attach(eal(), "net_ring4").unwrap();
    let result = device.start(DeviceSettings { mtu: Some(9000), ..ONE_THREAD });
    assert!(matches!(result, Err(DpdkError::Mtu { mtu: 9000, .. })), "{result:?}");
    assert!(device.is_removed(), "the device is closed");
    let (device, _queues) = start("net_null12", DeviceSettings { mtu: Some(9000), ..ONE_THREAD });
    assert_eq!((device.mtu(), device.frame_max()), (9000, 9022));
}
