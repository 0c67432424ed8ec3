//! The output of the encoder: a [`TableEntry`], or directly its encoded bytes.
//!
//! A client that sends many rules writes bytes. A `TableEntry` needs many small allocations, and
//! encoding it computes every nested length once per level. `TableEntry` is slower, and tests use
//! it as the reference.

use crate::{
    value,
    wire::{
        ProtoWriter,
        p4::v1::{
            self, FieldMatch, TableAction, TableEntry, action,
            field_match::{Exact, FieldMatchType, Ternary},
            table_action,
        },
    },
};

/// Receives an entry part by part, in the order of its field numbers.
pub(crate) trait EntrySink {
    /// Sets the table of the entry.
    fn table(&mut self, id: u32);
    /// Adds an exact match of a field.
    fn exact(&mut self, field: u32, value: u128);
    /// Adds a ternary match of a field.
    fn ternary(&mut self, field: u32, value: u128, mask: u128);
    /// Sets the action and its parameters.
    fn action(&mut self, id: u32, params: impl Iterator<Item = (u32, u128)>);
    /// Sets the priority among entries that match the same packet.
    fn priority(&mut self, priority: i32);
}

impl EntrySink for TableEntry {
    fn table(&mut self, id: u32) {
        self.table_id = id;
    }

    fn exact(&mut self, field_id: u32, value: u128) {
        let kind = FieldMatchType::Exact(Exact { value: value::encode(value).into() });
        self.r#match.push(FieldMatch { field_id, field_match_type: Some(kind) });
    }

    fn ternary(&mut self, field_id: u32, value: u128, mask: u128) {
        let ternary =
            Ternary { value: value::encode(value).into(), mask: value::encode(mask).into() };
        let kind = FieldMatchType::Ternary(ternary);
        self.r#match.push(FieldMatch { field_id, field_match_type: Some(kind) });
    }

    fn action(&mut self, id: u32, params: impl Iterator<Item = (u32, u128)>) {
        let param = |(param_id, number)| {
            let value = value::encode(number).into();
            action::Param { param_id, value }
        };
        let action = v1::Action { action_id: id, params: params.map(param).collect() };
        self.action = Some(TableAction { r#type: Some(table_action::Type::Action(action)) });
    }

    fn priority(&mut self, priority: i32) {
        self.priority = priority;
    }
}

impl EntrySink for ProtoWriter {
    fn table(&mut self, id: u32) {
        self.number(1, id.into());
    }

    fn exact(&mut self, field: u32, value: u128) {
        self.nested(2, |writer| {
            writer.number(1, field.into());
            writer.nested(2, |writer| writer.value(1, value));
        });
    }

    fn ternary(&mut self, field: u32, value: u128, mask: u128) {
        self.nested(2, |writer| {
            writer.number(1, field.into());
            writer.nested(3, |writer| {
                writer.value(1, value);
                writer.value(2, mask);
            });
        });
    }

    fn action(&mut self, id: u32, params: impl Iterator<Item = (u32, u128)>) {
        self.nested(3, |writer| {
            writer.nested(1, |writer| {
                writer.number(1, id.into());
                for (param, value) in params {
                    writer.nested(4, |writer| {
                        writer.number(2, param.into());
                        writer.value(3, value);
                    });
                }
            });
        });
    }

    fn priority(&mut self, priority: i32) {
        self.number(4, i64::from(priority).cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use prost::Message;
    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
    use shunt_gigaflow::{
        ltm::{LtmRule, Next, Tag},
        partition::StageId,
    };
    use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};

    use super::*;
    use crate::{
        codec::{Ports, encode, encode_key, put, put_key},
        program::Program,
    };

    /// The fields of generated matches.
    const FIELDS: &[FieldId] = &[
        FieldId::InPort,
        FieldId::EthDst,
        FieldId::Ipv4Dst,
        FieldId::NwTtl,
        FieldId::TcpDst,
        FieldId::Ipv6Src,
        FieldId::Ipv6Dst,
        // A field that the program does not have.
        FieldId::Metadata,
    ];

    /// Generates the matches of an entry.
    fn matches() -> impl Strategy<Value = Match> {
        let field = (prop::sample::select(FIELDS), any::<u128>(), any::<u128>());
        prop::collection::vec(field, 0..6).prop_map(|fields| {
            let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
            for (field, value, bits) in fields {
                key.set_field(field, value & field.value_max());
                mask.add_bits(field, bits);
            }
            Match::new(&key, &mask)
        })
    }

    /// Generates the rules of LTM entries.
    fn rules() -> impl Strategy<Value = LtmRule> {
        let ends = (any::<bool>(), prop::option::of(0u32..2));
        (matches(), matches(), 0u32..70_000, 0u16..300, ends).prop_map(
            |(matching, rewrite, tag, length, (is_last, port))| {
                let output = |port| DatapathAction::Output {
                    port: DatapathPort::new(port),
                    queue: QueueId::DEFAULT,
                    unless_ingress: true,
                    max_len: None,
                };
                let set = DatapathAction::SetHeader(rewrite.clone());
                LtmRule {
                    tag: Tag::new(tag),
                    matching,
                    length,
                    actions: [set].into_iter().chain(port.map(output)).collect(),
                    rewrite,
                    next: if is_last { Next::End } else { Next::Tag(Tag::new(tag / 2)) },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_directly_encoded_rule_equals_the_protobuf(rule in rules(), stage in 0u8..4) {
            let program = Program::default();
            let ports = Ports(BTreeMap::from([(DatapathPort::new(1), 7)]));
            let stage = StageId::new(stage).unwrap();
            let mut writer = ProtoWriter::new();
            let written = put(&mut writer, &program, &ports, stage, &rule);
            let message = encode(&program, &ports, stage, &rule);
            let bytes = written.map(|()| writer.into_vec());
            prop_assert_eq!(bytes, message.map(|message| message.encode_to_vec()));
            let mut writer = ProtoWriter::new();
            let written = put_key(&mut writer, &program, stage, &rule);
            let message = encode_key(&program, stage, &rule);
            let bytes = written.map(|()| writer.into_vec());
            prop_assert_eq!(bytes, message.map(|message| message.encode_to_vec()));
        }
    }
}
