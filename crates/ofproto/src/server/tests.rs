//! Tests over real sockets.

use std::{
    net::SocketAddr,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_flow::{
    PortNo,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{
    Action, FlowModCommand, PacketInReason, TableSelector, Time, text::parse_rule,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
};

use super::{
    OpenFlowServer, ReconnectState, UnixListenSocket, listener_places::PeerActivity,
    listening_socket::CONNECTIONS_MAX, serve::serve,
};
use crate::{
    Host,
    connection::{ConnectionConfig, ConnectionKind, ControllerEvent},
    error::CloseReason,
    message::{
        FlowMonitorFlags, FlowMonitorId, FlowMonitorRequest, Hello, Message, MultipartReply,
        MultipartRequest, PacketOut, PortStatus, PortStatusReason, RoleMessage, RoleName,
        SwitchConfig, Xid,
    },
    testing::MemoryHost,
    wire::{Codec, header::Header, v10::V10Settings},
};

/// A test client, and the version that it speaks.
struct TestClient<S>(S, Codec);

impl<S: AsyncRead + AsyncWrite + Unpin> TestClient<S> {
    /// Creates a client of OpenFlow 1.3 and exchanges hellos.
    async fn connect(stream: S) -> Self {
        Self::connect_with(stream, Codec::V13).await
    }

    /// Creates a client of one version and exchanges hellos.
    async fn connect_with(stream: S, codec: Codec) -> Self {
        let mut client = Self(stream, codec);
        client.send(&Message::Hello(Hello { version: codec.version(), bitmap: None })).await;
        assert!(matches!(client.receive().await, Some(Message::Hello(_))));
        client
    }

    async fn send(&mut self, message: &Message) {
        self.0.write_all(&self.1.encode(Xid::new(9), message).unwrap()).await.unwrap();
    }

    /// Returns the next message; `None` at the end.
    async fn receive(&mut self) -> Option<Message> {
        let mut frame = vec![0; Header::LEN];
        self.0.read_exact(&mut frame).await.ok()?;
        let header = Header::parse(&frame).unwrap();
        frame.resize(header.length.into(), 0);
        self.0.read_exact(&mut frame[Header::LEN..]).await.ok()?;
        Some(self.1.decode(&frame).unwrap().1)
    }

    /// Sends a message; returns the next message.
    async fn request(&mut self, message: &Message) -> Option<Message> {
        self.send(message).await;
        self.receive().await
    }
}

/// Returns a host in memory, and its OpenFlow server.
fn bridge() -> (Arc<MemoryHost>, OpenFlowServer<MemoryHost>) {
    let began = tokio::time::Instant::now();
    let host = Arc::new(MemoryHost::new(move || Time::ZERO.after(began.elapsed())));
    (Arc::clone(&host), OpenFlowServer::new(host))
}

const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn garbage_harms_only_the_connection_that_sends_it() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let address = endpoint.local_address().unwrap();
    let mut good = TestClient::connect(TcpStream::connect(address).await.unwrap()).await;
    let mut bad = TcpStream::connect(address).await.unwrap();
    bad.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    // The end of the connection may be reported as an error if the peer did not read all input.
    let _ = bad.read_to_end(&mut rest).await;
    let silent = TcpStream::connect(address).await.unwrap();
    let features = good.request(&Message::FeaturesRequest).await;
    assert_eq!(
        features,
        Some(Message::FeaturesReply { features: host.features(), ports: Vec::new() })
    );
    drop(silent);
}

/// A stream with TLS keeps bytes that the socket does not take, as this buffer.
#[tokio::test]
async fn a_reply_is_flushed_through_a_buffering_stream() {
    let (host, server) = bridge();
    let (near, far) = tokio::io::duplex(64);
    let shared = Arc::clone(&server.shared);
    let config = ConnectionConfig::new("buffered", ConnectionKind::Management);
    let served = tokio::spawn(async move {
        let activity = PeerActivity::default();
        serve(tokio::io::BufStream::new(far), config, &shared, &activity, || ()).await.reason
    });
    let mut client = TestClient::connect(near).await;
    let features = client.request(&Message::FeaturesRequest).await;
    assert_eq!(
        features,
        Some(Message::FeaturesReply { features: host.features(), ports: Vec::new() })
    );
    drop(client);
    assert_eq!(served.await.unwrap(), CloseReason::PeerClosed);
}

#[tokio::test]
async fn only_barriers_wait_for_threads() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let mut client = TestClient::connect(stream).await;
    client.send(&Message::SetConfig(SwitchConfig { miss_send_len: 100 })).await;
    host.hold_versions();
    let port = host.ports().remove(0);
    let mod_ = crate::message::PortMod {
        port: port.number,
        mac: port.mac,
        config: port.config,
        mask: port.config,
        advertise: 0,
    };
    client.send(&Message::PortMod(mod_)).await;
    client.send(&Message::BarrierRequest).await;
    let status = PortStatus { reason: PortStatusReason::Modify, port };
    while host.take_events().is_empty() {
        tokio::task::yield_now().await;
    }
    server.publish(ControllerEvent::PortStatus(Arc::new(status.clone())));
    assert_eq!(client.receive().await, Some(Message::PortStatus(status)));
    host.adopt();
    assert_eq!(client.receive().await, Some(Message::BarrierReply));
}

