//! The loop of the thread that owns the databases.

use std::sync::Arc;

use shunt_thread_watch::IterationWatch;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    ServerClock,
    client_message::ClientMessage,
    outbox::Outbox,
    server_core::{ClientId, ClientOrigin, ServerCore},
    subscription::PendingChanges,
};
use crate::{
    database::DatabaseSnapshot,
    error::{OvsdbServerError, TransactionError},
    transaction::RowTransaction,
};

/// Work for the thread of the server.
#[derive(Debug)]
pub(super) enum ServerEvent {
    /// A client has connected to the server.
    Connected(ClientId, ClientOrigin, Outbox, oneshot::Sender<()>),
    /// A client has sent a message. The permit is released when the message is handled.
    Received(ClientId, ClientMessage, OwnedSemaphorePermit),
    /// A new client needs the permit of an idle client.
    /// The reply tells whether an idle client was disconnected.
    MakeRoom(ClientOrigin, oneshot::Sender<bool>),
    /// A client has disconnected from the server.
    Disconnected(ClientId),
    /// The owner of the server changes rows.
    Transact(RowTransaction, oneshot::Sender<Result<(), TransactionError>>),
    /// The owner of the server reads rows.
    Snapshot(oneshot::Sender<Result<DatabaseSnapshot, OvsdbServerError>>),
    /// The owner subscribes to the changes of clients.
    Subscribe(Arc<PendingChanges>),
    /// The owner stops the server.
    Stop,
}

/// Handles events until the server is stopped, or all senders are dropped.
///
/// `watch` has one iteration for each event; the wait for an event belongs to none.
pub(super) async fn run_server(
    mut core: ServerCore,
    clock: ServerClock,
    mut events: mpsc::Receiver<ServerEvent>,
    watch: &IterationWatch,
) {
    loop {
        let event = match core.next_expiry() {
            None => events.recv().await,
            Some(expiry) => {
                let wait = expiry.saturating_sub((clock.monotonic)());
                match tokio::time::timeout(wait, events.recv()).await {
                    Ok(event) => event,
                    Err(_) => {
                        watch.run(|| core.expire());
                        continue;
                    }
                }
            }
        };
        watch.begin();
        // If the owner has dropped the receiver, the answer is not needed.
        match event {
            None | Some(ServerEvent::Stop) => {
                watch.end();
                return;
            }
            Some(ServerEvent::Connected(client, origin, outbox, end)) => {
                core.connect_from(client, origin, outbox, end);
            }
            Some(ServerEvent::Received(client, message, permit)) => {
                core.receive_message(client, message);
                drop(permit);
            }
            Some(ServerEvent::MakeRoom(origin, reply)) => drop(reply.send(core.end_idle(origin))),
            Some(ServerEvent::Disconnected(client)) => core.disconnect(client),
            Some(ServerEvent::Transact(transaction, reply)) => {
                let _ = reply.send(core.transact(&transaction));
            }
            Some(ServerEvent::Snapshot(reply)) => drop(reply.send(core.snapshot())),
            Some(ServerEvent::Subscribe(pending)) => core.subscribe(pending),
        }
        watch.end();
    }
}
