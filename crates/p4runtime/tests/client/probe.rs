//! A client notices that its device does not answer, without sending HTTP/2 pings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use shunt_gigaflow::offload::OffloadEvent;
use shunt_p4runtime::client::ClientSettings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

use super::{RestartableServer, TEST_TIMEOUT, connect_with, insert, poll_until, run_operations};

/// Counts of the HTTP/2 frames that a client sent through a proxy.
#[derive(Debug, Default)]
struct FrameCounts {
    pings: AtomicUsize,
    requests: AtomicUsize,
    /// True if the proxy drops all bytes.
    is_cut: AtomicBool,
    /// Notifies the test of a request.
    requested: Notify,
}

/// Forwards one connection to a server, and counts the frames of the client.
async fn start_proxy(server: &RestartableServer, counts: &Arc<FrameCounts>) -> ClientSettings {
    /// Length of the connection preface (RFC 9113, 3.4).
    const PREFACE: usize = 24;
    /// Length of a frame header (RFC 9113, 4.1).
    const HEADER: usize = 9;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server_address, counts) = (server.address, Arc::clone(counts));
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(server_address).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        let mut preface = [0; PREFACE];
        from_client.read_exact(&mut preface).await.unwrap();
        to_server.write_all(&preface).await.unwrap();
        loop {
            let mut header = [0; HEADER];
            if from_client.read_exact(&mut header).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length.try_into().unwrap()];
            from_client.read_exact(&mut payload).await.unwrap();
            let is_reply = header[4] & 1 != 0;
            match header[3] {
                1 => {
                    counts.requests.fetch_add(1, Ordering::Relaxed);
                    counts.requested.notify_one();
                }
                6 if !is_reply => {
                    counts.pings.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
            if counts.is_cut.load(Ordering::Relaxed) {
                continue;
            }
            to_server.write_all(&[&header[..], &payload].concat()).await.unwrap();
        }
    });
    ClientSettings { address: format!("http://{address}"), ..server.settings() }
}

/// Servers end a connection with many pings, so an idle client sends requests.
#[tokio::test]
async fn an_idle_client_probes_without_pings() {
    let (server, counts) = (RestartableServer::new().await, Arc::new(FrameCounts::default()));
    let settings = start_proxy(&server, &counts).await;
    let probe = Duration::from_millis(5);
    let mut target = connect_with(&server, ClientSettings { probe, ..settings }).await;
    let before = counts.requests.load(Ordering::Relaxed);
    let probed = async {
        while counts.requests.load(Ordering::Relaxed) < before + 10 {
            counts.requested.notified().await;
        }
    };
    assert!(timeout(TEST_TIMEOUT, probed).await.is_ok(), "{counts:?}");
    assert_eq!(counts.pings.load(Ordering::Relaxed), 0);
    assert_eq!(run_operations(&server, &mut target, vec![insert(1)]).await.len(), 1);
}

#[tokio::test]
async fn a_device_that_stops_to_answer_is_lost() {
    let (server, counts) = (RestartableServer::new().await, Arc::new(FrameCounts::default()));
    let settings = ClientSettings {
        probe: Duration::from_millis(5),
        request_timeout: Duration::from_millis(500),
        ..start_proxy(&server, &counts).await
    };
    let mut target = connect_with(&server, settings).await;
    counts.is_cut.store(true, Ordering::Relaxed);
    let mut events = Vec::new();
    poll_until(&server, &mut target, &mut events, |events| {
        events.iter().any(|event| matches!(event, OffloadEvent::Lost(_)))
    })
    .await;
}
