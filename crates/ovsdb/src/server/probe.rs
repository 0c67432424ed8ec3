//! Inactivity probes: a client that answers none has gone without closing its connection.

use std::{future::pending, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

/// The times of the connections of a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteTimes {
    /// Time without a message after which a client gets a probe (`echo`).
    ///
    /// After the same time without an answer, the session ends. `None` means no probes.
    pub probe_interval: Option<Duration>,
    /// Longest pause between two attempts to connect.
    pub backoff_max: Duration,
}

/// The request that a client must answer.
pub(super) const PROBE: &[u8] = br#"{"id":"echo","method":"echo","params":[]}"#;

impl RemoteTimes {
    /// The times of a remote without probes, such as a Unix socket.
    pub const WITHOUT_PROBES: Self = Self { probe_interval: None, ..Self::DEFAULT };

    /// The times of `ovsdb-server`.
    const DEFAULT: Self =
        Self { probe_interval: Some(Duration::from_secs(5)), backoff_max: Duration::from_secs(8) };
}

impl Default for RemoteTimes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Requests probes while a client is silent.
///
/// `received` is notified of each message of the client. Returns the time that a probe was left
/// without an answer.
pub(super) async fn probe(
    mut received: watch::Receiver<()>,
    mut times: watch::Receiver<RemoteTimes>,
    probes: mpsc::Sender<()>,
) -> Duration {
    let mut is_probed = false;
    loop {
        let interval = times.borrow_and_update().probe_interval;
        let silence = async {
            match interval {
                Some(interval) => {
                    sleep(interval).await;
                    interval
                }
                None => pending().await,
            }
        };
        tokio::select! {
            // A message that has arrived counts, however late this task runs.
            biased;
            Ok(()) = received.changed() => is_probed = false,
            Ok(()) = times.changed() => {}
            interval = silence => {
                if is_probed {
                    return interval;
                }
                is_probed = true;
                // A probe that waits for the socket is as good as a new one.
                let _ = probes.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that answers is probed again and again; a silent one once.
    #[tokio::test]
    async fn only_silent_clients_are_disconnected() {
        let interval = Duration::from_millis(5);
        let times = RemoteTimes { probe_interval: Some(interval), ..RemoteTimes::default() };
        let (_times, times) = watch::channel(times);
        let (received, watched) = watch::channel(());
        let (probes, mut requests) = mpsc::channel(1);
        let mut silent = tokio::spawn(probe(watched, times, probes));
        for _ in 0..3 {
            requests.recv().await.unwrap();
            received.send_replace(());
        }
        assert_eq!((&mut silent).await.unwrap(), interval);
    }

    #[tokio::test]
    async fn change_of_interval_has_effect_at_once() {
        let (changes, times) = watch::channel(RemoteTimes::WITHOUT_PROBES);
        let (_received, watched) = watch::channel(());
        let (probes, mut requests) = mpsc::channel(1);
        let silent = tokio::spawn(probe(watched, times, probes));
        tokio::task::yield_now().await;
        assert!(requests.try_recv().is_err());
        let interval = Duration::from_millis(1);
        changes
            .send_replace(RemoteTimes { probe_interval: Some(interval), ..RemoteTimes::default() });
        requests.recv().await.unwrap();
        assert_eq!(silent.await.unwrap(), interval);
    }
}
