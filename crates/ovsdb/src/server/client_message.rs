//! The messages of clients, of which transactions have a form of their own.

use serde_json::Value;

use super::json_text::JsonText;
use crate::transaction::{ExpectedReferences, RequestedOperation, RowCheck};

/// A JSON-RPC message of a client; `transact` requests are parsed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientMessage {
    /// Any other JSON-RPC message.
    Json(Value),
    /// A `transact` request that names a database.
    Transact(TransactMessage),
}

/// A `transact` request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TransactMessage {
    pub(super) id: Value,
    pub(super) database: String,
    pub(super) operations: Vec<RequestedOperation>,
}

impl ClientMessage {
    /// Parses the text of a message.
    ///
    /// # Errors
    ///
    /// If the text is not JSON.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let request = str::from_utf8(text).ok().and_then(transact_message);
        request.map_or_else(
            || serde_json::from_slice(text).map(Self::Json),
            |own| Ok(Self::Transact(own)),
        )
    }

    /// Returns the message as JSON.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn into_json(self) -> Value {
        match self {
            Self::Json(json) => json,
            Self::Transact(request) => {
                let (id, params) = request.into_params();
                serde_json::json!({"id": id, "method": "transact", "params": params})
            }
        }
    }
}

impl TransactMessage {
    /// Returns the id and the parameters of the request.
    pub(super) fn into_params(self) -> (Value, Vec<Value>) {
        let operations = self.operations.into_iter().map(|own| own.to_json().into_owned());
        (self.id, std::iter::once(Value::String(self.database)).chain(operations).collect())
    }
}

/// Reads a `transact` request.
fn transact_message(text: &str) -> Option<TransactMessage> {
    let mut text = JsonText::new(text);
    let (mut id, mut method, mut params) = (None, None, None);
    text.object(|text, name| match name {
        "id" => fill(&mut id, text.value()?),
        "method" => fill(&mut method, text.word("transact")?),
        "params" => fill(&mut params, transact_params(text)?),
        _ => None,
    })?;
    text.end()?;
    method?;
    let (database, operations) = params?;
    let id = id.filter(|id: &Value| !id.is_null())?;
    Some(TransactMessage { id, database, operations })
}

/// Parses the parameters of a `transact` request.
fn transact_params(text: &mut JsonText<'_>) -> Option<(String, Vec<RequestedOperation>)> {
    text.token(b'[')?;
    let database = text.string()?.to_owned();
    let mut operations = Vec::new();
    while text.token(b',').is_some() {
        let mut ahead = *text;
        operations.push(match row_check(&mut ahead) {
            Some(check) => {
                *text = ahead;
                RequestedOperation::Check(check)
            }
            None => RequestedOperation::Json(text.value()?),
        });
    }
    text.token(b']')?;
    Some((database, operations))
}

/// Reads a `wait` for the references of one row.
fn row_check(text: &mut JsonText<'_>) -> Option<RowCheck> {
    let (mut op, mut until, mut timeout) = (None, None, None);
    let (mut table, mut column, mut row, mut expected) = (None, None, None, None);
    text.object(|text, name| match name {
        "op" => fill(&mut op, text.word("wait")?),
        "until" => fill(&mut until, text.word("==")?),
        "timeout" => fill(&mut timeout, text.token(b'0')?),
        "table" => fill(&mut table, text.string()?),
        "columns" => {
            text.token(b'[')?;
            fill(&mut column, text.string()?)?;
            text.token(b']')
        }
        "where" => {
            text.token(b'[')?;
            text.token(b'[')?;
            text.word("_uuid")?;
            text.token(b',')?;
            text.word("==")?;
            text.token(b',')?;
            fill(&mut row, text.uuid()?)?;
            text.token(b']')?;
            text.token(b']')
        }
        "rows" => {
            text.token(b'[')?;
            text.token(b'{')?;
            let name = text.string()?;
            text.token(b':')?;
            fill(&mut expected, (name, references(text)?))?;
            text.token(b'}')?;
            text.token(b']')
        }
        _ => None,
    })?;
    op?;
    until?;
    timeout?;
    let (name, references) = expected?;
    let column = column.filter(|column| *column == name)?;
    Some(RowCheck { table: table?.into(), column: column.into(), row: row?, references })
}

/// Parses a value that consists of references.
fn references(text: &mut JsonText<'_>) -> Option<ExpectedReferences> {
    let mut ahead = *text;
    if let Some(uuid) = ahead.uuid() {
        *text = ahead;
        return Some(ExpectedReferences::One(uuid));
    }
    text.token(b'[')?;
    text.word("set")?;
    text.token(b',')?;
    text.token(b'[')?;
    let mut uuids = Vec::new();
    if text.token(b']').is_none() {
        uuids.push(text.uuid()?);
        while text.token(b',').is_some() {
            uuids.push(text.uuid()?);
        }
        text.token(b']')?;
    }
    text.token(b']')?;
    Some(ExpectedReferences::Set(uuids))
}

