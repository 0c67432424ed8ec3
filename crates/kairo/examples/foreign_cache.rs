//! A flow cache of another program: twenty lines evict its stale entries.
//!
//! The cache of this example is a map. In a real program, the cache could be a table of an eBPF
//! program or of a NIC.
//!
//! `cargo run -p shunt-kairo --no-default-features --example foreign_cache`

#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::{collections::BTreeMap, error::Error, sync::Arc};

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathAction, EntryId, Evictor, FlowMod, FlowModCommand, OwnerId,
    Pipeline, PortInfo, Time, text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);

/// The cache of the other program: actions by the slot of an entry.
type Cache = BTreeMap<u32, Arc<[DatapathAction]>>;

/// Keeps a small cache equal to the tables, and prints the evictions.
fn main() -> Result<(), Box<dyn Error>> {
    let pipeline = Pipeline::new(1);
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    pipeline.set_ports(BRIDGE, [1, 2, 3].map(PortInfo::datapath).into())?;
    pipeline.apply(BRIDGE, &[rule("ip,nw_dst=10.0.0.0/8,actions=output:2")?], Time::ZERO)?;

    // The next twenty lines are all that a program needs. First, the engine is notified of the
    // entries that the cache installs.
    let (mut cache, mut engine) = (Cache::new(), Direct::new(pipeline.version(), 1));
    for slot in 0..4 {
        let traversal = Arc::new(pipeline.translate(&packet_to(slot), pipeline.version()));
        engine.installed(name(slot), &traversal);
        cache.insert(slot, Arc::clone(&traversal.actions));
    }
    // of entries that the cache drops itself,
    cache.remove(&0);
    engine.removed(name(0));
    // and of changes. The engine returns exactly the entries that the cache must drop.
    for text in ["ip,nw_dst=11.0.0.0/8,actions=3", "priority=40000,ip,nw_dst=10.0.2.0/24,actions=3"]
    {
        let change = pipeline.apply(BRIDGE, &[rule(text)?], Time::ZERO)?;
        let stale = engine.apply(&change.deltas, change.version);
        stale.iter().for_each(|entry| drop(cache.remove(&entry.slot)));
        println!("{text}: {} went, {} stay", stale.len(), cache.len());
    }
    // The program calls the deferred work of the engine when it has nothing else to do.
    while engine.run_maintenance() {}

    // The lookups consulted only the first byte of the address, so each entry covers all of
    // 10.0.0.0/8. The second rule overlaps that region.
    assert_eq!((cache.len(), engine.len()), (0, 0));
    Ok(())
}

/// Returns the name by which the engine knows the entry of a slot.
const fn name(slot: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation: 0 }
}

/// Returns the request to add a rule. Fails if the text is wrong.
fn rule(text: &str) -> Result<FlowMod, Box<dyn Error>> {
    Ok(parse_rule(FlowModCommand::Add, text, &NoPortNames)?)
}

/// Returns the key of a packet to 10.0.N.1, with N = `number`.
fn packet_to(number: u32) -> FlowKey {
    let mut packet = FlowKey::ZERO;
    packet.set_bridge(BRIDGE.number().into());
    packet.set_in_port(PortNo::new(1));
    packet.set_field(FieldId::EthType, 0x0800);
    packet.set_field(FieldId::Ipv4Dst, u128::from(0x0a00_0001 | number << 8));
    packet
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_runs() -> Result<(), Box<dyn std::error::Error>> {
        super::main()
    }
}
