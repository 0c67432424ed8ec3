//! The task that serves one connection.

use std::{future::Future, pin::Pin, time::Duration};

use shunt_pipeline::Time;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::broadcast::{Receiver, error::RecvError},
};

use super::{
    bridge::ServerState,
    listener_places::{PeerActivity, PeerPhase},
    reliable_events::Lagged,
};
use crate::{
    Host, MonitorQueue,
    connection::{Connection, ConnectionConfig, ConnectionStep, ControllerEvent, Wait},
    error::CloseReason,
};

/// Number of bytes per read.
const READ_LEN: usize = 1 << 14;
/// Time to send the remaining output of a closed connection.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest sleep, for a connection without a timer.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// A wait of a connection for its host.
type WaitFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The reason why a connection ended, and how long it was open.
pub(super) struct ConnectionEnd {
    /// The reason of the end.
    pub(super) reason: CloseReason,
    /// Time since version negotiation; `None` if no version was agreed on.
    pub(super) open_for: Option<Duration>,
}

/// Updates the treatment of table misses after the end of a connection.
///
/// The guard is older than the entry of the registry, so it is dropped after it.
struct MissUpdate<'a, H: Host>(&'a ServerState<H>);

impl<H: Host> Drop for MissUpdate<'_, H> {
    fn drop(&mut self) {
        self.0.update_misses();
    }
}

/// The event that woke the task.
enum TaskEvent {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    /// A stream with TLS keeps written bytes until it is flushed.
    Flushed(std::io::Result<()>),
    Event(Result<ControllerEvent, RecvError>),
    Notice(Result<ControllerEvent, Lagged>),
    /// Work for the flow monitors, which the connection does itself.
    Monitored,
    WaitOver,
    Time,
}

/// Serves a connection until it ends; calls `opened` when a version is agreed on.
///
/// The connection records its activity in `activity`.
pub(super) async fn serve<H: Host>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    config: ConnectionConfig,
    shared: &ServerState<H>,
    activity: &PeerActivity,
    opened: impl FnOnce() + Send,
) -> ConnectionEnd {
    let (host, peer) = (&*shared.host, config.peer.clone());
    let mut connection = shared.new_connection(config);
    let _misses = MissUpdate(shared);
    let mut entry = shared.registry.register(&peer, connection.status());
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut events: Receiver<ControllerEvent> = shared.events.subscribe();
    let reliable_events = shared.reliable_events.subscribe();
    let (mut buffer, mut pending_event) = (vec![0; READ_LEN], None::<ControllerEvent>);
    let mut waiting: Option<WaitFuture<'_>> = None;
    let (mut opened, mut opened_at, mut is_unflushed) = (Some(opened), None, false);
    let reason = loop {
        let step = connection.process(host, host.now());
        shared.record(&mut entry, connection.status());
        if connection.status().is_open && opened_at.is_none() {
            opened.take().into_iter().for_each(|opened| opened());
            opened_at = Some(host.now());
        }
        match &step {
            ConnectionStep::Closed(reason) => break reason.clone(),
            ConnectionStep::Wait(wait) => _ = waiting.get_or_insert_with(|| wait_for(*wait, host)),
            ConnectionStep::Idle | ConnectionStep::Full | ConnectionStep::Busy => {}
        }
        activity.set_phase(phase_of(&connection, &step), host.now());
        // A reliable event waits in `pending_event` until the output queue has room.
        let _delivered =
            pending_event.take_if(|event| connection.notify_reliable(event, host.now()));
        let (monitored, output) = (connection.monitor_queue(), connection.poll_output());
        is_unflushed |= output.is_some();
        let sleep = connection.poll_timeout().map_or(SLEEP_MAX, |time| time.since(host.now()));
        let task_event = tokio::select! {
            read = reader.read(&mut buffer), if step == ConnectionStep::Idle => TaskEvent::Read(read),
            sent = send(&mut writer, output), if output.is_some() || is_unflushed => sent,
            event = events.recv() => TaskEvent::Event(event),
            pending_event = reliable_events.next(pending_event.is_none()) => TaskEvent::Notice(pending_event),
            () = wait_for_changes(monitored.as_deref()) => TaskEvent::Monitored,
            () = tokio::task::yield_now(), if step == ConnectionStep::Busy => TaskEvent::Monitored,
            () = finish_wait(&mut waiting), if waiting.is_some() => TaskEvent::WaitOver,
            () = tokio::time::sleep(sleep) => TaskEvent::Time,
        };
        let now = host.now();
        record_activity(activity, &task_event, now);
        match task_event {
            TaskEvent::Read(Ok(0)) | TaskEvent::Wrote(Ok(0)) => break CloseReason::PeerClosed,
            TaskEvent::Read(Err(error))
            | TaskEvent::Wrote(Err(error))
            | TaskEvent::Flushed(Err(error)) => break CloseReason::Transport(error.kind()),
            TaskEvent::Flushed(Ok(())) => is_unflushed = false,
            TaskEvent::Read(Ok(count)) => {
                connection.receive(buffer.get(..count).unwrap_or_default(), now);
            }
            TaskEvent::Wrote(Ok(count)) => connection.consume(count, now),
            TaskEvent::Event(Ok(event)) => connection.notify(&event, now),
            TaskEvent::Event(Err(RecvError::Lagged(missed))) => {
                connection.miss_packet_ins(missed, now);
            }
            // The server was dropped, and its endpoints with it.
            TaskEvent::Event(Err(RecvError::Closed)) => break CloseReason::PeerClosed,
            TaskEvent::Notice(Ok(event)) => pending_event = Some(event),
            TaskEvent::Notice(Err(Lagged)) => break CloseReason::Lagged,
            TaskEvent::Monitored => {}
            TaskEvent::WaitOver => {
                waiting = None;
                connection.resume(host, now);
            }
            TaskEvent::Time => connection.tick(now),
        }
    };
    shared.record(&mut entry, connection.status());
    flush_output(&mut connection, &mut writer).await;
    ConnectionEnd { reason, open_for: opened_at.map(|since: Time| host.now().since(since)) }
}