#[tokio::test]
async fn subscribed_openflow_10_clients_get_table_misses() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = async || TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let subscribe = Message::SetConfig(SwitchConfig { miss_send_len: 100 });
    let mut newer = TestClient::connect(stream().await).await;
    newer.send(&subscribe).await;
    assert_eq!(newer.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert!(!host.sends_misses(), "OpenFlow 1.3 has a rule for misses");
    let v10 = Codec::V10(V10Settings::INITIAL);
    let mut older = TestClient::connect_with(stream().await, v10).await;
    assert_eq!(older.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert!(!host.sends_misses(), "the client did not subscribe");
    older.send(&subscribe).await;
    assert_eq!(older.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert!(host.sends_misses());
    drop(older);
    while host.sends_misses() {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.connections().len(), 1);
}

#[tokio::test]
async fn stale_socket_is_replaced_then_removed() {
    let path = std::env::temp_dir().join(format!("shunt-ofproto-{}.mgmt", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead process left the file");
    let (_, server) = bridge();
    let endpoint = server.listen_unix(UnixListenSocket::bind(&path).await.unwrap());
    let mut client = TestClient::connect(UnixStream::connect(&path).await.unwrap()).await;
    assert!(UnixListenSocket::bind(&path).await.is_err(), "another server listens here");
    let long = UnixListenSocket::bind(&path.with_file_name("x".repeat(107))).await;
    assert!(long.unwrap_err().to_string().contains("at most 107 bytes"));
    assert_eq!(client.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    drop(endpoint);
    assert_eq!(client.receive().await, None);
    assert!(!path.exists());
}

/// A later process has a copy of the socket, and needs the file.
#[tokio::test]
async fn socket_for_later_process_leaves_its_file() {
    let path = std::env::temp_dir().join(format!("shunt-later-{}.mgmt", std::process::id()));
    let mut socket = UnixListenSocket::bind(&path).await.unwrap();
    let copy = socket.as_fd().try_clone_to_owned().unwrap();
    socket.leave_file();
    let (_, server) = bridge();
    server.listen_unix(socket).close().await;
    let waiting = UnixStream::connect(&path).await.unwrap();
    let inherited = UnixListenSocket::inherited(copy.into(), &path).unwrap();
    let _endpoint = server.listen_unix(inherited);
    let mut client = TestClient::connect(waiting).await;
    assert_eq!(client.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn a_lost_controller_is_reconnected() {
    let (host, server) = bridge();
    let controller = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = controller.local_addr().unwrap();
    let config = ConnectionConfig::new("controller", ConnectionKind::Controller);
    let endpoint = server.connect_tcp(address, config);
    for _ in 0..2 {
        let (stream, _) = controller.accept().await.unwrap();
        let mut client = TestClient::connect(stream).await;
        let role =
            RoleMessage { role: RoleName::Master, generation: Some(crate::message::Generation(1)) };
        let granted = client.request(&Message::RoleRequest(role)).await;
        assert_eq!(granted, Some(Message::RoleReply(role)), "the master role is free again");
        let [connection] = &server.connections()[..] else { panic!("one connection") };
        assert!(connection.status.is_open && connection.peer == "controller");
        assert_eq!(endpoint.reconnect_state(), Some(ReconnectState::Connected));
    }
    drop((endpoint, host));
}

/// The bridge fails open after three probes, until a controller connects.
#[tokio::test]
async fn bridge_fails_open_until_a_controller_connects() {
    let seconds = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&seconds);
    let now = move || Time::ZERO.after(Duration::from_secs(clock.load(Ordering::Relaxed)));
    let host = Arc::new(MemoryHost::new(now));
    let server = OpenFlowServer::new(Arc::clone(&host));
    let fails_open_at = |second| {
        seconds.store(second, Ordering::Relaxed);
        server.update_fail_open();
        assert_eq!(server.fails_open(), host.fails_open());
        host.fails_open()
    };
    server.allow_fail_open(true);
    let controller = TcpListener::bind(ANY_PORT).await.unwrap();
    let config = ConnectionConfig::new("controller", ConnectionKind::Controller);
    let endpoint = server.connect_tcp(controller.local_addr().unwrap(), config);
    // Without a hello, the controller is not connected.
    let (stream, _) = controller.accept().await.unwrap();
    assert_eq!([0, 14, 15].map(fails_open_at), [false, false, true]);
    let rule = parse_rule(FlowModCommand::Add, "priority=65535,actions=drop", &NoPortNames);
    let mut client = TestClient::connect(stream).await;
    client.send(&Message::FlowMod(rule.unwrap())).await;
    assert_eq!(client.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert!(!host.fails_open(), "the connection ends it, without an update");
    drop(client);
    while endpoint.reconnect_state() == Some(ReconnectState::Connected) {
        tokio::task::yield_now().await;
    }
    assert_eq!([29, 30].map(fails_open_at), [false, true]);
    server.allow_fail_open(false);
    assert!(!fails_open_at(99), "fail mode secure");
    server.allow_fail_open(true);
    assert!(fails_open_at(99));
    endpoint.close().await;
    assert!(!fails_open_at(99), "the bridge has no controller");
}

/// A bridge that fails open forwards on when its controllers are opened again.
#[tokio::test]
async fn reopened_controllers_leave_the_bridge_open() {
    let seconds = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&seconds);
    let now = move || Time::ZERO.after(Duration::from_secs(clock.load(Ordering::Relaxed)));
    let host = Arc::new(MemoryHost::new(now));
    let server = OpenFlowServer::new(Arc::clone(&host));
    let controller = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = controller.local_addr().unwrap();
    let config = || ConnectionConfig::new("controller", ConnectionKind::Controller);
    let first = server.connect_tcp(address, config());
    server.allow_fail_open(true);
    seconds.store(15, Ordering::Relaxed);
    server.update_fail_open();
    assert!(host.fails_open());
    first.close().await;
    // The runtime has one thread, so the new task has not run at the update.
    let second = server.connect_tcp(address, config());
    server.allow_fail_open(true);
    assert!(host.fails_open());
    second.close().await;
    server.update_fail_open();
    assert!(!host.fails_open(), "the bridge has no controller");
}

/// Clients that send a hello and vanish without a FIN must not fill the listener.
#[tokio::test(start_paused = true)]
async fn a_listener_disconnects_silent_clients() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let mut client = TestClient::connect(stream).await;
    let began = host.now();
    assert_eq!(client.receive().await, Some(Message::EchoRequest(Vec::new())));
    client.send(&Message::EchoReply(Vec::new())).await;
    let answered = host.now();
    assert_eq!(client.receive().await, Some(Message::EchoRequest(Vec::new())));
    assert_eq!(client.receive().await, None, "the connection ends");
    let (waited, silent) = (answered.since(began).as_secs(), host.now().since(answered).as_secs());
    assert!((5..7).contains(&waited) && (10..12).contains(&silent), "{waited} s, {silent} s");
    while !server.connections().is_empty() {
        tokio::task::yield_now().await;
    }
}

/// Clients of the Unix socket are not probed, but must send a hello.
#[tokio::test(start_paused = true)]
async fn a_unix_client_without_hello_is_closed() {
    let path = std::env::temp_dir().join(format!("shunt-silent-{}.mgmt", std::process::id()));
    let (host, server) = bridge();
    let endpoint = server.listen_unix(UnixListenSocket::bind(&path).await.unwrap());
    let mut idle = TestClient::connect(UnixStream::connect(&path).await.unwrap()).await;
    let began = host.now();
    let mut silent = TestClient(UnixStream::connect(&path).await.unwrap(), Codec::V13);
    assert!(matches!(silent.receive().await, Some(Message::Hello(_))));
    while silent.receive().await.is_some() {}
    let waited = host.now().since(began).as_secs();
    assert!((10..12).contains(&waited), "{waited} s");
    assert_eq!(idle.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    drop(endpoint);
}

/// Only one test fills a listener at a time: both ends need descriptors.
static FULL_LISTENER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// If they stayed, silent clients would lock everybody out for some time.
#[tokio::test]
async fn the_oldest_client_without_hello_makes_room() {
    let _only = FULL_LISTENER.lock().await;
    let path = std::env::temp_dir().join(format!("shunt-full-{}.mgmt", std::process::id()));
    let (_, server) = bridge();
    let endpoint = server.listen_unix(UnixListenSocket::bind(&path).await.unwrap());
    let mut idle = TestClient::connect(UnixStream::connect(&path).await.unwrap()).await;
    // After the reply, the hello has been handled.
    assert_eq!(idle.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    let mut silent = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        silent.push(UnixStream::connect(&path).await.unwrap());
    }
    let mut new = TestClient::connect(UnixStream::connect(&path).await.unwrap()).await;
    let mut oldest = TestClient(silent.remove(0), Codec::V13);
    while oldest.receive().await.is_some() {}
    let mut youngest = TestClient::connect(silent.pop().unwrap()).await;
    for kept in [&mut idle, &mut new, &mut youngest] {
        assert_eq!(kept.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    }
    drop(endpoint);
}

/// Clients of the Unix socket are not probed, so silent ones would fill it.
#[tokio::test]
async fn the_longest_idle_unix_client_makes_room() {
    let _only = FULL_LISTENER.lock().await;
    let path = std::env::temp_dir().join(format!("shunt-idle-{}.mgmt", std::process::id()));
    let (_, server) = bridge();
    let endpoint = server.listen_unix(UnixListenSocket::bind(&path).await.unwrap());
    let connect = async || TestClient::connect(UnixStream::connect(&path).await.unwrap()).await;
    let mut active = connect().await;
    assert_eq!(active.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    let mut silent = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        silent.push(connect().await);
    }
    // From then on, all hellos have been handled.
    while server.connections().iter().filter(|own| own.status.is_open).count() < CONNECTIONS_MAX {
        tokio::task::yield_now().await;
    }
    let mut new = connect().await;
    assert_eq!(new.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert_eq!(silent.remove(0).receive().await, None, "the oldest silent client loses its place");
    // The active client is the oldest one, and later the one that was idle longest.
    for kept in [&mut active, &mut new].into_iter().chain(&mut silent) {
        assert_eq!(kept.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    }
    let mut newest = connect().await;
    assert_eq!(newest.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    assert_eq!(active.receive().await, None, "the client that was idle longest loses its place");
    assert_eq!(new.request(&Message::BarrierRequest).await, Some(Message::BarrierReply));
    drop(endpoint);
}

/// A controller that closes after the handshake is retried with growing delays.
#[tokio::test(start_paused = true)]
async fn quickly_closing_controller_is_retried_rarely() {
    let (host, server) = bridge();
    let controller = TcpListener::bind(ANY_PORT).await.unwrap();
    let config = ConnectionConfig::new("controller", ConnectionKind::Controller);
    let endpoint = server.connect_tcp(controller.local_addr().unwrap(), config);
    let began = host.now();
    let mut count = 0;
    while host.now().since(began).as_secs() < 40 {
        let (stream, _) = controller.accept().await.unwrap();
        drop(TestClient::connect(stream).await);
        count += 1;
    }
    // Delays of 1, 2, 4, 8, 8, 8 and 8 seconds, and one connection after 40 s.
    assert!((7..=9).contains(&count), "{count} connections in 40 s");
    drop(endpoint);
}

#[tokio::test]
async fn an_unreachable_controller_is_reported_as_waiting() {
    let (host, server) = bridge();
    let closed = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let config = ConnectionConfig::new("controller", ConnectionKind::Controller);
    let endpoint = server.connect_tcp(address, config);
    assert_eq!(endpoint.reconnect_state(), Some(ReconnectState::Connecting));
    let (reason, until) = loop {
        if let Some(ReconnectState::Waiting { reason, until }) = endpoint.reconnect_state() {
            break (reason, until);
        }
        tokio::task::yield_now().await;
    };
    assert!(reason.contains("refused"), "{reason}");
    assert!(until > host.now(), "the next attempt is in the future");
    assert_eq!(
        server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap()).reconnect_state(),
        None
    );
}

#[tokio::test]
async fn a_peer_without_hello_is_not_connected() {
    let (_, server) = bridge();
    let other = TcpListener::bind(ANY_PORT).await.unwrap();
    let config = ConnectionConfig::new("controller", ConnectionKind::Controller);
    let endpoint = server.connect_tcp(other.local_addr().unwrap(), config);
    let (mut stream, _) = other.accept().await.unwrap();
    stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
    while !matches!(endpoint.reconnect_state(), Some(ReconnectState::Waiting { .. })) {
        assert_ne!(endpoint.reconnect_state(), Some(ReconnectState::Connected));
        tokio::task::yield_now().await;
    }
}

/// A client that has not asked for packet-ins takes none.
#[tokio::test]
async fn a_packet_in_without_receiver_is_reported() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let mut client = TestClient::connect(stream).await;
    let controller = PortNo::CONTROLLER;
    let actions = vec![Action::Output { port: controller, max_len: 9 }];
    let packet = PacketOut { in_port: controller, actions, data: vec![0x55; 60] };
    client.send(&Message::PacketOut(packet)).await;
    let event = loop {
        if let Some(event) = host.take_events().pop() {
            break event;
        }
        tokio::task::yield_now().await;
    };
    assert!(!server.publish_packet_in(event.clone()));
    client.send(&Message::SetConfig(SwitchConfig { miss_send_len: 100 })).await;
    assert!(client.request(&Message::FeaturesRequest).await.is_some());
    assert!(server.publish_packet_in(event));
    assert!(matches!(client.receive().await, Some(Message::PacketIn(_))));
}

#[tokio::test]
async fn packet_out_becomes_packet_in_elsewhere() {
    let (host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let mut client = TestClient::connect(stream).await;
    client.send(&Message::SetConfig(SwitchConfig { miss_send_len: 100 })).await;
    let controller = PortNo::CONTROLLER;
    let actions = vec![Action::Output { port: controller, max_len: 9 }];
    let packet = PacketOut { in_port: controller, actions, data: vec![0x55; 60] };
    client.send(&Message::PacketOut(packet.clone())).await;
    let event = loop {
        if let Some(event) = host.take_events().pop() {
            break event;
        }
        tokio::task::yield_now().await;
    };
    server.publish(event);
    let Some(Message::PacketIn(packet_in)) = client.receive().await else { panic!("a packet-in") };
    assert_eq!((packet_in.data, packet_in.reason), (packet.data, PacketInReason::Action));
}

/// The comparisons of rules and monitors are interrupted several times.
#[tokio::test]
async fn a_list_for_many_monitors_is_completed() {
    let (_host, server) = bridge();
    let endpoint = server.listen_tcp(TcpListener::bind(ANY_PORT).await.unwrap());
    let stream = TcpStream::connect(endpoint.local_address().unwrap()).await.unwrap();
    let mut client = TestClient::connect(stream).await;
    for number in 0..200 {
        let rule = format!("reg0={number},actions=drop");
        let rule = parse_rule(FlowModCommand::Add, &rule, &NoPortNames).unwrap();
        client.send(&Message::FlowMod(rule)).await;
    }
    let monitor = |id| FlowMonitorRequest {
        id: FlowMonitorId(id),
        flags: FlowMonitorFlags { initial: true, add: true, ..FlowMonitorFlags::default() },
        table: TableSelector::All,
        matching: parse_match("ip", &NoPortNames).unwrap(),
        out_port: PortNo::ANY,
    };
    let request = MultipartRequest::FlowMonitor((0..1024).map(monitor).collect());
    client.send(&Message::MultipartRequest(request)).await;
    let received = tokio::time::timeout(Duration::from_secs(60), client.receive()).await;
    let reply = MultipartReply::FlowMonitor(Vec::new());
    assert_eq!(received.unwrap(), Some(Message::MultipartReply { more: false, reply }));
}
