//! The thread of BFD: gives sessions their packets and the time, and sends their packets.
//!
//! A session with intervals of 100 ms expires after 300 ms. So it has a thread of its own: no change of
//! bridges, ports or rules runs there. Of their locks, only that of the tables is taken, to send:
//! the removal of tens of thousands of rules holds it for tenths of a second.

use std::{
    sync::Arc,
    thread::{Builder, JoinHandle, panicking},
};

use shunt_pipeline::Time;
use tokio::{sync::Notify, time::sleep};
use tracing::{debug, error, info};

use crate::{
    control::ControlPlane,
    error::SwitchError,
    ports::{
        bfd::{port_session::PortSession, schedule::SessionSchedule},
        change_log::ChangeLog,
        frame_inbox::{FrameInbox, PortFrames, WaitingFrames},
        own_frames::send_frame,
    },
};

/// The thread that runs the BFD sessions of all ports.
pub(crate) struct BfdThread {
    stop: Arc<Notify>,
    handle: Option<JoinHandle<()>>,
}

impl BfdThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
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
        let run = move || {
            let _watch = PanicWatch(&control);
            runtime.block_on(async {
                tokio::select! {
                    () = run_bfd(&control, &inbox) => {}
                    () = stopped.notified() => {}
                }
            });
        };
        let handle = Builder::new().name("shunt-bfd".to_owned()).spawn(run).map_err(system)?;
        Ok(Self { stop, handle: Some(handle) })
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.stop.notify_one();
        if let Some(handle) = self.handle.take() {
            // A panic of the thread is logged already.
            let _ = handle.join();
        }
    }
}

/// Takes the ports with BFD out of use if the thread panics.
///
/// Nobody would notice any more that their paths fail.
struct PanicWatch<'a>(&'a ControlPlane);

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if panicking() {
            error!("BFD thread: panicked; ports with BFD are out of use, restart the switch");
            self.0.bridges.bfd().abandon();
            self.0.bridges.changed().note();
        }
    }
}

/// Runs the BFD sessions of all ports, as long as the switch runs.
///
/// Without the listener thread no packet arrives any more. The sessions notice that by their timeouts.
async fn run_bfd(control: &ControlPlane, inbox: &FrameInbox) {
    let (plane, sessions) = (&control.plane, control.bridges.bfd());
    let mut schedule = SessionSchedule::new(sessions.current());
    let mut log = ChangeLog::default();
    loop {
        let deadline = schedule.deadline().into_iter().chain(log.deadline()).min();
        let delay = deadline.map(|deadline| deadline.since(plane.now()));
        let received = tokio::select! {
            packets = inbox.take() => packets,
            () = sessions.changed().notified() => {
                schedule.set_all_due();
                WaitingFrames::new()
            }
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => WaitingFrames::new(),
        };
        let current = sessions.current();
        if !schedule.is_of(&current) {
            schedule = SessionSchedule::new(current);
        }
        let now = plane.now();
        for ((bridge, port), packets) in received {
            // A session that has gone gets none.
            if let Some(session) = schedule.session(bridge, port) {
                take(session, &packets, now);
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
    }
}

/// Gives the received packets of a port to its session.
fn take(session: &PortSession, received: &PortFrames, now: Time) {
    session.count_bad_packets(received.removed);
    for frame in &received.frames {
        if let Err(error) = session.receive(frame, now) {
            debug!("port {}: BFD ignored a packet: {error}", session.name);
        }
    }
}

/// Runs a session: sends its packet, and reports its changes.
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
        // Another task changes the tables, because it may have to wait.
        control.bridges.bfd().flapped().add(session.bridge, session.number);
    }
    if done.is_changed {
        // Databases have the states of both ends.
        control.bridges.changed().note();
    }
    if let Some(frame) = done.frame {
        send_frame(&control.plane, session.bridge, session.number, frame).await;
    }
}
