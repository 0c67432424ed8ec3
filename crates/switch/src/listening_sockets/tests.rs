//! Tests of listening sockets with a store in memory.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::net::UnixStream,
    thread,
};

use nix::sched::{CloneFlags, unshare};

use super::*;

/// A descriptor store in memory, which outlives the processes of a test.
#[derive(Debug, Default)]
struct MemoryStore(Mutex<BTreeMap<String, OwnedFd>>);

impl MemoryStore {
    /// Returns the names of the stored sockets.
    fn names(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }
}

impl DescriptorStore for MemoryStore {
    fn is_active(&self) -> bool {
        true
    }

    fn take(&self, prefix: &str) -> Vec<StoredDescriptor> {
        let content = self.0.lock();
        let own = content.iter().filter(|(name, _)| name.starts_with(prefix));
        let copy = |(name, fd): (&String, &OwnedFd)| StoredDescriptor {
            name: name.clone(),
            fd: fd.try_clone().unwrap(),
            is_inherited: true,
        };
        own.map(copy).collect()
    }

    fn keep(&self, prefix: &str, descriptors: Vec<StoredDescriptor>) {
        let mut content = self.0.lock();
        content.retain(|name, _| !name.starts_with(prefix));
        content.extend(descriptors.into_iter().map(|own| (own.name, own.fd)));
    }
}

/// Returns an address with an unused port.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn start_process(store: &Arc<MemoryStore>) -> ListeningSockets {
    ListeningSockets::new(Arc::<MemoryStore>::clone(store))
}

/// Binds a Unix socket, and keeps it with its path as key.
fn bind_unix(sockets: &ListeningSockets, path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    assert!(sockets.keep_unix(path.to_str().unwrap(), path, listener.as_fd()));
    listener
}

#[test]
fn client_between_two_processes_waits_for_next() {
    let store = Arc::<MemoryStore>::default();
    let address = free_address();
    let earlier = start_process(&store);
    drop((earlier.listen_tcp(address).unwrap(), earlier));
    // At this time, no process accepts connections.
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"hello").unwrap();
    let next = start_process(&store);
    let listener = next.listen_tcp(address).unwrap();
    listener.set_nonblocking(false).unwrap();
    let mut received = [0; 5];
    listener.accept().unwrap().0.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"hello");
}

#[test]
fn an_address_has_one_listening_socket() {
    let store = Arc::<MemoryStore>::default();
    let (sockets, address) = (start_process(&store), free_address());
    let first = sockets.listen_tcp(address).unwrap();
    let error = sockets.listen_tcp(address).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    drop(first);
    // The next listener has the same socket.
    sockets.pause_tcp(address);
    let client = TcpStream::connect(address).unwrap();
    let again = sockets.listen_tcp(address).unwrap();
    again.set_nonblocking(false).unwrap();
    assert_eq!(again.accept().unwrap().1, client.local_addr().unwrap());
}

#[test]
fn released_address_can_be_used_again() {
    let store = Arc::<MemoryStore>::default();
    let (sockets, address) = (start_process(&store), free_address());
    let listener = sockets.listen_tcp(address).unwrap();
    // A service manager may close its duplicate later than the daemon.
    let _late = store.0.lock().values().next().unwrap().try_clone().unwrap();
    sockets.release_tcp(address);
    assert_eq!(store.names().len(), 1, "the socket is in use");
    drop(listener);
    sockets.pause_tcp(address);
    sockets.release_tcp(address);
    assert!(store.names().is_empty());
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    TcpListener::bind(address).unwrap();
}

/// The next process may listen on all addresses of the port,
/// instead of on one address.
#[test]
fn an_unused_socket_makes_room_for_another_address() {
    let store = Arc::<MemoryStore>::default();
    let address = free_address();
    let earlier = start_process(&store);
    drop((earlier.listen_tcp(address).unwrap(), earlier));
    let next = start_process(&store);
    let all = SocketAddr::from(([0, 0, 0, 0], address.port()));
    next.listen_tcp(all).unwrap();
    assert_eq!(store.names(), [format!("listen/tcp/0.0.0.0_{}/", address.port())]);
}

