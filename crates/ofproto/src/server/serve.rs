//! The task of one connection.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::broadcast::{Receiver, error::RecvError},
};

use super::{bridge::Shared, notices::Behind};
use crate::{
    Host,
    connection::{Connection, ConnectionConfig, Event, Step, Wait},
    error::CloseReason,
};

/// Bytes read at once.
const READ_LEN: usize = 1 << 14;
/// Time for the last words of a connection that is over.
const FAREWELL: Duration = Duration::from_secs(1);
/// The longest sleep, for a connection that no clock concerns.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

type Waiting<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How a connection ended.
pub(super) struct Ended {
    pub(super) reason: CloseReason,
    /// Whether a version had been agreed on.
    pub(super) was_open: bool,
}

/// What happened next.
enum Happened {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    Event(Result<Event, RecvError>),
    Notice(Result<Event, Behind>),
    WaitOver,
    Time,
}

/// Serves a connection to its end; `opened` is called when a version has been agreed on.
pub(super) async fn serve<H: Host>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    config: ConnectionConfig,
    shared: &Shared<H>,
    opened: impl FnOnce() + Send,
) -> Ended {
    let host = &*shared.host;
    let peer = config.peer.clone();
    let mut connection = Connection::new(config, shared.roles.clone(), host.now());
    let mut entry = shared.registry.enter(&peer, connection.status());
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut events: Receiver<Event> = shared.events.subscribe();
    let notices = shared.notices.subscribe();
    let mut notice: Option<Event> = None;
    let mut buffer = vec![0; READ_LEN];
    let mut waiting: Option<Waiting<'_>> = None;
    let mut opened = Some(opened);
    let reason = loop {
        let step = connection.process(host, host.now());
        entry.update(connection.status());
        if connection.status().is_open
            && let Some(opened) = opened.take()
        {
            opened();
        }
        match &step {
            Step::Closed(reason) => break reason.clone(),
            Step::Wait(wait) if waiting.is_none() => waiting = Some(begin(*wait, host)),
            Step::Wait(_) | Step::Idle | Step::Full => {}
        }
        // What the peer must hear waits here until there is room for it.
        let _told = notice.take_if(|event| connection.tell(event, host.now()));
        let output = connection.poll_output();
        let sleep = connection.poll_timeout().map_or(SLEEP_MAX, |time| time.since(host.now()));
        let happened = tokio::select! {
            read = reader.read(&mut buffer), if step == Step::Idle => Happened::Read(read),
            wrote = writer.write(output.unwrap_or_default()), if output.is_some() => {
                Happened::Wrote(wrote)
            }
            event = events.recv() => Happened::Event(event),
            notice = notices.next(notice.is_none()) => Happened::Notice(notice),
            () = over(&mut waiting), if waiting.is_some() => Happened::WaitOver,
            () = tokio::time::sleep(sleep) => Happened::Time,
        };
        let now = host.now();
        match happened {
            Happened::Read(Ok(0)) | Happened::Wrote(Ok(0)) => break CloseReason::PeerClosed,
            Happened::Read(Err(error)) | Happened::Wrote(Err(error)) => {
                break CloseReason::Transport(error.kind());
            }
            Happened::Read(Ok(count)) => {
                connection.receive(buffer.get(..count).unwrap_or_default(), now);
            }
            Happened::Wrote(Ok(count)) => connection.consume(count, now),
            Happened::Event(Ok(event)) => connection.notify(&event, now),
            Happened::Event(Err(RecvError::Lagged(missed))) => {
                tracing::warn!(peer, missed, "events came faster than they could be told");
            }
            // The server that publishes events is gone; its endpoints go with it.
            Happened::Event(Err(RecvError::Closed)) => break CloseReason::PeerClosed,
            Happened::Notice(Ok(event)) => notice = Some(event),
            Happened::Notice(Err(Behind)) => break CloseReason::Behind,
            Happened::WaitOver => {
                waiting = None;
                connection.resume(host, now);
            }
            Happened::Time => connection.tick(now),
        }
    };
    say_farewell(&mut connection, &mut writer).await;
    Ended { reason, was_open: opened.is_none() }
}

fn begin<H: Host>(wait: Wait, host: &H) -> Waiting<'_> {
    match wait {
        Wait::Adopted(version) => Box::pin(host.adopted(version)),
        Wait::Counts => Box::pin(host.pull_counts()),
    }
}

async fn over(waiting: &mut Option<Waiting<'_>>) {
    if let Some(waiting) = waiting {
        waiting.await;
    }
}

/// Sends what still waits, such as the error that explains the end.
async fn say_farewell(connection: &mut Connection, writer: &mut (impl AsyncWrite + Unpin)) {
    let send_all = async {
        while let Some(bytes) = connection.poll_output() {
            let count = writer.write(bytes).await.ok().filter(|count| *count > 0)?;
            connection.consume(count, shunt_pipeline::Time::ZERO);
        }
        writer.shutdown().await.ok()
    };
    // Whether it arrived in time does not matter any more.
    let _ = tokio::time::timeout(FAREWELL, send_all).await;
}
