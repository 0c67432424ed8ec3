//! The signals that the daemon handles, from its start to its end.

use std::io;

use tokio::{runtime::Runtime, signal::unix};
use tracing::info;

/// A request to the daemon by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT: stop the daemon.
    Stop,
    /// SIGHUP: reload the configuration file.
    Reload,
}

/// The signal handlers of the daemon.
///
/// A signal with a handler cannot kill the process, so only SIGKILL leaves files behind. The
/// handlers are installed before the daemon creates any file. A signal that arrives while no caller
/// waits is kept.
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
    /// SIGUSR1 and SIGUSR2, which have no effect.
    user: [unix::Signal; 2],
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    ///
    /// If the kernel refuses a handler.
    pub(super) fn install(runtime: &Runtime) -> io::Result<Self> {
        let _entered = runtime.enter();
        let signal = |kind| unix::signal(kind);
        Ok(Self {
            terminate: signal(unix::SignalKind::terminate())?,
            interrupt: signal(unix::SignalKind::interrupt())?,
            hangup: signal(unix::SignalKind::hangup())?,
            user: [
                signal(unix::SignalKind::user_defined1())?,
                signal(unix::SignalKind::user_defined2())?,
            ],
        })
    }

    /// Waits for the next request.
    ///
    /// Cancelling the call loses no request.
    pub(super) async fn next(&mut self) -> Signal {
        let [first, second] = &mut self.user;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Signal::Stop,
                _ = self.interrupt.recv() => return Signal::Stop,
                _ = self.hangup.recv() => return Signal::Reload,
                _ = first.recv() => info!("shuntd: the signal SIGUSR1 is ignored"),
                _ = second.recv() => info!("shuntd: the signal SIGUSR2 is ignored"),
            }
        }
    }

    /// Waits for SIGTERM or SIGINT; other signals are kept for [`Self::next`].
    pub(super) async fn stopped(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
