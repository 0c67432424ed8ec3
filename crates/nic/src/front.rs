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
        let ours = self.program.p4info();
        // Names and annotations are for people.
        if Schema::read(info).ok() != Schema::read(&ours).ok() {
            return Err(ProgramError::Info);
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
        self.chain.lock().modify(entry, decoded.meaning);
        Ok(())
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
