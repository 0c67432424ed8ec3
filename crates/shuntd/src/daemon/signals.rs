//! The signals of the daemon, from its start to its end.

use std::io;

use tokio::{runtime::Runtime, signal::unix};
use tracing::info;

/// A request by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The handlers of the signals.
///
/// A signal with a handler cannot kill the process, so no signal but SIGKILL leaves files behind. The
/// handlers are installed before the daemon creates any file. A signal that nobody waits for is kept.
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
    /// SIGUSR1 and SIGUSR2, which change nothing.
    user: [unix::Signal; 2],
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    ///
    /// If the system refuses.
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

    /// Waits for the next request. It may be cancelled without losing one.
    pub(super) async fn next(&mut self) -> Signal {
        let [first, second] = &mut self.user;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Signal::Stop,
                _ = self.interrupt.recv() => return Signal::Stop,
                _ = self.hangup.recv() => return Signal::Reload,
                _ = first.recv() => info!("shuntd: SIGUSR1 ignored"),
                _ = second.recv() => info!("shuntd: SIGUSR2 ignored"),
            }
        }
    }

    /// Waits for SIGTERM or SIGINT; other signals wait for [`Self::next`].
    pub(super) async fn stopped(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
