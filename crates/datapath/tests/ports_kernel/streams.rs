//! Tests streams between two hosts through two ports: the network stacks check our packets.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    socket::{setsockopt, sockopt::UdpGsoSegment},
};
use shunt_datapath::{
    Pool,
    packet::virtio::finish,
    port::{Capabilities, Port, Queues},
};

use crate::{enter_namespace, in_namespace, ip, packet_port, put_all_back, split_one, tap_port};

/// Number of bytes of a stream.
pub(crate) const STREAM: usize = 8 << 20;

/// A thread in its own network namespace, as a host.
pub(crate) struct Host {
    go: mpsc::Sender<()>,
    done: mpsc::Receiver<usize>,
}

impl Host {
    /// Creates a host with the device `name` at `address`.
    ///
    /// `attach` gets the network namespace of the host and moves the device there. The host calls
    /// `run` once it gets the start signal.
    pub(crate) fn new(
        name: &'static str,
        address: &'static str,
        attach: impl FnOnce(&str),
        run: impl FnOnce() -> usize + Send + 'static,
    ) -> Self {
        let (place, is_at) = mpsc::channel();
        let (attached, is_attached) = mpsc::channel::<()>();
        let (configured, is_configured) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (finished, done) = mpsc::channel();
        thread::spawn(move || {
            assert!(enter_namespace());
            let link = fs::read_link("/proc/thread-self").unwrap();
            place.send(link.file_name().unwrap().to_str().unwrap().to_owned()).unwrap();
            is_attached.recv().unwrap();
            ip(&format!("addr add {address}/24 dev {name}"));
            ip(&format!("link set {name} up"));
            configured.send(()).unwrap();
            may_go.recv().unwrap();
            finished.send(run()).unwrap();
            // The end of this thread would remove the namespace and the device. The other host may
            // still need the device, so this thread waits until the channel closes.
            let _ = may_go.recv();
        });
        attach(&is_at.recv().unwrap());
        attached.send(()).unwrap();
        is_configured.recv().unwrap();
        Self { go, done }
    }
}

const SERVER: &str = "10.0.0.2:5001";

/// Returns the sender and the receiver of a stream.
/// The sender waits until the receiver listens.
fn stream() -> (impl FnOnce() -> usize + Send, impl FnOnce() -> usize + Send) {
    stream_to(SERVER)
}

/// Returns the sender and the receiver of a stream to an address.
pub(crate) fn stream_to(
    address: &'static str,
) -> (impl FnOnce() -> usize + Send, impl FnOnce() -> usize + Send) {
    let (listens, is_listening) = mpsc::channel();
    (move || client(address, &is_listening), move || server(address, &listens))
}

fn server(address: &str, listens: &mpsc::Sender<()>) -> usize {
    let socket = TcpListener::bind(address).unwrap();
    listens.send(()).unwrap();
    let (mut stream, _) = socket.accept().unwrap();
    let mut buffer = vec![0; 1 << 17];
    let mut received = 0;
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        assert!(buffer[..count].iter().all(|byte| *byte == 7));
        received += count;
    }
    stream.write_all(b"bye").unwrap();
    received
}

fn client(address: &str, is_listening: &mpsc::Receiver<()>) -> usize {
    is_listening.recv().unwrap();
    let address = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&vec![7; STREAM]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    STREAM
}

/// The counts of packets that [`switch`] forwarded.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    /// Number of received packets.
    pub(crate) packets: usize,
    /// Number of received packets that are to be segmented.
    pub(crate) segmented: usize,
    /// Number of received packets that are to be segmented in a tunnel.
    pub(crate) tunnelled: usize,
    /// Number of packets after software segmentation.
    pub(crate) finished: usize,
    /// Number of frames that the ports refused.
    pub(crate) refused: u32,
    /// The number of bytes that each host reports at its end.
    pub(crate) answers: Vec<usize>,
}

/// Forwards all packets between two ports until both hosts are done.
/// `limit` removes capabilities of the ports.
pub(crate) fn switch(
    ports: [&mut Box<dyn Port>; 2],
    hosts: &[Host; 2],
    limit: impl Fn(Capabilities) -> Capabilities,
) -> Seen {
    let capabilities = [&ports[0], &ports[1]].map(|port| limit(port.capabilities()));
    let mut queues = ports.map(|port| split_one(port.as_mut()));
    let sleep = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    for queues in &queues {
        let fd = queues.rx.as_ref().unwrap().wait_fd().unwrap();
        sleep.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0)).unwrap();
    }
    hosts.iter().for_each(|host| host.go.send(()).unwrap());
    let (mut pool, mut seen) = (Pool::new(), Seen::default());
    let mut sleeps = 0;
    while seen.answers.len() < 2 && sleeps < 1000 {
        let before = seen.packets;
        for (from, to) in [(0, 1), (1, 0)] {
            forward(&mut queues, from, to, &capabilities[to], &mut pool, &mut seen);
        }
        if seen.packets == before {
            sleeps += 1;
            sleep.wait(&mut [EpollEvent::empty()], 10u8).unwrap();
        } else {
            sleeps = 0;
        }
        seen.answers.extend(hosts.iter().filter_map(|host| host.done.try_recv().ok()));
    }
    assert_eq!(pool.out(), 0);
    seen
}

