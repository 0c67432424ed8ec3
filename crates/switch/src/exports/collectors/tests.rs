//! Tests of lists of collectors; the test opens the collectors' sockets.

use std::time::Duration;

use tokio::{net::UdpSocket, time::timeout};

use super::*;

/// Returns the socket of a collector, and its address.
async fn listener() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Receives a datagram; returns its first byte, and its source port.
async fn received(socket: &UdpSocket) -> (u8, u16) {
    let mut buffer = [0; 1];
    let received = timeout(Duration::from_secs(20), socket.recv_from(&mut buffer));
    let (_, from) = received.await.unwrap().unwrap();
    (buffer[0], from.port())
}

/// Returns a datagram for each number.
fn datagrams(numbers: impl Iterator<Item = u8>) -> Vec<ExportDatagram> {
    numbers.map(|number| ExportDatagram { bytes: vec![number], records: 1 }).collect()
}

/// Returns an empty set of collectors.
fn collectors() -> ExportCollectors {
    ExportCollectors::new("bridge br0: sFlow".to_owned(), TemplateUse::Never, &Arc::default())
}

#[tokio::test]
async fn collectors_that_stay_keep_their_sockets() {
    let ((first, a), (second, b)) = (listener().await, listener().await);
    let mut own = collectors();
    own.set(&[a, b]);
    own.send(datagrams(1..2));
    let (_, port) = received(&second).await;
    assert_eq!(received(&first).await.0, 1);
    own.set(&[b]);
    own.send(datagrams(2..3));
    assert_eq!(received(&second).await, (2, port));
    let totals = Arc::clone(own.totals());
    own.end().await;
    assert_eq!((totals.counts().sent, totals.counts().lost), (3, 0));
    assert!(first.try_recv(&mut [0]).is_err());
}

#[tokio::test]
async fn removed_collectors_get_their_waiting_datagrams() {
    let (socket, address) = listener().await;
    let mut own = collectors();
    own.set(&[address]);
    own.send(datagrams(0..100));
    own.set(&[]);
    for number in 0..100 {
        assert_eq!(received(&socket).await.0, number);
    }
    assert_eq!(own.totals().counts().sent, 100);
}

#[tokio::test]
async fn a_full_collector_does_not_hold_back_another() {
    let ((_socket, a), (_other, b)) = (listener().await, listener().await);
    let mut own = collectors();
    assert!(own.has_room(), "without collectors nothing waits");
    own.set(&[a]);
    // The sending task has not run yet.
    own.send(datagrams((0..5000_u16).map(|_| 0)));
    assert!(!own.has_room());
    own.set(&[a, b]);
    assert!(own.has_room());
    own.set(&[a]);
    own.wait_for_room().await;
    assert!(own.has_room());
}