/// Records received or sent bytes as activity of the peer.
fn record_activity(activity: &PeerActivity, event: &TaskEvent, now: Time) {
    if matches!(event, TaskEvent::Read(Ok(_)) | TaskEvent::Wrote(Ok(_))) {
        activity.record_activity(now);
    }
}

/// Returns the phase of a connection after a step.
fn phase_of(connection: &Connection, step: &ConnectionStep) -> PeerPhase {
    match step {
        _ if !connection.status().is_open => PeerPhase::AwaitsHello,
        ConnectionStep::Idle if connection.has_requested() => PeerPhase::Idle,
        ConnectionStep::Idle => PeerPhase::Silent,
        ConnectionStep::Full
        | ConnectionStep::Busy
        | ConnectionStep::Wait(_)
        | ConnectionStep::Closed(_) => PeerPhase::Busy,
    }
}

/// Writes output, or flushes what was written before.
async fn send(writer: &mut (impl AsyncWrite + Unpin), output: Option<&[u8]>) -> TaskEvent {
    match output {
        Some(bytes) => TaskEvent::Wrote(writer.write(bytes).await),
        None => TaskEvent::Flushed(writer.flush().await),
    }
}

/// Returns the future that ends when the host has done the wait.
fn wait_for<H: Host>(wait: Wait, host: &H) -> WaitFuture<'_> {
    match wait {
        Wait::Adopted(version) => Box::pin(host.adopted(version)),
        Wait::Counts => Box::pin(host.pull_counts()),
    }
}

/// Waits until rule changes arrive for flow monitors; forever without monitors.
async fn wait_for_changes(monitored: Option<&MonitorQueue>) {
    match monitored {
        Some(queue) => {
            queue.wait_for_changes().await;
            // Also while the peer reads nothing, and the connection takes no changes.
            queue.coalesce();
        }
        None => std::future::pending().await,
    }
}

/// Waits until a delayed reply is ready, if there is one.
async fn finish_wait(waiting: &mut Option<WaitFuture<'_>>) {
    if let Some(waiting) = waiting {
        waiting.await;
    }
}

/// Sends the remaining output, such as the error that explains the end.
async fn flush_output(connection: &mut Connection, writer: &mut (impl AsyncWrite + Unpin)) {
    let send_all = async {
        while let Some(bytes) = connection.poll_output() {
            let count = writer.write(bytes).await.ok().filter(|count| *count > 0)?;
            connection.consume(count, Time::ZERO);
        }
        writer.shutdown().await.ok()
    };
    // The connection has ended already, so a timeout is not an error.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, send_all).await;
}
