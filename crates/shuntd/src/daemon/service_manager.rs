//! Notifications to the service manager: readiness, reloads, status, watchdog.
//!
//! systemd starts a service of `Type=notify` with the path of a datagram socket in `NOTIFY_SOCKET`
//! (`sd_notify(3)`). The daemon sends lines such as `READY=1` to this socket. Without the variable,
//! the daemon sends nothing.
//!
//! With `WatchdogSec=`, systemd restarts a daemon that has not sent `WATCHDOG=1` for that time. The
//! daemon sends the line only after every packet thread has answered a ping. A sleeping thread
//! wakes up to answer, so the daemon also sends it while the switch is idle. Without a service
//! manager, a thread that does not answer is logged.
//!
//! All other threads are watched by their iterations
//! ([`HangWatch`](super::hang_watch::HangWatch)). Such a thread that hangs is logged, and does not
//! stop the line `WATCHDOG=1`: a very large change may take long in one iteration.

use std::{sync::Arc, time::Duration};

use sd_notify::NotifyState;
use shunt_switch::Switch;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::{daemon::hang_watch::HangWatch, render::counted};

/// Limit for the silence of a packet thread, if the service manager sets none.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Reports that the daemon is ready, and starts to watch packet threads.
pub(crate) fn start(switch: &Arc<Switch>) {
    notify_ready(switch);
    let watchdog = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
    tokio::spawn(watch_threads(Arc::clone(switch), watchdog));
}

/// Reports that the configuration is in force, with the size of the switch.
pub(crate) fn notify_ready(switch: &Switch) {
    notify(&[NotifyState::Ready, NotifyState::Status(&size(switch))]);
}

/// Reports that a reload begins; [`notify_ready`] must follow.
pub(crate) fn notify_reloading() {
    // `Type=notify-reload` needs the time, to distinguish this reload from an earlier reload.
    let time = NotifyState::monotonic_usec_now().ok();
    let states = [Some(NotifyState::Reloading), time, Some(NotifyState::Status("reloading"))];
    notify(&states.into_iter().flatten().collect::<Vec<_>>());
}

/// Reports that the daemon is about to end.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Logs packet threads that hang, and feeds the watchdog while all iterate.
///
/// `watchdog` is the limit of the service manager; without it, no lines are sent.
async fn watch_threads(switch: Arc<Switch>, watchdog: Option<Duration>) {
    if let Some(limit) = watchdog {
        info!(
            "watchdog: on: the service manager restarts the daemon if a packet thread hangs for {} s",
            limit.as_secs_f64()
        );
    }
    let limit = watchdog.unwrap_or(SILENCE_MAX);
    let consequence = match watchdog {
        Some(_) => "the watchdog is not notified and the service manager will restart the daemon",
        None => "its packets wait: restart the daemon",
    };
    // The longest wait for answers, and the pause, together take less than the limit.
    let (answer_max, pause) = (limit / 2, limit / 4);
    let (mut shown, mut stalled_before) = (size(&switch), Vec::new());
    let mut hangs = HangWatch::new(answer_max);
    loop {
        let stalled = switch.stalled_packet_threads(answer_max).await;
        if stalled != stalled_before {
            log_stall(&stalled, answer_max, consequence);
        }
        hangs.observe(&switch.current_iterations(), Instant::now());
        if watchdog.is_none() {
            stalled_before = stalled;
            sleep(pause).await;
            continue;
        }
        let status = if stalled.is_empty() { size(&switch) } else { stall(&stalled) };
        let fed = stalled.is_empty().then_some(NotifyState::Watchdog);
        let changed = (status != shown).then_some(NotifyState::Status(&status));
        let states: Vec<_> = fed.into_iter().chain(changed).collect();
        if !states.is_empty() {
            notify(&states);
        }
        (shown, stalled_before) = (status, stalled);
        sleep(pause).await;
    }
}

/// Logs which threads have stalled, with the consequence.
fn log_stall(stalled: &[usize], limit: Duration, consequence: &str) {
    if stalled.is_empty() {
        info!("watchdog: no packet thread hangs any more");
    }
    for thread in stalled {
        error!(
            limit_ms = millis(limit),
            "packet thread {thread}: no iteration ended in time, so {consequence}"
        );
    }
}

/// Returns the number of bridges, ports and packet threads of a switch.
fn size(switch: &Switch) -> String {
    let config = switch.running_config();
    let ports = config.bridges.iter().map(|bridge| bridge.ports.len() as u64).sum();
    format!(
        "{}, {}, {}",
        counted(config.bridges.len() as u64, "bridge"),
        counted(ports, "port"),
        counted(config.threads.packet.into(), "packet thread")
    )
}

/// Returns the status line of a switch with packet threads that do not iterate.
fn stall(threads: &[usize]) -> String {
    let names: Vec<String> = threads.iter().map(usize::to_string).collect();
    format!("packet threads that hang: {}", names.join(", "))
}

/// Returns a time in milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sends notifications to the service manager, if the daemon has one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "service manager: a notification cannot be sent");
    }
}
