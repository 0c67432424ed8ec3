//! Tests of the connection limit, which is not part of the specification.

use std::time::Duration;

use shunt_p4runtime::{
    server::ServerSettings,
    wire::p4::v1::{CapabilitiesRequest, p4_runtime_client::P4RuntimeClient},
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::peer::{DEVICE, ServerFixture};

/// Returns whether a new connection is served.
async fn is_served(fixture: &ServerFixture) -> bool {
    let Ok(mut client) = P4RuntimeClient::connect(fixture.address.clone()).await else {
        return false;
    };
    client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok()
}

#[tokio::test]
async fn connections_above_the_limit_are_closed() {
    let settings =
        ServerSettings { device_id: DEVICE, connections_max: 2, ..ServerSettings::default() };
    let fixture = ServerFixture::with(settings).await;
    let mut first = fixture.peer().await;
    let second = fixture.peer().await;
    assert!(first.client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok());
    let address = fixture.address.trim_start_matches("http://");
    let third = TcpStream::connect(address).await.unwrap();
    let limit = Duration::from_secs(10);
    timeout(limit, third.readable()).await.unwrap().unwrap();
    // The connection is closed without a response.
    assert!(!third.try_read(&mut [0; 64]).is_ok_and(|count| count > 0));
    assert!(!is_served(&fixture).await);
    assert!(first.client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok());
    drop(second);
    // No event tells a client that the server has room again.
    let freed = async {
        while !is_served(&fixture).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(limit, freed).await.unwrap();
}
