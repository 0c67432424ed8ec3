//! The loop of the thread that owns the databases.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    ServerClock,
    outbox::Outbox,
    server_core::{ClientId, ServerCore},
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
    /// A client has connected.
    Connected(ClientId, Outbox, oneshot::Sender<()>),
    /// A client has sent a message. The permit returns when the message is handled.
    Received(ClientId, Value, OwnedSemaphorePermit),
    /// A new client needs the place of an idle one. The reply is whether there is one.
    MakeRoom(oneshot::Sender<bool>),
    /// A client has gone.
    Disconnected(ClientId),
    /// The owner changes rows.
    Transact(RowTransaction, oneshot::Sender<Result<(), TransactionError>>),
    /// The owner reads rows.
    Snapshot(oneshot::Sender<Result<DatabaseSnapshot, OvsdbServerError>>),
    /// The owner wants to know of changes.
    Subscribe(Arc<PendingChanges>),
    /// The server ends.
    Stop,
}

/// Handles events until the server is stopped, or nobody can send any more.
pub(super) async fn run_server(
    mut core: ServerCore,
    clock: ServerClock,
    mut events: mpsc::Receiver<ServerEvent>,
) {
    loop {
        let event = match core.next_expiry() {
            None => events.recv().await,
            Some(expiry) => {
                let wait = expiry.saturating_sub((clock.monotonic)());
                match tokio::time::timeout(wait, events.recv()).await {
                    Ok(event) => event,
                    Err(_) => {
                        core.expire();
                        continue;
                    }
                }
            }
        };
        // An owner that has gone needs no answer.
        match event {
            None | Some(ServerEvent::Stop) => return,
            Some(ServerEvent::Connected(client, outbox, end)) => core.connect(client, outbox, end),
            Some(ServerEvent::Received(client, message, permit)) => {
                core.receive(client, message);
                drop(permit);
            }
            Some(ServerEvent::MakeRoom(reply)) => drop(reply.send(core.end_idle())),
            Some(ServerEvent::Disconnected(client)) => core.disconnect(client),
            Some(ServerEvent::Transact(transaction, reply)) => {
                let _ = reply.send(core.transact(&transaction));
            }
            Some(ServerEvent::Snapshot(reply)) => drop(reply.send(core.snapshot())),
            Some(ServerEvent::Subscribe(pending)) => core.subscribe(pending),
        }
    }
}
