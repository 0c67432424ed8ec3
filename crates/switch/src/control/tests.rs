//! Tests of the control plane.

use shunt_pipeline::Iterative;

use super::*;
use crate::{
    config::{self, PortType},
    openflow::servers::OpenFlowServers,
    ports::registry::BridgeRegistry,
};

fn bridge(name: &str) -> config::BridgeOptions {
    config::BridgeOptions { name: name.to_owned(), ..config::BridgeOptions::default() }
}

fn null(name: &str) -> config::PortOptions {
    config::PortOptions {
        name: name.to_owned(),
        kind: PortType::Null,
        ..config::PortOptions::default()
    }
}

/// Starts a control plane with a limited range of numbers.
fn start(numbers: u32) -> Arc<ControlPlane> {
    let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
    let store = Arc::new(shunt_datapath::port::NoDescriptorStore);
    let (control, news) = ControlPlane::start(&Config::default(), 1, engine, store).unwrap();
    *control.bridges.lock() = BridgeRegistry::limited(numbers);
    tokio::spawn(Arc::new(OpenFlowServers::new(&control, None)).run(news));
    control
}

#[tokio::test]
async fn numbers_of_bridges_and_ports_are_reused() {
    let control = start(3);
    for _ in 0..20 {
        control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
        for name in ["p1", "p2"] {
            control.structure().await.add_port("br0", null(name)).await.unwrap();
        }
        control.structure().await.remove_port("p1").await.unwrap();
        control.structure().await.remove_bridge("br0").await.unwrap();
    }
}

#[tokio::test]
async fn a_refused_request_takes_no_number() {
    let control = start(2);
    control.structure().await.add_bridge(&bridge("br0")).await.unwrap();
    control.structure().await.add_port("br0", null("p1")).await.unwrap();
    for _ in 0..10 {
        let again = control.structure().await.add_port("br0", null("p1")).await;
        assert!(matches!(again, Err(SwitchError::PortExists { .. })), "{again:?}");
        let nowhere = control.structure().await.add_port("br9", null("p2")).await;
        assert!(matches!(nowhere, Err(SwitchError::NoSuchBridge { .. })), "{nowhere:?}");
        let again = control.structure().await.add_bridge(&bridge("br0")).await;
        assert!(matches!(again, Err(SwitchError::BridgeExists(_))), "{again:?}");
    }
    control.structure().await.add_port("br0", null("p2")).await.unwrap();
    let more = control.structure().await.add_port("br0", null("p3")).await;
    assert!(matches!(more, Err(SwitchError::NoNumber { what: "port" })), "{more:?}");
    control.structure().await.add_bridge(&bridge("br1")).await.unwrap();
    let more = control.structure().await.add_bridge(&bridge("br2")).await;
    assert!(matches!(more, Err(SwitchError::NoNumber { what: "bridge" })), "{more:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settings_that_change_at_the_same_time_all_change() {
    let control = start(1);
    let change = |setting: &'static str, read: fn(&Config) -> u64| {
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            for value in 1..=20_000 {
                control.structure().await.set(&[(setting, &value.to_string())]).await.unwrap();
                assert_eq!(read(&control.config.lock()), value, "no other task changes {setting}");
            }
        })
    };
    let idle = change("caches.idle_ms", |config| config.caches.idle_ms);
    let turn = change("threads.translations_per_iteration", |config| {
        config.threads.translations_per_iteration as u64
    });
    idle.await.unwrap();
    turn.await.unwrap();
}
