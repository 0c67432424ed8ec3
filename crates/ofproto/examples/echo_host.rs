//! Serves an in-memory bridge on a unix socket, to try OpenFlow clients.
//!
//! ```text
//! cargo run -p shunt-ofproto --features testing --example echo_host -- /tmp/br0.mgmt
//! ovs-ofctl -O OpenFlow13 show unix:/tmp/br0.mgmt
//! ```
//!
//! The optional second argument is the address of a controller.

use std::{path::PathBuf, sync::Arc, time::Duration};

use shunt_ofproto::{
    connection::{ConnectionConfig, ConnectionKind},
    server::{OpenFlowServer, UnixListenSocket},
    testing::MemoryHost,
};
use shunt_pipeline::Time;

/// Serves the bridge until Ctrl-C. Fails for an unusable path or address.
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path: PathBuf =
        arguments.next().ok_or("no socket path: pass it as the first argument")?.into();
    let began = tokio::time::Instant::now();
    let clock = move || Time::ZERO.after(began.elapsed());
    let host = Arc::new(MemoryHost::new(clock));
    let server = OpenFlowServer::new(Arc::clone(&host));
    let _listener = server.listen_unix(UnixListenSocket::bind(&path).await?);
    let _controller = arguments.next().map(|address| address.parse()).transpose()?.map(|address| {
        let config = ConnectionConfig::new(format!("tcp:{address}"), ConnectionKind::Controller);
        server.connect_tcp(address, config)
    });
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(10)) => {
                host.take_events().into_iter().for_each(|event| server.publish(event));
            }
        }
    }
}
