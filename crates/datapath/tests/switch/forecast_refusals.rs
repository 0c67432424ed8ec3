//! Tests forecasts that the switch refuses, with each cache: impossible ones, and too many.

use shunt_datapath::forecast::ForecastSender;
use shunt_foresight::{ForecastRefusal, OutcomeCounts};

use super::{
    forecasts::{counts, forecast, frame, switch},
    thread_config,
};
use crate::harness::{BRIDGE, added};

/// Number of forecasts that arrive at once.
const MILLION: u64 = 1_000_000;

fn count_refused(sender: &ForecastSender, reason: ForecastRefusal) -> u64 {
    counts(sender).refused[reason as usize]
}

/// Returns the number of forecasts with an outcome.
fn count_ended(counts: &OutcomeCounts) -> u64 {
    counts.installed + counts.late + counts.covered + counts.refused_total()
}

/// The tables send the flow in a circle, so no packet of it is forwarded.
#[test]
fn a_forecast_with_a_translation_error_is_refused() {
    let (mut switch, mut sender) = switch(thread_config());
    switch.apply(&added(&["priority=9,udp,nw_dst=10.5.0.0/16,actions=resubmit(,0)"]));
    assert!(sender.send(forecast(&switch, [10, 5, 0, 1])));
    switch.settle();
    assert_eq!(count_refused(&sender, ForecastRefusal::TranslationError), 1);
    assert_eq!(counts(&sender).installed, 0);
}

/// A ring and a queue limit the forecasts that wait; others are refused at once.
#[test]
fn a_million_forecasts_at_once_are_counted() {
    let (mut switch, mut sender) = switch(thread_config());
    let all = forecast(&switch, [10, 1, 0, 1]);
    let fitted = (0..MILLION).filter(|_| sender.send(all.clone())).count() as u64;
    assert!(fitted < 100_000, "{fitted} forecasts fitted the ring");
    switch.settle();
    let counts = counts(&sender);
    assert_eq!((counts.received, count_ended(&counts)), (MILLION, MILLION));
    assert!(count_refused(&sender, ForecastRefusal::QueueFull) >= MILLION - fitted, "{counts:?}");
    assert_eq!((counts.installed, counts.translations), (1, 1));
    // Packets are forwarded as before.
    assert!(switch.send(0, 1, &frame([10, 2, 0, 1], 7)));
    assert!(switch.send(0, 1, &frame([10, 1, 0, 1], 7)));
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 1);
}

/// Forecasts wait while their bridge is deleted, and another one has an entry.
#[test]
fn forecasts_of_a_deleted_bridge_are_refused() {
    let (mut switch, mut sender) = switch(thread_config());
    assert!(sender.send(forecast(&switch, [10, 1, 0, 1])));
    switch.settle();
    assert_eq!(counts(&sender).installed, 1);
    let deletion = switch.pipeline.remove_bridge(BRIDGE);
    switch.change(&deletion);
    for host in 1..=20 {
        assert!(sender.send(forecast(&switch, [10, 2, 0, host])));
    }
    switch.settle();
    switch.settle();
    let counts = counts(&sender);
    assert_eq!((counts.received, count_ended(&counts)), (21, 21));
    assert_eq!((counts.installed, counts.evicted), (1, 1));
    assert!(count_refused(&sender, ForecastRefusal::NoSuchPort) > 0, "{counts:?}");
}
