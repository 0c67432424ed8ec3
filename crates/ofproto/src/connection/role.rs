//! Controller roles, which all connections of a bridge share (OpenFlow 1.3.5, 6.3.5).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    error::ErrorCode,
    message::{Generation, RoleMessage, RoleName},
};

/// The number of a connection within its bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// The master connection of a bridge and the latest generation id.
///
/// A connection that lost the master role to another connection notices it when it looks up its
/// role.
#[derive(Debug, Default)]
pub struct RoleRegistry(Mutex<RoleState>);

/// The master of a bridge, and the newest generation id.
#[derive(Debug, Default)]
struct RoleState {
    /// The newest generation id of a role request.
    generation: Option<Generation>,
    /// The connection with the role of master.
    master: Option<ConnectionId>,
    /// Number of connections that were opened.
    connections_count: u64,
}

/// The role that a connection requested.
///
/// Of several connections that requested the role master, the last one is the master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestedRole {
    #[default]
    Equal,
    Master,
    Slave,
}

impl RoleRegistry {
    /// Returns a number for a new connection.
    pub fn register(&self) -> ConnectionId {
        let mut board = self.lock();
        board.connections_count += 1;
        ConnectionId(board.connections_count)
    }

    /// Returns the current role of the connection.
    pub(super) fn role(&self, id: ConnectionId, requested_role: RequestedRole) -> RoleName {
        match requested_role {
            RequestedRole::Equal => RoleName::Equal,
            RequestedRole::Master if self.lock().master == Some(id) => RoleName::Master,
            RequestedRole::Master | RequestedRole::Slave => RoleName::Slave,
        }
    }

    /// Grants a role; fails if the generation id of the request is stale.
    pub(super) fn grant(
        &self,
        id: ConnectionId,
        request: RoleMessage,
        requested_role: &mut RequestedRole,
    ) -> Result<RoleMessage, ErrorCode> {
        let mut board = self.lock();
        if matches!(request.role, RoleName::Master | RoleName::Slave) {
            let is_stale =
                |own: Generation| board.generation.is_some_and(|known| own.is_lagging(known));
            if request.generation.is_some_and(is_stale) {
                return Err(ErrorCode::RoleStale);
            }
            board.generation = request.generation.or(board.generation);
        }
        match request.role {
            RoleName::NoChange => {}
            RoleName::Equal => *requested_role = RequestedRole::Equal,
            RoleName::Master => *requested_role = RequestedRole::Master,
            RoleName::Slave => *requested_role = RequestedRole::Slave,
        }
        if request.role == RoleName::Master {
            board.master = Some(id);
        } else if request.role != RoleName::NoChange && board.master == Some(id) {
            board.master = None;
        }
        let generation = Some(board.generation.unwrap_or(Generation::UNDEFINED));
        drop(board);
        Ok(RoleMessage { role: self.role(id, *requested_role), generation })
    }

    /// Gives up the master role when a connection ends.
    pub(super) fn release(&self, id: ConnectionId) {
        let mut board = self.lock();
        if board.master == Some(id) {
            board.master = None;
        }
    }

    /// Locks the roles, also after a panic, which leaves the roles consistent.
    fn lock(&self) -> MutexGuard<'_, RoleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
