//! The chain as a device of the P4Runtime server.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use shunt_gigaflow::ltm::Tag;
use shunt_p4runtime::{
    codec::decode,
    program::{Program, START_TABLE},
    schema::Schema,
    server::{Device, DeviceError, EntryNo, Hits, PacketError, ProgramError},
    value,
    wire::p4::{
        config::v1::P4Info,
        v1::{Action, PacketOut, TableEntry},
    },
};

use crate::{chain::Chain, orders::Orders};

/// What the server sees of a NIC.
#[derive(Debug)]
pub struct Front {
    program: Program,
    chain: Arc<Mutex<Chain>>,
    orders: Arc<Orders>,
}

impl Front {
    pub(crate) fn new(chain: Arc<Mutex<Chain>>, orders: Arc<Orders>) -> Self {
        let program = *chain.lock().program();
        Self { program, chain, orders }
    }
}

/// Why an entry is refused that was checked against the P4Info: it cannot be.
const UNKNOWN: DeviceError = DeviceError::Refused("an entry that is not of the program");

impl Device for Front {
    fn verify(&self, info: &P4Info, config: &[u8]) -> Result<(), ProgramError> {
        // Names and annotations are for people.
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
        // The packet thread waits for the lock: only what must be is done under it.
        let decoded = decode(&self.program, value).map_err(|_| UNKNOWN)?;
        self.chain.lock().insert(entry, decoded)
    }

    fn modify(&mut self, entry: EntryNo, value: &TableEntry) -> Result<(), DeviceError> {
        let decoded = decode(&self.program, value).map_err(|_| UNKNOWN)?;
        self.chain.lock().modify(entry, decoded.meaning)
    }

    fn remove(&mut self, entry: EntryNo) -> Hits {
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

    fn hits(&mut self, entry: EntryNo) -> Hits {
        self.chain.lock().hits(entry)
    }

    fn send(&mut self, packet: &PacketOut) -> Result<(), PacketError> {
        self.orders.send(packet)
    }
}

/// Whether a device configuration is a bmv2 program with the tables of ours.
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
    names(&json).is_some_and(|found| Some(found) == names(&program.bmv2()))
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
        server::{Store, write},
        wire::p4::v1::{
            Entity, Update, WriteRequest, entity, update::Type, write_request::Atomicity,
        },
    };

    use super::*;
    use crate::{
        chain::{Verdict, Walk},
        limits::Limits,
    };

    /// An entry of the first stage that sends to a tag.
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
        encode(&Program::default(), &Ports::default(), (stage, &rule)).unwrap()
    }

    fn update(kind: Type, entry: TableEntry) -> Update {
        let entity = Entity { entity: Some(entity::Entity::TableEntry(Box::new(entry))) };
        Update { r#type: kind.into(), entity: Some(entity) }
    }

    fn front() -> (Front, Arc<Mutex<Chain>>) {
        let chain = Chain::new(Program::default(), Limits::default(), 7);
        let chain = Arc::new(Mutex::new(chain));
        (Front::new(Arc::clone(&chain), Arc::new(Orders::new().unwrap())), chain)
    }

    /// The tag that a packet has behind the entry.
    fn tag(chain: &Mutex<Chain>) -> u16 {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::IpEcn, 1);
        match chain.lock().walk(&key, &mut Walk::default()) {
            Verdict::Punt { miss_tag, .. } => miss_tag,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_there_is_no_entry_of_is_not_said_to_be_changed() {
        let (mut front, _chain) = front();
        assert_eq!(front.modify(EntryNo(1), &entry(5)), Err(DeviceError::Unknown));
        assert_eq!(front.insert(EntryNo(1), &entry(5)), Ok(()));
        assert_eq!(front.modify(EntryNo(1), &entry(6)), Ok(()));
    }

    #[test]
    fn a_batch_that_fails_leaves_what_packets_meet_as_it_was() {
        let (mut front, chain) = front();
        let mut store = Store::new(Schema::read(&Program::default().p4info()).unwrap());
        let mut all = |updates| {
            let atomicity = Atomicity::RollbackOnError.into();
            let request = WriteRequest { updates, atomicity, ..WriteRequest::default() };
            write(&mut store, &mut front, request, Duration::ZERO).unwrap()
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
