//! Tests of pipelines: P4Runtime, "SetForwardingPipelineConfig RPC" and related requests.

use shunt_p4runtime::{
    testing::BROKEN_PROGRAM,
    wire::p4::v1::{
        self, ForwardingPipelineConfig, TableEntry,
        get_forwarding_pipeline_config_request::ResponseType,
        set_forwarding_pipeline_config_request::Action, update::Type,
    },
};
use tonic::Code;

use crate::peer::{DEVICE, LTM, Peer, ServerFixture, config, id, ltm};

async fn get(peer: &mut Peer, kind: ResponseType) -> Option<ForwardingPipelineConfig> {
    let request =
        v1::GetForwardingPipelineConfigRequest { device_id: DEVICE, response_type: kind.into() };
    peer.client.get_forwarding_pipeline_config(request).await.unwrap().into_inner().config
}

#[tokio::test]
async fn capabilities_name_the_protocol_version() {
    let fixture = ServerFixture::new().await;
    let mut peer = fixture.peer().await;
    let reply = peer.client.capabilities(v1::CapabilitiesRequest { device_id: DEVICE }).await;
    let version = reply.unwrap().into_inner().p4runtime_api_version;
    let numbers: Vec<u32> = version.split('.').map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers[0] == 1, "{version}");
}

#[tokio::test]
async fn without_a_pipeline_get_fails() {
    let fixture = ServerFixture::new().await;
    assert_eq!(get(&mut fixture.peer().await, ResponseType::All).await, None);
}