fn forward(
    queues: &mut [Queues; 2],
    from: usize,
    to: usize,
    port: &Capabilities,
    pool: &mut Pool,
    seen: &mut Seen,
) {
    let (mut burst, mut out) = (Vec::new(), Vec::new());
    let report = queues[from].rx.as_mut().unwrap().rx(pool, &mut burst).unwrap();
    seen.refused += report.refused;
    for packet in burst {
        seen.packets += 1;
        seen.segmented += usize::from(packet.virtio.is_segmented());
        seen.tunnelled += usize::from(packet.virtio.tunnel.is_some());
        finish(packet, port, pool, &mut out).unwrap();
    }
    seen.finished += out.len();
    queues[to].tx.tx(&out);
    queues[to].tx.flush();
    put_all_back(pool, out);
}

fn on_a_cable(device: &'static str, port: &'static str) -> impl FnOnce(&str) {
    move |place| {
        ip(&format!("link add {device} netns {place} type veth peer name {port}"));
        ip(&format!("link set {port} up"));
    }
}

/// Moves an existing device to a host.
pub(crate) fn moved(device: &'static str) -> impl FnOnce(&str) {
    move |place| ip(&format!("link set {device} netns {place}"))
}

fn stream_over_two_cables(limit: impl Fn(Capabilities) -> Capabilities) -> Seen {
    let (client, server) = stream();
    let hosts = [
        Host::new("g0", "10.0.0.1", on_a_cable("g0", "p0"), client),
        Host::new("s0", "10.0.0.2", on_a_cable("s0", "p1"), server),
    ];
    switch([&mut packet_port("p0"), &mut packet_port("p1")], &hosts, limit)
}

#[test]
fn tcp_stream_crosses_two_cables_unchanged() {
    in_namespace(|| {
        let seen = stream_over_two_cables(|capabilities| capabilities);
        assert_eq!(seen.answers, [STREAM, STREAM], "{seen:?}");
        assert!(seen.segmented > 0 && seen.refused == 0, "{seen:?}");
    });
}

#[test]
fn software_segmented_stream_crosses_two_cables() {
    in_namespace(|| {
        let seen = stream_over_two_cables(|capabilities| Capabilities {
            tx_checksum: false,
            tx_segmentation: false,
            ..capabilities
        });
        assert_eq!(seen.answers, [STREAM, STREAM], "{seen:?}");
        assert!(seen.segmented > 0 && seen.refused == 0, "{seen:?}");
    });
}

#[test]
fn tcp_stream_crosses_from_tap_to_cable() {
    in_namespace(|| {
        let mut tap = tap_port("tap0");
        let (client, server) = stream();
        let hosts = [
            Host::new("tap0", "10.0.0.1", moved("tap0"), client),
            Host::new("s0", "10.0.0.2", on_a_cable("s0", "p1"), server),
        ];
        let seen = switch([&mut tap, &mut packet_port("p1")], &hosts, |capabilities| capabilities);
        assert_eq!(seen.answers, [STREAM, STREAM], "{seen:?}");
        assert!(seen.segmented > 0 && seen.refused == 0, "{seen:?}");
    });
}

const DATAGRAMS: usize = 20;
const DATAGRAM: usize = 1000;

fn udp_server() -> usize {
    let socket = UdpSocket::bind(SERVER).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 2000];
    // The server may have started in the middle of a burst, so it answers only after a whole burst.
    let (mut number, mut bytes) = (0, 0);
    loop {
        let (length, client) = socket.recv_from(&mut buffer).unwrap();
        let datagram = &buffer[..length];
        assert!(datagram.iter().all(|byte| *byte == datagram[0]));
        if usize::from(datagram[0]) != number {
            (number, bytes) = (0, 0);
        }
        if usize::from(datagram[0]) == number {
            (number, bytes) = (number + 1, bytes + length);
        }
        if number == DATAGRAMS {
            socket.send_to(b"ack", client).unwrap();
            return bytes;
        }
    }
}

fn udp_client() -> usize {
    let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
    setsockopt(&socket, UdpGsoSegment, &i32::try_from(DATAGRAM).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let data: Vec<_> =
        (0..DATAGRAMS).flat_map(|number| vec![u8::try_from(number).unwrap(); DATAGRAM]).collect();
    // The server may not have started yet, so the client repeats a burst without an answer.
    let mut answer = [0; 3];
    for _ in 0..100 {
        if socket.send_to(&data, SERVER).is_ok() && socket.recv(&mut answer).is_ok() {
            return data.len();
        }
    }
    0
}

#[test]
fn udp_segments_made_in_software_are_the_datagrams() {
    in_namespace(|| {
        let hosts = [
            Host::new("g0", "10.0.0.1", on_a_cable("g0", "p0"), udp_client),
            Host::new("s0", "10.0.0.2", on_a_cable("s0", "p1"), udp_server),
        ];
        let ports = [&mut packet_port("p0"), &mut packet_port("p1")];
        let seen = switch(ports, &hosts, |capabilities| Capabilities {
            tx_checksum: false,
            tx_segmentation: false,
            ..capabilities
        });
        assert_eq!(seen.answers, [DATAGRAMS * DATAGRAM; 2], "{seen:?}");
        assert!(seen.segmented > 0 && seen.refused == 0, "{seen:?}");
    });
}
