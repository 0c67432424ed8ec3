//! Tests of the roles equal, master and slave.

use super::{add, code};
use crate::{
    ErrorCode,
    connection::ConnectionKind,
    message::{Generation, Message, MultipartRequest, RoleMessage, RoleName},
    testing::ConnectionHarness,
};

/// Requests a role; returns the reply.
fn request(harness: &mut ConnectionHarness, role: RoleName, generation: u64) -> Message {
    let request = RoleMessage { role, generation: Some(Generation(generation)) };
    harness.request(&Message::RoleRequest(request)).pop().unwrap()
}

fn role_reply(role: RoleName, generation: u64) -> Message {
    Message::RoleReply(RoleMessage { role, generation: Some(Generation(generation)) })
}

#[test]
fn connections_begin_as_equals_before_any_election() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let reply = request(&mut harness, RoleName::NoChange, 0);
    assert_eq!(reply, role_reply(RoleName::Equal, u64::MAX));
}

#[test]
fn new_master_makes_old_one_slave() {
    let mut old = ConnectionHarness::open(ConnectionKind::Controller);
    let mut new = old.another(ConnectionKind::Controller);
    assert_eq!(request(&mut old, RoleName::Master, 1), role_reply(RoleName::Master, 1));
    assert!(old.request(&Message::FlowMod(add(1))).is_empty());
    assert_eq!(request(&mut new, RoleName::Master, 2), role_reply(RoleName::Master, 2));
    assert_eq!(request(&mut old, RoleName::NoChange, 0), role_reply(RoleName::Slave, 2));
    let refused = old.request(&Message::FlowMod(add(2)));
    assert_eq!(code(&refused[0]), Some(ErrorCode::IsSlave));
    assert!(new.request(&Message::FlowMod(add(3))).is_empty());
}

#[test]
fn a_closed_master_frees_the_role() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    let mut other = harness.another(ConnectionKind::Controller);
    request(&mut other, RoleName::Master, 1);
    drop(other);
    assert_eq!(request(&mut harness, RoleName::Master, 1), role_reply(RoleName::Master, 1));
}

#[test]
fn stale_generations_are_refused_and_wrap_around() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    assert_eq!(
        request(&mut harness, RoleName::Slave, u64::MAX),
        role_reply(RoleName::Slave, u64::MAX)
    );
    let stale = request(&mut harness, RoleName::Master, u64::MAX - 1);
    assert_eq!(code(&stale), Some(ErrorCode::RoleStale));
    assert_eq!(request(&mut harness, RoleName::NoChange, 0), role_reply(RoleName::Slave, u64::MAX));
    // The generation id after the highest generation id is 0.
    assert_eq!(request(&mut harness, RoleName::Master, 0), role_reply(RoleName::Master, 0));
    let stale = request(&mut harness, RoleName::Slave, u64::MAX);
    assert_eq!(code(&stale), Some(ErrorCode::RoleStale));
    // The generation id of a request for the role equal is not checked.
    assert_eq!(request(&mut harness, RoleName::Equal, 7), role_reply(RoleName::Equal, 0));
}

#[test]
fn a_slave_may_read_and_configure_itself() {
    let mut harness = ConnectionHarness::open(ConnectionKind::Controller);
    request(&mut harness, RoleName::Slave, 1);
    for request in [
        Message::FeaturesRequest,
        Message::GetConfigRequest,
        Message::BarrierRequest,
        Message::GetAsyncRequest,
        Message::MultipartRequest(MultipartRequest::Table),
    ] {
        let replies = harness.request(&request);
        assert!(replies.iter().all(|reply| code(reply).is_none()), "{request:?}");
        assert_eq!(replies.len(), 1, "{request:?}");
    }
}
