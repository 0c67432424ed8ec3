//! Packet threads that panic: nobody waits for them, and everybody hears of it.

use shunt_ofproto::message::{Message, MultipartReply, MultipartRequest, PortStatusReason};
use shunt_pipeline::RuleFilter;
use shunt_switch::SwitchError;

use crate::bench::{BREAK, Bench, Controller, PANIC, frame, until};

/// Packets that the only rule of a bridge has counted.
async fn counted(controller: &mut Controller) -> u64 {
    let request = Message::MultipartRequest(MultipartRequest::Flow(RuleFilter::all()));
    match controller.ask(&request).await {
        Message::MultipartReply { reply: MultipartReply::Flow(flows), .. } => flows[0].packets,
        other => panic!("{other:?}"),
    }
}

fn is_down(message: &Message, name: &str) -> bool {
    match message {
        Message::PortStatus(status) => {
            status.reason == PortStatusReason::Modify
                && status.port.name == name
                && !status.port.link_up
        }
        _ => false,
    }
}

#[tokio::test]
async fn a_thread_that_panics_takes_its_ports_down_and_nobody_waits_for_it() {
    let bench = Bench::start(2).await;
    let (doomed, from) = (bench.add_port("p1", 0).await, bench.add_port("p2", 1).await);
    let to = bench.add_port("p3", 1).await;
    bench.switch.add_rules("br0", &["in_port=p2,actions=output:p3"]).await.unwrap();
    let mut controller = bench.controller().await;
    from.send(&frame(1));
    assert_eq!(to.hear().await, frame(1));

    doomed.send(PANIC);
    until(|| bench.port("p1").link == "down: packet thread 0 has ended by a panic").await;
    assert!(doomed.is_closed());
    let running: Vec<bool> = bench.switch.threads().iter().map(|own| own.running).collect();
    assert_eq!(running, [false, true]);
    assert_eq!(bench.port("p2").link, "up");

    bench.switch.add_rules("br0", &["in_port=p2,actions=output:p3,output:p3"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    from.send(&frame(2));
    assert_eq!([to.hear().await, to.hear().await], [frame(2), frame(2)]);
    assert_eq!(counted(&mut controller).await, 2);
    assert!(controller.events.iter().any(|event| is_down(event, "p1")));
    bench.switch.remove_port("p1").await.unwrap();
    bench.switch.remove_port("p2").await.unwrap();
    assert!(from.is_closed());
}

#[tokio::test]
async fn requests_are_answered_while_a_thread_is_dying() {
    for _ in 0..8 {
        let bench = Bench::start(2).await;
        let doomed = bench.add_port("p1", 0).await;
        let mut controller = bench.controller().await;
        bench.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
        doomed.send(PANIC);
        for _ in 0..5 {
            assert_eq!(counted(&mut controller).await, 0);
            bench.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
            assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
        }
    }
}

#[tokio::test]
async fn without_packet_threads_every_port_is_down_and_requests_are_answered() {
    let bench = Bench::start(1).await;
    let (doomed, other) = (bench.add_port("p1", 0).await, bench.add_port("p2", 9).await);
    let mut controller = bench.controller().await;
    doomed.send(PANIC);
    until(|| ["p1", "p2"].iter().all(|port| bench.port(port).link.starts_with("down: pa"))).await;
    assert!(other.is_closed());
    bench.switch.add_rules("br0", &["actions=drop"]).await.unwrap();
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert_eq!(counted(&mut controller).await, 0);
    let (port, _far_end) = crate::bench::wire(0);
    let refused = bench.switch.add_own_port("br0", "p3", port).await;
    assert!(matches!(refused, Err(SwitchError::NoThreads)), "{refused:?}");
    bench.switch.remove_bridge("br0").await.unwrap();
}

#[tokio::test]
async fn a_port_that_breaks_goes_down_and_its_number_stays() {
    let bench = Bench::start(2).await;
    let broken = bench.add_port("p1", 0).await;
    let number = bench.port("p1").number;
    let mut controller = bench.controller().await;
    broken.send(BREAK);
    until(|| bench.port("p1").link == "down: the device has vanished").await;
    assert!(broken.is_closed());
    assert_eq!(bench.port("p1").number, number);
    let running: Vec<bool> = bench.switch.threads().iter().map(|own| own.running).collect();
    assert_eq!(running, [true, true]);
    assert_eq!(controller.ask(&Message::BarrierRequest).await, Message::BarrierReply);
    assert!(controller.events.iter().any(|event| is_down(event, "p1")));
}
