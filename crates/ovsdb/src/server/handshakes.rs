//! The TLS handshakes of a listener, of which the oldest gives way to a new one.

use std::collections::VecDeque;

use tokio::sync::oneshot;

/// The handshakes that a listener runs, the oldest first.
///
/// A peer without a certificate can begin handshakes and send nothing. A handshake therefore takes
/// no place of a client, and a new peer does not wait for the others.
#[derive(Debug, Default)]
pub(super) struct RunningHandshakes(VecDeque<oneshot::Sender<()>>);

/// Maximum number of handshakes that a listener runs at the same time.
const HANDSHAKES_MAX: usize = 32;

impl RunningHandshakes {
    /// Adds a handshake, which ends when the receiver is ready.
    ///
    /// The caller drops the receiver at the end of the handshake. If too many handshakes run, the
    /// oldest one ends.
    pub(super) fn begin(&mut self) -> oneshot::Receiver<()> {
        self.0.retain(|own| !own.is_closed());
        if self.0.len() >= HANDSHAKES_MAX {
            // The receiver of a dropped sender is ready.
            drop(self.0.pop_front());
        }
        let (sender, gives_way) = oneshot::channel();
        self.0.push_back(sender);
        gives_way
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[test]
    fn the_oldest_handshake_is_dropped_first() {
        let mut handshakes = RunningHandshakes::default();
        let mut running: VecDeque<_> = (0..HANDSHAKES_MAX).map(|_| handshakes.begin()).collect();
        assert_eq!(running[0].try_recv(), Err(TryRecvError::Empty));
        running.push_back(handshakes.begin());
        assert_eq!(running[0].try_recv(), Err(TryRecvError::Closed));
        assert_eq!(running[1].try_recv(), Err(TryRecvError::Empty));
        // The place of a handshake that has ended is free.
        drop(running.pop_back());
        running.push_back(handshakes.begin());
        assert_eq!(running[1].try_recv(), Err(TryRecvError::Empty));
    }
}