/// Otherwise a daemon in another network namespace listens where no client is.
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
#[test]
fn a_socket_of_another_namespace_is_replaced() {
    let store = Arc::<MemoryStore>::default();
    let address = free_address();
    let all = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let earlier = Arc::clone(&store);
    let bound = thread::spawn(move || {
        // Only this thread moves to the new namespace.
        unshare(CloneFlags::CLONE_NEWNET)
            .is_ok()
            .then(|| start_process(&earlier).listen_tcp(all).unwrap())
    });
    let Some(elsewhere) = bound.join().unwrap() else {
        eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace");
        return;
    };
    let next = start_process(&store);
    assert!(store.names().is_empty());
    let listener = next.listen_tcp(all).unwrap();
    TcpStream::connect(address).unwrap();
    listener.set_nonblocking(false).unwrap();
    listener.accept().unwrap();
    assert_eq!(getsockopt(&elsewhere, AcceptConn), Ok(false), "clients there are refused");
}

#[test]
fn sockets_that_nobody_uses_are_closed() {
    let store = Arc::<MemoryStore>::default();
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let path = folder.path().join("br0.mgmt");
    let earlier = start_process(&store);
    drop((earlier.listen_tcp(address).unwrap(), bind_unix(&earlier, &path), earlier));
    start_process(&store).release_unused();
    assert!(store.names().is_empty() && !path.exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn unix_socket_is_taken_over_with_file() {
    let store = Arc::<MemoryStore>::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("br0.mgmt");
    let earlier = start_process(&store);
    drop((bind_unix(&earlier, &path), earlier));
    let client = UnixStream::connect(&path).unwrap();
    let next = start_process(&store);
    assert_eq!(next.files().len(), 1);
    let listener = next.inherited_unix(path.to_str().unwrap(), &path).unwrap();
    listener.accept().unwrap();
    drop(client);
    assert!(next.inherited_unix(path.to_str().unwrap(), &path).is_none(), "the socket is in use");
    assert!(UnixStream::connect(&path).is_ok(), "and stays open");
    next.release_all();
    assert!(store.names().is_empty() && !path.exists());
}

/// A daemon that was started by hand has replaced the socket file.
#[test]
fn a_unix_socket_without_its_file_is_refused() {
    let store = Arc::<MemoryStore>::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("br0.mgmt");
    let earlier = start_process(&store);
    drop((bind_unix(&earlier, &path), earlier));
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    let next = start_process(&store);
    assert!(next.inherited_unix(path.to_str().unwrap(), &path).is_none());
    assert!(store.names().is_empty() && path.exists(), "the file belongs to the other one");
}

#[test]
fn names_have_no_character_that_systemd_refuses() {
    for key in ["a:b", "a=b", "\u{e4}", "a b", &"x".repeat(201)] {
        assert_eq!(unix_key(key), None, "{key}");
    }
    let address = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 6653));
    assert_eq!(tcp_key(address), "listen/tcp/[__1]_6653/");
}

#[test]
fn an_unknown_descriptor_name_is_refused() {
    for name in ["listen/", "listen/tcp/x", "listen/unix/a", "listen/unix/a=1", "listen/unix/a=g-1"]
    {
        assert!(read_name(name).is_none(), "{name}");
    }
    let store = Arc::<MemoryStore>::default();
    let null = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    store.0.lock().insert("listen/tcp/127.0.0.1_1/".to_owned(), null);
    assert!(start_process(&store).files().is_empty());
    assert!(store.names().is_empty());
}

#[test]
fn without_a_store_sockets_end_with_the_process() {
    let sockets = ListeningSockets::default();
    let address = free_address();
    drop(sockets.listen_tcp(address).unwrap());
    assert!(TcpStream::connect(address).is_err());
    assert!(!sockets.are_kept());
}

#[test]
fn a_port_that_needs_a_right_has_advice() {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let text = with_remedy(refused(), address(443)).to_string();
    assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
    let text = with_remedy(refused(), address(8443)).to_string();
    assert!(!text.contains("CAP_NET_BIND_SERVICE"), "{text}");
}