#[tokio::test]
async fn without_a_pipeline_writes_and_reads_are_refused() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    let refused = peer.write(Vec::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let query = v1::entity::Entity::TableEntry(Box::default());
    assert_eq!(peer.read(query).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_set_pipeline_is_returned() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    let mut sent = config(7);
    // A P4Info field that this server does not know: number 2047, a varint.
    sent.p4info.as_mut().unwrap().extend([0xf8, 0x7f, 0x05]);
    peer.set(Action::VerifyAndCommit, Some(sent.clone())).await.unwrap();
    assert_eq!(get(&mut peer, ResponseType::All).await, Some(sent.clone()));
    let cookie = sent.cookie;
    let nothing = ForwardingPipelineConfig { cookie, ..Default::default() };
    let info = ForwardingPipelineConfig { p4info: sent.p4info, ..nothing.clone() };
    let program =
        ForwardingPipelineConfig { p4_device_config: sent.p4_device_config, ..nothing.clone() };
    assert_eq!(get(&mut peer, ResponseType::CookieOnly).await, Some(nothing));
    assert_eq!(get(&mut peer, ResponseType::P4infoAndCookie).await, Some(info));
    assert_eq!(get(&mut peer, ResponseType::DeviceConfigAndCookie).await, Some(program));
}

#[tokio::test]
async fn requests_of_another_device_find_nothing() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    let request = v1::SetForwardingPipelineConfigRequest {
        device_id: 9,
        election_id: Some(id(1)),
        action: Action::VerifyAndCommit.into(),
        config: Some(config(1)),
        ..Default::default()
    };
    let refused = peer.client.set_forwarding_pipeline_config(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let request = v1::GetForwardingPipelineConfigRequest { device_id: 9, response_type: 0 };
    let refused = peer.client.get_forwarding_pipeline_config(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let request = v1::WriteRequest { device_id: 9, election_id: Some(id(1)), ..Default::default() };
    assert_eq!(peer.client.write(request).await.unwrap_err().code(), Code::NotFound);
    let request = v1::ReadRequest { device_id: 9, ..Default::default() };
    assert_eq!(peer.client.read(request).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn only_the_primary_sets_a_pipeline_and_writes() {
    let fixture = ServerFixture::new().await;
    let mut peer = fixture.peer().await;
    let refused = peer.set(Action::VerifyAndCommit, Some(config(1))).await;
    assert_eq!(refused, Err(Code::PermissionDenied));
    peer.election = None;
    assert_eq!(peer.write(Vec::new()).await.unwrap_err().code(), Code::PermissionDenied);
    let (_primary, _stream) = fixture.primary().await;
    peer.election = Some(id(9));
    let refused = peer.set(Action::VerifyAndCommit, Some(config(1))).await;
    assert_eq!(refused, Err(Code::PermissionDenied));
}

#[tokio::test]
async fn verify_does_not_change_the_pipeline() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    assert_eq!(peer.set(Action::Verify, Some(config(1))).await, Ok(()));
    assert_eq!(get(&mut peer, ResponseType::All).await, None);
}

#[tokio::test]
async fn a_saved_program_is_active_after_its_commit() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    assert_eq!(peer.set(Action::VerifyAndSave, Some(config(3))).await, Ok(()));
    assert_eq!(get(&mut peer, ResponseType::All).await, None);
    assert_eq!(peer.set(Action::Commit, None).await, Ok(()));
    assert_eq!(get(&mut peer, ResponseType::All).await, Some(config(3)));
    assert_eq!(peer.set(Action::Commit, None).await, Err(Code::NotFound));
}

#[tokio::test]
async fn a_commit_needs_a_saved_configuration() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    assert_eq!(peer.set(Action::Commit, None).await, Err(Code::NotFound));
    assert_eq!(peer.set(Action::Commit, Some(config(1))).await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn a_verify_needs_a_configuration() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    for action in
        [Action::Verify, Action::VerifyAndSave, Action::VerifyAndCommit, Action::ReconcileAndCommit]
    {
        assert_eq!(peer.set(action, None).await, Err(Code::InvalidArgument), "{action:?}");
    }
    assert_eq!(peer.set(Action::Unspecified, Some(config(1))).await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn broken_program_does_not_block_later_one() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    let broken =
        ForwardingPipelineConfig { p4_device_config: BROKEN_PROGRAM.to_vec(), ..config(1) };
    let refused = peer.set(Action::VerifyAndCommit, Some(broken)).await;
    assert_eq!(refused, Err(Code::InvalidArgument));
    assert_eq!(peer.set(Action::VerifyAndCommit, Some(config(1))).await, Ok(()));
    assert_eq!(peer.code(Type::Insert, ltm(1, 1)).await, Code::Ok);
}

#[tokio::test]
async fn an_inconsistent_p4info_is_refused() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.primary().await;
    let garbage = ForwardingPipelineConfig { p4info: Some(vec![0xff; 9]), ..config(1) };
    let refused = peer.set(Action::VerifyAndCommit, Some(garbage)).await;
    assert_eq!(refused, Err(Code::InvalidArgument));
    let missing = ForwardingPipelineConfig { p4info: None, ..config(1) };
    let refused = peer.set(Action::VerifyAndCommit, Some(missing)).await;
    assert_eq!(refused, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn a_commit_clears_all_entries() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    assert_eq!(peer.code(Type::Insert, ltm(1, 1)).await, Code::Ok);
    assert_eq!(peer.set(Action::VerifyAndCommit, Some(config(2))).await, Ok(()));
    let all = TableEntry { table_id: LTM, ..TableEntry::default() };
    assert_eq!(peer.entries(all).await, []);
    assert!(fixture.device.0.lock().entries.is_empty());
}

#[tokio::test]
async fn a_reconcile_keeps_entries_of_the_same_program() {
    let fixture = ServerFixture::new().await;
    let (mut peer, _stream) = fixture.ready().await;
    assert_eq!(peer.code(Type::Insert, ltm(1, 1)).await, Code::Ok);
    assert_eq!(peer.set(Action::ReconcileAndCommit, Some(config(2))).await, Ok(()));
    let all = TableEntry { table_id: LTM, ..TableEntry::default() };
    assert_eq!(peer.entries(all).await, [ltm(1, 1)]);
    assert_eq!(get(&mut peer, ResponseType::CookieOnly).await.unwrap().cookie, config(2).cookie);
    let other = ForwardingPipelineConfig { p4_device_config: b"other".to_vec(), ..config(1) };
    let refused = peer.set(Action::ReconcileAndCommit, Some(other)).await;
    assert_eq!(refused, Err(Code::Unimplemented));
}
