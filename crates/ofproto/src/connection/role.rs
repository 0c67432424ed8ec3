//! Who is master: what all connections of a bridge share (OpenFlow 1.3.5, 6.3.5).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    error::ErrorCode,
    message::{Generation, RoleMessage, RoleName},
};

/// A connection among those of its bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// The master of a bridge and the elections so far.
///
/// A connection that was master learns that it no longer is by asking: another has its place.
#[derive(Debug, Default)]
pub struct RoleBoard(Mutex<Board>);

#[derive(Debug, Default)]
struct Board {
    generation: Option<Generation>,
    master: Option<ConnectionId>,
    connections_count: u64,
}

/// What a connection asked to be. Of several that asked to be master, the last one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestedRole {
    #[default]
    Equal,
    Master,
    Slave,
}

impl RoleBoard {
    /// A number for a new connection.
    pub fn register(&self) -> ConnectionId {
        let mut board = self.lock();
        board.connections_count += 1;
        ConnectionId(board.connections_count)
    }

    /// What the connection is.
    pub(super) fn role(&self, id: ConnectionId, wish: RequestedRole) -> RoleName {
        match wish {
            RequestedRole::Equal => RoleName::Equal,
            RequestedRole::Master if self.lock().master == Some(id) => RoleName::Master,
            RequestedRole::Master | RequestedRole::Slave => RoleName::Slave,
        }
    }

    /// Grants a role, or says that the election which it speaks of is over.
    pub(super) fn grant(
        &self,
        id: ConnectionId,
        request: RoleMessage,
        wish: &mut RequestedRole,
    ) -> Result<RoleMessage, ErrorCode> {
        let mut board = self.lock();
        if matches!(request.role, RoleName::Master | RoleName::Slave) {
            if board.generation.is_some_and(|known| request.generation.is_behind(known)) {
                return Err(ErrorCode::RoleStale);
            }
            board.generation = Some(request.generation);
        }
        match request.role {
            RoleName::NoChange => {}
            RoleName::Equal => *wish = RequestedRole::Equal,
            RoleName::Master => *wish = RequestedRole::Master,
            RoleName::Slave => *wish = RequestedRole::Slave,
        }
        if request.role == RoleName::Master {
            board.master = Some(id);
        } else if request.role != RoleName::NoChange && board.master == Some(id) {
            board.master = None;
        }
        let generation = board.generation.unwrap_or(Generation::UNDEFINED);
        drop(board);
        Ok(RoleMessage { role: self.role(id, *wish), generation })
    }

    /// The connection is gone.
    pub(super) fn release(&self, id: ConnectionId) {
        let mut board = self.lock();
        if board.master == Some(id) {
            board.master = None;
        }
    }

    /// Every change of the board is one assignment, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
