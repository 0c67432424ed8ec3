//! The two schemas that the crate provides.

use super::DatabaseSchema;

/// Returns the schema of `Open_vSwitch`, version 8.8.0.
///
/// The source and licence of the schema are in `data/README.md` of this crate.
///
/// # Panics
///
/// Never: a test parses the file.
#[must_use]
#[expect(clippy::expect_used, reason = "a test parses the file")]
pub fn open_vswitch() -> DatabaseSchema {
    DatabaseSchema::from_text(include_str!("../../data/vswitch.ovsschema"))
        .expect("the file has the schema of Open_vSwitch, which a test parses")
}

/// Returns the schema of `_Server`, in which a server describes its databases.
///
/// # Panics
///
/// Never: a test parses the text.
#[must_use]
#[expect(clippy::expect_used, reason = "a test parses the text")]
pub fn server_schema() -> DatabaseSchema {
    DatabaseSchema::from_text(SERVER)
        .expect("the text has the schema of _Server, which a test parses")
}

/// The tables of `ovsdb-server(5)`, with the checksum of Open vSwitch.
const SERVER: &str = r#"{
    "name": "_Server", "version": "1.2.0", "cksum": "3009684573 744",
    "tables": {"Database": {"columns": {
        "name": {"type": "string"},
        "model": {"type": {"key": {"type": "string",
            "enum": ["set", ["standalone", "clustered", "relay"]]}}},
        "connected": {"type": "boolean"},
        "leader": {"type": "boolean"},
        "schema": {"type": {"key": "string", "min": 0, "max": 1}},
        "cid": {"type": {"key": "uuid", "min": 0, "max": 1}},
        "sid": {"type": {"key": "uuid", "min": 0, "max": 1}},
        "index": {"type": {"key": "integer", "min": 0, "max": 1}}
    }}}
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provided_schemas_parse_and_print() {
        for schema in [open_vswitch(), server_schema()] {
            assert_eq!(DatabaseSchema::from_json(&schema.to_json()), Ok(schema));
        }
        let schema = open_vswitch();
        assert_eq!((schema.version(), schema.tables().len()), ("8.8.0", 18 + 1));
    }
}
