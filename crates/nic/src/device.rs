//! The stages of a NIC as the device of a P4Runtime server.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use shunt_gigaflow::ltm::Tag;
use shunt_p4runtime::{
    codec::decode,
    program::{Program, START_TABLE},
    schema::Schema,
    server::{Device, DeviceError, EntryHits, EntryNo, PacketError, ProgramError},
    value,
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

use crate::{chain::NicChain, commands::CommandQueue};

/// The device of the P4Runtime server: the tables and packets of a NIC.
#[derive(Debug)]
pub struct NicDevice {
    program: Program,
    chain: Arc<Mutex<NicChain>>,
    commands: Arc<CommandQueue>,
}

impl NicDevice {
    /// Returns a device that controls `chain` by commands to the packet thread.
    pub(crate) fn new(chain: Arc<Mutex<NicChain>>, commands: Arc<CommandQueue>) -> Self {
        let program = *chain.lock().program();
        Self { program, chain, commands }
    }
}

/// The refusal of an entry that the program cannot hold.
///
/// The server has checked the entry against the P4Info, so this error does not occur.
const UNKNOWN: DeviceError = DeviceError::Refused("the entry is not one of the P4 program");

impl Device for NicDevice {
    fn verify(&self, info: &P4Info, config: &[u8]) -> Result<(), ProgramError> {
        // Names and annotations have no effect, so they are not compared.
        let [given, own] = [info, &self.program.p4info()].map(Schema::read);
        if let Some(difference) = given.unwrap_or_default().difference(&own.unwrap_or_default()) {
            return Err(ProgramError::Info(difference));
        }
        if config.is_empty() || is_of(&self.program, config) {
            Ok(())
        } else {
            Err(ProgramError::Config)
        }
    }

    fn commit(&mut self, _: &P4Info, _: &Schema) {
        self.chain.lock().clear();
    }

    fn insert(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError> {
        // The packet thread may wait for the lock, so the entry is decoded before the lock is
        // taken.
        let decoded = decode(&self.program, value).map_err(|_| UNKNOWN)?;
        self.chain.lock().insert(entry, decoded)
    }

    fn modify(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError> {
        let decoded = decode(&self.program, value).map_err(|_| UNKNOWN)?;
        self.chain.lock().modify(entry, decoded.meaning)
    }

    fn remove(&mut self, entry: EntryNo) -> EntryHits {
        self.chain.lock().remove(entry)
    }

    fn set_default(&mut self, table: u32, action: Option<&Action>) -> Result<(), DeviceError> {
        let param = action.and_then(|action| action.params.first());
        let number = param.and_then(|param| value::decode(&param.value));
        let number = number.and_then(|number| u16::try_from(number).ok());
        match number {
            Some(number) if table == START_TABLE => {
                self.chain.lock().set_start(Tag::new(number.into()));
                Ok(())
            }
            _ => Err(UNKNOWN),
        }
    }

    fn hits(&mut self, entry: EntryNo) -> EntryHits {
        self.chain.lock().hits(entry)
    }

    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError> {
        self.commands.send(packet)
    }
}

/// Returns whether a bmv2 configuration has the tables of a program.
fn is_of(program: &Program, config: &[u8]) -> bool {
    let Ok(json) = serde_json::from_slice::<Value>(config) else { return false };
    let names = |json: &Value| -> Option<Vec<String>> {
        let tables = json.get("pipelines")?.get(0)?.get("tables")?.as_array()?;
        let mut names: Vec<String> = tables
            .iter()
            .filter_map(|table| table.get("name")?.as_str())
            .filter(|name| name.starts_with("ingress.ltm_"))
            .map(str::to_owned)
            .collect();
        names.sort();
        Some(names)
    };
    names(&json).is_some_and(|found| Some(found) == names(&program.bmv2_json()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
    use shunt_gigaflow::{
        ltm::{LtmRule, Next},
        partition::StageId,
    };
    use shunt_p4runtime::{
        codec::{Ports, encode},
        server::{EntryStore, write},
        wire::p4::v1::{
            Entity, Update, WriteRequest, entity, update::Type, write_request::Atomicity,
        },
    };

    use super::*;
    use crate::{
        chain::{NicVerdict, NicWalk},
        limits::NicLimits,
    };

    /// Returns an entry of the first stage that sets a tag.
    fn entry(next: u32) -> TableEntry {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::IpEcn, 1);
        mask.add_field(FieldId::IpEcn);
        let rule = LtmRule {
            tag: Tag::new(0),
            matching: Match::new(&key, &mask),
            length: 1,
            actions: [].into(),
            rewrite: Match::any(),
            next: Next::Tag(Tag::new(next)),
        };
        let stage = StageId::new(0).unwrap();
        encode(&Program::default(), &Ports::default(), stage, &rule).unwrap()
    }

    /// Returns an update of a table entry.
    fn update(kind: Type, entry: TableEntry) -> Update {
        let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
        Update { r#type: kind.into(), entity: Some(entity) }
    }

    /// Returns a device, and the chain that it changes.
    fn device() -> (NicDevice, Arc<Mutex<NicChain>>) {
        let chain = NicChain::new(Program::default(), NicLimits::default(), 7);
        let chain = Arc::new(Mutex::new(chain));
        (NicDevice::new(Arc::clone(&chain), Arc::new(CommandQueue::new().unwrap())), chain)
    }

    /// Returns the tag that the entry gives a packet.
    fn tag(chain: &Mutex<NicChain>) -> u16 {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::IpEcn, 1);
        match chain.lock().walk(&key, &mut NicWalk::default()) {
            NicVerdict::Punt { miss_tag, .. } => miss_tag,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn modifying_a_missing_entry_fails() {
        let (mut device, _chain) = device();
        assert_eq!(device.modify(EntryNo(1), &entry(5)), Err(DeviceError::Unknown));
        assert_eq!(device.insert(EntryNo(1), &entry(5)), Ok(()));
        assert_eq!(device.modify(EntryNo(1), &entry(6)), Ok(()));
    }

    #[test]
    fn a_failed_batch_leaves_the_entries_unchanged() {
        let (mut device, chain) = device();
        let mut store = EntryStore::new(Schema::read(&Program::default().p4info()).unwrap());
        let mut all = |updates| {
            let atomicity = Atomicity::RollbackOnError.into();
            let request = WriteRequest { updates, atomicity, ..WriteRequest::default() };
            write(&mut store, &mut device, request, Duration::ZERO).unwrap()
        };
        assert_eq!(all(vec![update(Type::Insert, entry(5))]), [Ok(())]);
        let delete = || update(Type::Delete, entry(5));
        let failing = vec![update(Type::Modify, entry(6)), delete(), delete()];
        assert!(all(failing).iter().all(Result::is_err));
        assert_eq!(tag(&chain), 5);
        assert_eq!(all(vec![delete()]), [Ok(())]);
        assert!(chain.lock().is_empty());
    }
}
