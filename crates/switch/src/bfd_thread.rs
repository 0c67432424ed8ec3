//! The BFD thread: passes received packets and the time to the sessions, and sends their packets.
//!
//! A session with intervals of 100 ms expires after 300 ms. So a separate thread runs the sessions.
//! The BFD thread changes no bridges, ports or rules, and takes none of their locks. Frames carry
//! the time of their arrival, so a delay of the thread does not look like silence of the other end.

use std::{
    sync::Arc,
    thread::{Builder, JoinHandle, panicking},
};

use parking_lot::Mutex;
use shunt_datapath::thread::{CurrentIteration, IterationWatch};
use shunt_pipeline::Time;
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, error, info};

use crate::{
    control::ControlPlane,
    error::SwitchError,
    ports::{
        bfd::{port_session::PortSession, schedule::SessionSchedule, sessions::BfdSessions},
        change_log::ChangeLog,
        frame_inbox::FrameInbox,
        own_frames::send_at_once,
    },
    status::thread::{ThreadState, ThreadStatus},
    threads::{data_plane::DataPlane, slot::ThreadSlot},
};

/// Name of the thread in status reports.
const BFD: &str = "bfd thread";

/// The thread that runs the BFD sessions of all ports.
pub(crate) struct BfdThread {
    /// Notified when the thread must end.
    stop: Arc<Notify>,
    /// The iterations of the thread.
    iterations: Arc<IterationWatch>,
    /// The OS thread, until it is joined.
    slot: Mutex<ThreadSlot<JoinHandle<()>>>,
}

impl BfdThread {
    /// Starts the BFD thread.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread.
    pub(crate) fn start(
        control: Arc<ControlPlane>,
        inbox: Arc<FrameInbox>,
    ) -> Result<Self, SwitchError> {
        let system =
            |source| SwitchError::System { doing: "start the thread of BFD".into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(system)?;
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let iterations = Arc::<IterationWatch>::default();
        let watch = Arc::clone(&iterations);
        let run = move || {
            let _watch = PanicWatch(&control);
            runtime.block_on(async {
                tokio::select! {
                    () = run_bfd(&control, &inbox, &watch) => {}
                    () = stopped.notified() => {}
                }
            });
        };
        let handle = Builder::new().name("shunt-bfd".to_owned()).spawn(run).map_err(system)?;
        Ok(Self { stop, iterations, slot: Mutex::new(ThreadSlot::Running(handle)) })
    }

    /// Returns the state of the BFD thread.
    pub(crate) fn status(&self) -> ThreadStatus {
        let mut slot = self.slot.lock();
        let state = if slot.has_panicked() { ThreadState::Panicked } else { slot.state() };
        ThreadStatus::new(BFD.to_owned(), state)
    }

    /// Returns the name and the present iteration of the thread; `None` if it sleeps.
    pub(crate) fn current_iteration(&self) -> Option<(&'static str, CurrentIteration)> {
        let is_running = self.slot.lock().running().is_some();
        self.iterations.current().filter(|_| is_running).map(|current| (BFD, current))
    }

    /// Stops the BFD thread and waits for its end.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
        self.slot.lock().stop();
    }
}

/// Takes the ports with BFD out of use if the thread panics.
///
/// Without the thread, nothing would detect that the path behind a port has failed.
struct PanicWatch<'a>(&'a ControlPlane);

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if panicking() {
            error!(
                "bfd thread: the thread panicked, so ports with BFD are out of use: restart \
                 the switch"
            );
            self.0.bridges.bfd().abandon();
            self.0.bridges.changed().note();
        }
    }
}

/// Runs the BFD sessions of all ports, as long as the switch runs.
///
/// If the listener thread has ended, no packet arrives, and the sessions expire by their detection
/// times.
async fn run_bfd(control: &ControlPlane, inbox: &FrameInbox, iterations: &IterationWatch) {
    let (plane, sessions) = (&control.plane, control.bridges.bfd());
    let mut schedule = SessionSchedule::new(sessions.current());
    let mut log = ChangeLog::default();
    loop {
        let deadline = schedule.deadline().into_iter().chain(log.deadline()).min();
        let delay = deadline.map(|deadline| deadline.since(plane.now()));
        tokio::select! {
            () = inbox.wait() => {}
            () = sessions.changed().notified() => schedule.set_all_due(),
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => {}
        }
        iterations.begin();
        let current = sessions.current();
        if !schedule.is_of(&current) {
            schedule = SessionSchedule::new(current);
        }
        // The clock is read before the frames, so no session expires while a frame for it waits.
        let now = plane.now();
        for ((bridge, port), received) in inbox.take() {
            // Frames of a removed session are dropped.
            let Some(session) = schedule.session(bridge, port) else { continue };
            for error in session.receive(&received) {
                debug!("port {}: BFD ignored a packet: {error}", session.name);
            }
        }
        for ended in sessions.take_ended() {
            run(control, &ended, now, &mut log).await;
        }
        for (place, session) in schedule.take_due(now) {
            run(control, &session, now, &mut log).await;
            schedule.put_back(place, now);
        }
        log.summaries(now).into_iter().for_each(|line| info!("{line}"));
        iterations.end();
    }
}

/// Ends sessions of ports to be removed, or all sessions before the daemon ends.
///
/// `ends` selects the sessions.
///
/// The last packets of the sessions have the state AdminDown, so the other ends do not wait for
/// their detection times. Returns when the packet threads have taken these packets.
pub(crate) async fn end_sessions(
    plane: &DataPlane,
    sessions: &BfdSessions,
    ends: impl Fn(&PortSession) -> bool,
) {
    let mut has_sent = false;
    for session in sessions.current().iter().filter(|own| ends(own)) {
        let done = session.finish(plane.now());
        for event in done.events {
            info!("port {}: BFD {event}", session.name);
        }
        if let Some((port, frame)) = done.frame {
            send_at_once(plane, port, frame).await;
            has_sent = true;
        }
    }
    if has_sent {
        plane.pull_threads().await;
    }
}

/// Runs a session: sends its next packet, and reports its state changes.
async fn run(
    control: &ControlPlane,
    session: &PortSession,
    now: Time,
    log: &mut ChangeLog<String>,
) {
    let done = session.run(now);
    let forwarding = done.forwarding.map(|own| format!("forwarding {own}"));
    let changes = done.events.iter().map(ToString::to_string).chain(forwarding);
    for change in changes {
        let owner = format!("port {}: BFD", session.name);
        log.line(&owner, change, now).into_iter().for_each(|line| info!("{line}"));
    }
    if done.forwarding.is_some() {
        // Another task changes the tables, because a change may have to wait.
        control.bridges.bfd().flapped().add(session.bridge, session.number);
    }
    if done.is_changed {
        // OVSDB databases show the states of both ends.
        control.bridges.changed().note_port(session.bridge, session.number);
    }
    if let Some((port, frame)) = done.frame {
        send_at_once(&control.plane, port, frame).await;
    }
}

#[cfg(test)]
mod tests;
