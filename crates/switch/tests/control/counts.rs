//! Counters of an idle switch: each packet was counted once, for any caches, threads and changes.

use std::time::Duration;

use shunt_flow::text::NoPortNames;
use shunt_ofproto::message::{Message, MultipartReply, MultipartRequest};
use shunt_pipeline::{FlowMod, FlowModCommand, RuleFilter, text::parse_rule};
use shunt_switch::{
    Config,
    config::{CacheKind, RepairMode},
};
use tokio::time::sleep;

use crate::fixture::{Controller, FarEnd, SwitchFixture, frame, wait_until};

const THREADS: u16 = 3;
const KINDS: [CacheKind; 3] = [CacheKind::Megaflow, CacheKind::Gigaflow, CacheKind::Flows];
const ROUNDS: u64 = 16;
/// Number of flows, each with a rule that counts it.
const FLOWS: u8 = 24;

/// Returns a configuration with caches that have space for a part of the flows.
fn config_with_small_caches(kind: CacheKind, threads: u16) -> Config {
    let mut config = Config::default();
    config.threads.packet = threads;
    config.caches.kind = kind;
    config.caches.megaflow_entries = 12;
    config.caches.exact_entries = 16;
    config.caches.exact_insert_one_in = 2;
    config.caches.gigaflow.stage_entries = 8;
    config.caches.idle_ms = 20;
    config.caches.verify_one_in = 5;
    config.eviction.repair = RepairMode::On;
    config
}

/// Returns the packet and byte counts of the rules of table 0, by cookie.
async fn rule_counts(controller: &mut Controller) -> Vec<[u64; 2]> {
    let request = Message::MultipartRequest(MultipartRequest::Flow(RuleFilter::all()));
    let Message::MultipartReply { reply: MultipartReply::Flow(flows), .. } =
        controller.ask(&request).await
    else {
        panic!("no statistics");
    };
    let mut counted = vec![[0; 2]; FLOWS.into()];
    for flow in flows.iter().filter(|flow| flow.cookie.number() > 0) {
        let place = usize::try_from(flow.cookie.number()).unwrap() - 1;
        counted[place] = [flow.packets, flow.bytes];
    }
    counted
}

fn request(command: FlowModCommand, text: &str) -> FlowMod {
    parse_rule(command, text, &NoPortNames).unwrap()
}

/// Returns the flow-mods of a round.
/// The flow-mods add a rule for each flow, and add and remove rules of lower priority.
fn changes(round: u64) -> Vec<FlowMod> {
    let flow = round % u64::from(FLOWS);
    let (priority, other) = (1 + round % 7, (round * 5) % u64::from(FLOWS));
    let dead = (round + 3) % u64::from(FLOWS);
    vec![
        request(
            FlowModCommand::Add,
            &format!(
                "table=1,priority={priority},dl_src={},actions=output:{}",
                mac(other),
                1 + round % 2
            ),
        ),
        request(
            FlowModCommand::ModifyStrict,
            &format!(
                "table=0,priority=5,dl_src={},actions=set_field:{round}->reg0,resubmit(,1)",
                mac(flow)
            ),
        ),
        request(FlowModCommand::Delete, &format!("table=1,dl_src={}", mac(dead))),
    ]
}

fn mac(flow: u64) -> String {
    format!("02:00:00:00:01:{flow:02x}")
}

fn packet(flow: u8, length: usize) -> Vec<u8> {
    let mut packet = frame(0);
    packet[10] = 1;
    packet[11] = flow;
    packet.resize(length, 0);
    packet
}

async fn check(kind: CacheKind, threads: u16) {
    let fixture = SwitchFixture::of(&config_with_small_caches(kind, threads)).await;
    fixture.add_bridge("br0").await;
    let mut ports: Vec<FarEnd> = Vec::new();
    for thread in 0..usize::from(THREADS) {
        ports.push(fixture.add_port(&format!("p{thread}"), thread % usize::from(threads)).await);
    }
    let mut controller = fixture.controller().await;
    let rules: Vec<String> = (0..FLOWS)
        .map(|flow| {
            let (cookie, mac) = (flow + 1, mac(flow.into()));
            format!("cookie={cookie},priority=5,dl_src={mac},actions=resubmit(,1)")
        })
        .chain(["table=1,priority=0,actions=output:2".to_owned()])
        .collect();
    fixture
        .switch
        .add_rules("br0", &rules.iter().map(String::as_str).collect::<Vec<_>>())
        .await
        .unwrap();
    let (mut expected, mut sent) = (vec![[0; 2]; FLOWS.into()], 0_u64);
    for round in 0..ROUNDS {
        for step in 0..90_u64 {
            let flow = u8::try_from((step * step + round) % u64::from(FLOWS)).unwrap();
            let packet = packet(flow, 60 + usize::from(flow) + usize::try_from(round).unwrap());
            ports[usize::try_from((step + round) % u64::from(THREADS)).unwrap()].send(&packet);
            let [packets, bytes] = &mut expected[usize::from(flow)];
            *packets += 1;
            *bytes += packet.len() as u64;
            sent += 1;
            if step % 30 == 7 {
                fixture
                    .switch
                    .apply_flow_mods("br0", &changes(round * 3 + step / 30))
                    .await
                    .unwrap();
            }
            if step % 40 == 21 {
                // A controller requests statistics while packets flow.
                fixture.switch.pull_counts().await;
            }
        }
        if round % 4 == 3 {
            // Waits until entries have expired.
            sleep(Duration::from_millis(25)).await;
        }
        wait_until(|| {
            let all_effects = fixture.switch.drops();
            let went = all_effects.sent + all_effects.punted + all_effects.total();
            all_effects.received == sent && all_effects.received + all_effects.copied == went
        })
        .await;
        assert_eq!(
            rule_counts(&mut controller).await,
            expected,
            "{kind:?}, {threads} threads, round {round}"
        );
        ports.iter().for_each(|port| drop(port.all_received()));
    }
    let caches = fixture.switch.caches();
    assert_eq!(caches.differences, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_thread_counts_every_packet_once() {
    for kind in KINDS {
        check(kind, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_threads_count_every_packet_once() {
    for kind in KINDS {
        check(kind, THREADS).await;
    }
}
