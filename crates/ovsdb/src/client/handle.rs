//! The task of a client, and the handle for the program.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use thiserror::Error;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::sleep,
};
use tracing::{debug, warn};

use super::{
    OvsdbClientConfig, OvsdbClientError, ReplicaSession, ReplicaState,
    connection::{ClientChannels, ClientTransaction, ServerStream},
};
use crate::{transaction::RowTransaction, value::UuidGenerator};

/// A client of a foreign server. Clones refer to the same client.
///
/// The task of the client connects to the server, and reconnects when the connection is lost. A log
/// line reports each connection that begins or ends, with the reason.
///
/// ```
/// use shunt_ovsdb::{
///     Server, ServerConfig,
///     client::{FollowedTable, OvsdbClient, OvsdbClientConfig, OvsdbRemote},
///     schema, value::Datum,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let socket = folder.path().join("db.sock");
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// // Any server will do: here it is one in the same process.
/// let server = Server::open(schema::open_vswitch(), None, ServerConfig::default())?;
/// let server = server.listen(&socket)?.start()?;
///
/// // The client follows two columns of one table, and writes one of them.
/// let table =
///     FollowedTable { name: "Open_vSwitch", read: &["next_cfg"], written: &["cur_cfg"] };
/// let remote = OvsdbRemote::Unix(socket);
/// let mut config = OvsdbClientConfig::new(remote, "Open_vSwitch", vec![table]);
/// config.lock = Some("example".to_owned());
/// let mut client = OvsdbClient::start(config);
/// while !client.state().is_writable() {
///     client.changed().await?;
/// }
///
/// let mut transaction = client.transaction("initialize");
/// transaction.insert("Open_vSwitch", [("next_cfg", Datum::integer(7))]);
/// client.transact(transaction).await?;
/// let rows = client.state().rows.ok_or("no rows")?;
/// let row = rows.rows("Open_vSwitch").next().ok_or("no row")?;
/// assert_eq!(row.integer("next_cfg"), Some(7));
///
/// client.stop();
/// server.stop().await;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OvsdbClient {
    /// The transactions for the task of the client.
    transactions: mpsc::Sender<ClientTransaction>,
    /// The state that the task publishes.
    state: watch::Receiver<ReplicaState>,
    uuids: Arc<Mutex<UuidGenerator>>,
    /// Ends the task of the client.
    task: AbortHandle,
}

/// The reason why a transaction was not executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientTransactionError {
    /// The client is not connected, or another client owns the lock.
    ///
    /// If the connection was lost during the request, the server may have executed the transaction.
    #[error("the database cannot be written: it is not connected, or another client owns its lock")]
    NotWritable,
    /// The server, or the schema, refused the transaction.
    #[error("{0}")]
    Refused(String),
    /// The client of the database has stopped.
    #[error("the connection to the database was ended by the daemon")]
    Stopped,
}

/// Maximum number of transactions in the queue of the client task.
/// Senders wait while the queue is full.
const TRANSACTIONS_MAX: usize = 16;

impl OvsdbClient {
    /// Starts the task of a client in the current runtime.
    #[must_use]
    pub fn start(config: OvsdbClientConfig) -> Self {
        let config = Arc::new(config);
        let session = ReplicaSession::new(Arc::clone(&config));
        let (sender, transactions) = mpsc::channel(TRANSACTIONS_MAX);
        let (state, watched) = watch::channel(session.state());
        let channels = ClientChannels { transactions, state };
        let task = tokio::spawn(run(config, session, channels)).abort_handle();
        // The server chooses the UUIDs of rows, so the UUIDs of this generator need not be secret.
        let uuids = Arc::new(Mutex::new(UuidGenerator::new([0; 20])));
        Self { transactions: sender, state: watched, uuids, task }
    }

    /// Returns the newest rows from the server, and the state of the connection.
    #[must_use]
    pub fn state(&self) -> ReplicaState {
        self.state.borrow().clone()
    }

    /// Waits until a column that the program reads has changed.
    ///
    /// A change of the connection or of the lock also ends the wait. Dropping the future loses no
    /// change.
    ///
    /// # Errors
    ///
    /// If the client has stopped.
    pub async fn changed(&mut self) -> Result<(), ClientTransactionError> {
        self.state.changed().await.map_err(|_| ClientTransactionError::Stopped)
    }

    /// Begins a transaction with a comment for the log of the server.
    #[must_use]
    pub fn transaction(&self, comment: &str) -> RowTransaction {
        RowTransaction::new(comment, Arc::clone(&self.uuids))
    }

    /// Executes a transaction.
    /// When the function returns, the rows of the client contain the changes.
    ///
    /// # Errors
    ///
    /// If the client is not connected, another client owns the lock, or the server refuses the
    /// transaction.
    pub async fn transact(
        &self,
        transaction: RowTransaction,
    ) -> Result<(), ClientTransactionError> {
        let (reply, result) = oneshot::channel();
        let sent = self.transactions.send((transaction, reply)).await;
        sent.map_err(|_| ClientTransactionError::Stopped)?;
        match result.await {
            Ok(result) => result.map_err(ClientTransactionError::Refused),
            Err(_) => Err(ClientTransactionError::NotWritable),
        }
    }

    /// Stops the client: the connection ends.
    pub fn stop(&self) {
        self.task.abort();
    }
}

/// Connects and reconnects until all client handles are dropped.
async fn run(
    config: Arc<OvsdbClientConfig>,
    mut session: ReplicaSession,
    mut channels: ClientChannels,
) {
    let remote = &config.remote;
    let mut pause = config.pause_min;
    let mut last_reason = String::new();
    loop {
        let before = session.connections();
        let error = match ServerStream::open(&config).await {
            Ok(stream) => match stream.serve(&config, &mut session, &mut channels).await {
                Err(error) => error,
                Ok(never) => match never {},
            },
            Err(error) => error,
        };
        session.disconnected(Some(&error));
        channels.publish(&mut session);
        if matches!(error, OvsdbClientError::Stopped) {
            return;
        }
        let reason = error.to_string();
        let was_current = session.connections() != before;
        if was_current {
            pause = config.pause_min;
        }
        if was_current || reason != last_reason {
            warn!(target: "shunt_ovsdb", reason, "database {remote}: cannot connect, retrying");
        } else {
            debug!(target: "shunt_ovsdb", reason, "database {remote}: cannot connect");
        }
        last_reason = reason;
        if wait(pause, &mut channels).await.is_none() {
            return;
        }
        pause = pause.saturating_mul(2).min(config.pause_max);
    }
}

/// Waits for `pause`, and refuses transactions meanwhile.
///
/// Returns `None` when all client handles are dropped.
async fn wait(pause: Duration, channels: &mut ClientChannels) -> Option<()> {
    let end = sleep(pause);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = end.as_mut() => return Some(()),
            transaction = channels.transactions.recv() => drop(transaction?),
        }
    }
}
