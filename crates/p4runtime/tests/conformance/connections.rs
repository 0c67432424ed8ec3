//! Connections: not of the specification, but what a peer may take of the server.

use std::time::Duration;

use shunt_p4runtime::{
    server::Settings,
    wire::p4::v1::{CapabilitiesRequest, p4_runtime_client::P4RuntimeClient},
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::peer::{DEVICE, World};

/// Whether a new connection is served.
async fn is_served(world: &World) -> bool {
    let Ok(mut client) = P4RuntimeClient::connect(world.address.clone()).await else {
        return false;
    };
    client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok()
}

#[tokio::test]
async fn one_connection_more_than_there_may_be_is_closed_and_a_place_is_free_again() {
    let settings = Settings { device_id: DEVICE, connections_max: 2, ..Settings::default() };
    let world = World::with(settings).await;
    let mut first = world.peer().await;
    let second = world.peer().await;
    assert!(first.client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok());
    let address = world.address.trim_start_matches("http://");
    let third = TcpStream::connect(address).await.unwrap();
    let patience = Duration::from_secs(10);
    timeout(patience, third.readable()).await.unwrap().unwrap();
    // Closed, and nothing was said.
    assert!(!third.try_read(&mut [0; 64]).is_ok_and(|count| count > 0));
    assert!(!is_served(&world).await);
    assert!(first.client.capabilities(CapabilitiesRequest { device_id: DEVICE }).await.is_ok());
    drop(second);
    let freed = async {
        while !is_served(&world).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(patience, freed).await.unwrap();
}
