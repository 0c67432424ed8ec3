//! The socket of a connection.

use std::{convert::Infallible, io, mem};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpStream, UnixStream},
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use tracing::info;

use super::{
    OvsdbClientConfig, OvsdbClientError, OvsdbRemote, ReplicaSession, ReplicaState,
    TransactionReply,
};
use crate::{framing::JsonFramer, transaction::RowTransaction};

/// A transaction, and the channel that gets its result.
pub(super) type ClientTransaction = (RowTransaction, TransactionReply);

/// An established connection to a server.
pub(super) struct ServerStream {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// The channels of the client task to and from the client handles.
pub(super) struct ClientChannels {
    /// The transactions of the handles, which the task sends to the server.
    pub(super) transactions: mpsc::Receiver<ClientTransaction>,
    /// The state that the handles see.
    pub(super) state: watch::Sender<ReplicaState>,
}

impl ClientChannels {
    /// Publishes the state of a session to the client handles.
    ///
    /// Changes of columns that the program itself writes are published without a notification.
    pub(super) fn publish(&self, session: &mut ReplicaSession) {
        let new = session.state();
        self.state.send_if_modified(|state| {
            let key = |state: &ReplicaState| (state.changes, state.is_current, state.lock);
            let is_notified = key(state) != key(&new);
            *state = new;
            is_notified
        });
        session.send_results();
    }
}

/// Number of bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

impl ServerStream {
    /// Connects to a server.
    pub(super) async fn open(config: &OvsdbClientConfig) -> Result<Self, OvsdbClientError> {
        let open = async {
            Ok(match &config.remote {
                OvsdbRemote::Unix(path) => {
                    let (reader, writer) = UnixStream::connect(path).await?.into_split();
                    Self { reader: Box::new(reader), writer: Box::new(writer) }
                }
                OvsdbRemote::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    let (reader, writer) = stream.into_split();
                    Self { reader: Box::new(reader), writer: Box::new(writer) }
                }
                OvsdbRemote::Tls(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    let (reader, writer) = split(config.tls.connect(stream).await?);
                    Self { reader: Box::new(reader), writer: Box::new(writer) }
                }
            })
        };
        let opened = timeout(config.reply_time_max, open).await;
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        opened.map_err(late).and_then(|result| result).map_err(OvsdbClientError::Connect)
    }

    /// Serves a connection until it ends.
    ///
    /// # Errors
    ///
    /// The reason why the connection ended.
    pub(super) async fn serve(
        mut self,
        config: &OvsdbClientConfig,
        session: &mut ReplicaSession,
        channels: &mut ClientChannels,
    ) -> Result<Infallible, OvsdbClientError> {
        session.connected();
        let mut framer = JsonFramer::new(config.message_bytes);
        let mut received = vec![0; READ_BYTES];
        let mut unsent = Vec::new();
        let mut is_flushed = true;
        let mut is_probed = false;
        let mut progress = (false, 0);
        let silence = sleep(config.probe_interval);
        let overdue = sleep(config.reply_time_max);
        tokio::pin!(silence, overdue);
        loop {
            for message in session.take_outgoing() {
                unsent.extend_from_slice(message.to_string().as_bytes());
            }
            let last = mem::replace(&mut progress, (session.awaits_reply(), session.replies()));
            if progress != last {
                overdue.as_mut().reset(Instant::now() + config.reply_time_max);
            }
            tokio::select! {
                count = self.reader.read(&mut received) => {
                    let count = count.map_err(read_failure)?;
                    if count == 0 {
                        return Err(OvsdbClientError::Closed);
                    }
                    framer.push(received.get(..count).unwrap_or_default());
                    let was_current = session.is_current();
                    while let Some((message, _)) = framer.next_message()? {
                        session.receive(message)?;
                    }
                    if session.is_current() && !was_current {
                        info!(target: "shunt_ovsdb", "database {}: connected", config.remote);
                    }
                    channels.publish(session);
                    is_probed = false;
                    silence.as_mut().reset(Instant::now() + config.probe_interval);
                }
                count = write_or_flush(&mut *self.writer, &unsent),
                    if !is_flushed || !unsent.is_empty() =>
                {
                    is_flushed = unsent.is_empty();
                    unsent.drain(..count.map_err(OvsdbClientError::Io)?);
                }
                received = channels.transactions.recv() => {
                    let (transaction, reply) = received.ok_or(OvsdbClientError::Stopped)?;
                    session.transact(&transaction, reply);
                }
                () = silence.as_mut() => {
                    if is_probed {
                        return Err(OvsdbClientError::Silent(config.probe_interval));
                    }
                    is_probed = true;
                    session.probe();
                    silence.as_mut().reset(Instant::now() + config.probe_interval);
                }
                () = overdue.as_mut(), if session.awaits_reply() => {
                    return Err(OvsdbClientError::Silent(config.reply_time_max));
                }
            }
        }
    }
}

/// Returns the reason why nothing more can be read.
///
/// A server that is killed ends TLS without a notification, which the TLS library reports with a
/// text for programmers. Each message is parsed as a whole, so the end loses nothing unnoticed.
fn read_failure(error: io::Error) -> OvsdbClientError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => OvsdbClientError::Closed,
        _ => OvsdbClientError::Io(error),
    }
}

/// Writes some of the bytes, or flushes the stream if there are none.
///
/// TLS keeps bytes that the socket has not taken. Returns the number of bytes that were written.
async fn write_or_flush(
    writer: &mut (dyn AsyncWrite + Send + Unpin),
    unsent: &[u8],
) -> io::Result<usize> {
    if unsent.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    writer.write(unsent).await
}