/// Sets a value that is not set yet. JSON may have a member twice.
fn fill<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        server::{ClientId, ClientQueue, Outbox, ServerCore},
        testing,
    };

    /// The transaction of `ovs-vsctl add-port`, with its order of members.
    const ADD_PORT: &str = concat!(
        r#"{"method":"transact","params":["Open_vSwitch","#,
        r#"{"rows":[{"interfaces":["uuid","5342ac9d-29d3-4b57-babc-7384bac7544f"]}],"#,
        r#""until":"==","where":[["_uuid","==",["uuid","9922bfe9-50f9-4bc6-ae67-f1de54db2f4a"]]],"#,
        r#""columns":["interfaces"],"timeout":0,"op":"wait","table":"Port"},"#,
        r#"{"rows":[{"ports":["set",[["uuid","4e24260a-0b9c-47e4-a6da-710a2bdd50a2"],"#,
        r#"["uuid","9922bfe9-50f9-4bc6-ae67-f1de54db2f4a"]]]}],"until":"==","#,
        r#""where":[["_uuid","==",["uuid","6d50229f-14fd-4961-a5b3-6a7c1fac9cad"]]],"#,
        r#""columns":["ports"],"timeout":0,"op":"wait","table":"Bridge"},"#,
        r#"{"uuid-name":"row1","row":{"name":"e\u0034"},"op":"insert","table":"Port"},"#,
        r#"{"comment":"ovs-vsctl","op":"comment"}],"id":4}"#,
    );

    /// Parses a message by this parser.
    fn parse(text: &[u8]) -> Result<Value, String> {
        ClientMessage::parse(text).map(ClientMessage::into_json).map_err(|error| error.to_string())
    }

    /// Parses a message by `serde_json`.
    fn reference(text: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// Returns the number of checks in a message.
    fn count_checks(text: &str) -> usize {
        match ClientMessage::parse(text.as_bytes()) {
            Ok(ClientMessage::Transact(request)) => {
                let is_check =
                    |own: &&RequestedOperation| matches!(own, RequestedOperation::Check(_));
                request.operations.iter().filter(is_check).count()
            }
            Ok(ClientMessage::Json(_)) | Err(_) => 0,
        }
    }

    #[test]
    fn checks_of_a_command_need_no_json() {
        assert_eq!(count_checks(ADD_PORT), 2);
        assert_eq!(count_checks(&ADD_PORT.replace(',', " ,\n").replace(':', "\t:\r")), 2);
        // JSON values sort the members.
        let sorted = reference(ADD_PORT.as_bytes()).unwrap().to_string();
        assert_eq!(count_checks(&sorted), 2);
        for (old, new) in [
            ("\"op\":\"wait\"", "\"op\":\"wait\",\"op\":\"wait\""),
            ("\"timeout\":0", "\"timeout\":1"),
            ("\"until\":\"==\"", "\"until\":\"!=\""),
            ("[\"interfaces\"]", "[\"name\"]"),
            (
                "9922bfe9-50f9-4bc6-ae67-f1de54db2f4a\"]]],",
                "9922BFE9-50f9-4bc6-ae67-f1de54db2f4a\"]]],",
            ),
        ] {
            let text = ADD_PORT.replacen(old, new, 1);
            assert_ne!(text, ADD_PORT, "{old}");
            assert_eq!(count_checks(&text), 1, "{new}");
            assert_eq!(parse(text.as_bytes()), reference(text.as_bytes()), "{new}");
        }
    }

    #[test]
    fn other_messages_are_json_values() {
        for (old, new) in [
            ("\"id\":4", "\"id\":null"),
            ("\"id\":4", "\"id\":4,\"id\":5"),
            ("\"id\":4", "\"id\":4,\"jsonrpc\":\"2.0\""),
            (",\"id\":4", ""),
            ("\"transact\"", "\"echo\""),
            ("\"Open_vSwitch\"", "7"),
            ("}],\"id\"", "},],\"id\""),
            ("\"id\":4}", "\"id\":4}}"),
        ] {
            let text = ADD_PORT.replacen(old, new, 1);
            assert_ne!(text, ADD_PORT, "{old}");
            let parsed = ClientMessage::parse(text.as_bytes());
            assert!(!matches!(parsed, Ok(ClientMessage::Transact(_))), "{new}");
            assert_eq!(parse(text.as_bytes()), reference(text.as_bytes()), "{new}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// A message with changed bytes parses like its JSON: to the same value or error.
        #[test]
        fn a_changed_message_equals_its_json(
            changes in prop::collection::vec(
                (any::<Index>(), 0..3_u8, prop::sample::select(&b" \"\\[]{},:0-9.aeuid\x01\xff"[..])),
                1..4,
            ),
        ) {
            let mut text = ADD_PORT.as_bytes().to_vec();
            for (place, kind, byte) in changes {
                let place = place.index(text.len());
                match kind {
                    0 => text[place] = byte,
                    1 => text.insert(place, byte),
                    _ => drop(text.remove(place)),
                }
            }
            prop_assert_eq!(parse(&text), reference(&text));
        }
    }

    /// A server with one client.
    struct OneClient {
        core: ServerCore,
        queue: ClientQueue,
        _ended: oneshot::Receiver<()>,
    }

    impl OneClient {
        fn new() -> Self {
            let mut core = testing::core();
            let (outbox, queue) = Outbox::new(1 << 20);
            let (end, ended) = oneshot::channel();
            core.connect(ClientId(1), outbox, end);
            Self { core, queue, _ended: ended }
        }

        /// Handles a message; returns the replies.
        fn receive(&mut self, message: ClientMessage) -> Vec<String> {
            self.core.receive_message(ClientId(1), message);
            let replies = std::iter::from_fn(|| self.queue.try_next());
            replies.map(|reply| String::from_utf8(reply).unwrap()).collect()
        }
    }

    /// Returns a transaction that creates a bridge with two ports.
    fn insert_ports() -> Value {
        let port = |number: u8| {
            let (name, interface) = (format!("p{number}"), format!("interface{number}"));
            let row = json!({"name": name, "interfaces": ["named-uuid", interface]});
            [
                json!({"op": "insert", "table": "Interface", "uuid-name": interface,
                       "row": {"name": name}}),
                json!({"op": "insert", "table": "Port", "row": row,
                       "uuid": format!("00000000-0000-4000-8000-00000000000{number}")}),
            ]
        };
        let ports = json!([
            "set",
            [
                ["uuid", "00000000-0000-4000-8000-000000000001"],
                ["uuid", "00000000-0000-4000-8000-000000000002"]
            ]
        ]);
        let bridge = json!({"op": "insert", "table": "Bridge", "uuid-name": "bridge",
                            "uuid": "00000000-0000-4000-8000-000000000003",
                            "row": {"name": "br0", "ports": ports}});
        let bridges = json!({"bridges": ["named-uuid", "bridge"]});
        let root = json!({"op": "insert", "table": "Open_vSwitch", "row": bridges});
        let mut params = vec![json!("Open_vSwitch")];
        params.extend([port(1), port(2)].concat());
        params.extend([bridge, root]);
        json!({"id": 0, "method": "transact", "params": params})
    }

    /// A check has the result of the `wait` that it replaces.
    #[test]
    fn a_check_has_the_result_of_its_wait() {
        let uuid =
            |number: u8| json!(["uuid", format!("00000000-0000-4000-8000-00000000000{number}")]);
        let set = |numbers: &[u8]| {
            json!(["set", numbers.iter().map(|number| uuid(*number)).collect::<Vec<_>>()])
        };
        let values =
            [uuid(1), uuid(2), set(&[]), set(&[1]), set(&[1, 2]), set(&[2, 1]), set(&[1, 1])];
        let (mut one, mut other) = (OneClient::new(), OneClient::new());
        for own in [&mut one, &mut other] {
            let replies = own.receive(ClientMessage::Json(insert_ports()));
            assert!(!replies.concat().contains("\"error\":\""), "{replies:?}");
        }
        let mut met = 0;
        for table in ["Bridge", "Port", "Interface", "Open_vSwitch", "none"] {
            for column in
                ["ports", "interfaces", "mirrors", "name", "external_ids", "tag", "_uuid", "none"]
            {
                for (row, value) in (1..5).flat_map(|row| values.iter().map(move |own| (row, own)))
                {
                    for database in ["Open_vSwitch", "_Server", "none"] {
                        let wait = json!({
                            "op": "wait", "table": table, "timeout": 0, "until": "==",
                            "where": [["_uuid", "==", uuid(row)]],
                            "columns": [column], "rows": [{column: value}],
                        });
                        let comment = json!({"op": "comment", "comment": "end"});
                        let message = json!({"id": 1, "method": "transact",
                                             "params": [database, wait, comment]});
                        let text = message.to_string();
                        assert_eq!(count_checks(&text), 1, "{text}");
                        let check = ClientMessage::parse(text.as_bytes()).unwrap();
                        let found = one.receive(check);
                        assert_eq!(found, other.receive(ClientMessage::Json(message)), "{text}");
                        met += usize::from(found == [r#"{"error":null,"id":1,"result":[{},{}]}"#]);
                    }
                }
            }
        }
        assert!(met > 0, "some checks are true");
    }
}
