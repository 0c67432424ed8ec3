//! Tests of the device configuration that a device without the program gets.

use std::{fs, sync::Arc, time::Duration};

use shunt_p4runtime::{
    client::{ClientSettings, DeviceConfig, P4RuntimeDevice},
    wire::p4::v1::{
        GetForwardingPipelineConfigRequest, get_forwarding_pipeline_config_request::ResponseType,
        p4_runtime_client::P4RuntimeClient,
    },
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use super::{RestartableServer, TEST_TIMEOUT, is_restored, poll_until};

/// Reads the device configuration that the server has.
async fn device_config(server: &RestartableServer) -> Vec<u8> {
    let address = format!("http://{}", server.address);
    let mut client = P4RuntimeClient::connect(address).await.unwrap();
    let request = GetForwardingPipelineConfigRequest {
        device_id: 1,
        response_type: ResponseType::DeviceConfigAndCookie.into(),
    };
    let response = client.get_forwarding_pipeline_config(request).await.unwrap();
    response.into_inner().config.unwrap().p4_device_config
}

#[tokio::test]
async fn the_device_configuration_is_read_from_its_file() {
    let server = RestartableServer::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gigaflow.bin");
    let settings =
        ClientSettings { device_config: DeviceConfig::File(path.clone()), ..server.settings() };
    let (last_error, news) = (settings.last_error.clone(), Arc::clone(&server.news));
    let mut target = P4RuntimeDevice::new(settings, &Handle::current(), move || news.notify_one());
    // The client sends no event for an error before its first session.
    let is_missing = async {
        while last_error.text().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TEST_TIMEOUT, is_missing).await.unwrap();
    let expected = format!("cannot read the device configuration {}: No such", path.display());
    let text = last_error.text().unwrap();
    assert!(text.starts_with(&expected), "{text}");

    fs::write(&path, b"compiled").unwrap();
    poll_until(&server, &mut target, &mut Vec::new(), is_restored).await;
    assert_eq!(device_config(&server).await, b"compiled");
}
