//! Messages that a server sends (JSON-RPC 1.0, and RFC 7047, section 4).

use serde_json::Value;

use super::OvsdbClientError;

/// A JSON-RPC message that the server sends to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerMessage {
    /// The reply to a request of the client.
    Reply {
        /// The id of the request.
        id: Value,
        /// The result, or the error.
        outcome: Result<Value, Value>,
    },
    /// A request, which needs a reply.
    Request {
        /// The id of the request.
        id: Value,
        /// The name of the method.
        method: String,
        /// The parameters of the method.
        params: Vec<Value>,
    },
    /// A message that needs no reply.
    Notification {
        /// The name of the method.
        method: String,
        /// The parameters of the method.
        params: Vec<Value>,
    },
}

impl ServerMessage {
    /// Parses a message.
    ///
    /// # Errors
    ///
    /// If the message does not have the members of JSON-RPC 1.0.
    pub fn from_json(json: Value) -> Result<Self, OvsdbClientError> {
        let wrong = OvsdbClientError::Message;
        let Value::Object(mut members) = json else { return Err(wrong("is not a JSON object")) };
        let id = members.remove("id").unwrap_or_default();
        let Some(method) = members.remove("method").filter(|method| !method.is_null()) else {
            if id.is_null() {
                return Err(wrong("has neither method nor id"));
            }
            let error = members.remove("error").filter(|error| !error.is_null());
            let outcome = match (error, members.remove("result")) {
                (Some(error), _) => Err(error),
                (None, Some(result)) => Ok(result),
                (None, None) => return Err(wrong("has no method, no result and no error")),
            };
            return Ok(Self::Reply { id, outcome });
        };
        let Value::String(method) = method else { return Err(wrong("has a method without name")) };
        let Some(Value::Array(params)) = members.remove("params") else {
            return Err(wrong("has a method without a list of parameters"));
        };
        Ok(match id {
            Value::Null => Self::Notification { method, params },
            id => Self::Request { id, method, params },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_members_decide_the_kind_of_message() {
        let reply = json!({"id": 1, "result": null, "error": null});
        let expected = ServerMessage::Reply { id: 1.into(), outcome: Ok(Value::Null) };
        assert_eq!(ServerMessage::from_json(reply).unwrap(), expected);
        let echo = json!({"id": "echo", "method": "echo", "params": [], "error": null});
        let parsed = ServerMessage::from_json(echo).unwrap();
        assert!(matches!(parsed, ServerMessage::Request { .. }));
        let update = json!({"id": null, "method": "update", "params": []});
        let parsed = ServerMessage::from_json(update).unwrap();
        assert!(matches!(parsed, ServerMessage::Notification { .. }));
        for wrong in [
            json!([]),
            json!({}),
            json!({"id": 1}),
            json!({"id": 1, "method": 2, "params": []}),
            json!({"id": 1, "method": "echo", "params": {}}),
        ] {
            assert!(ServerMessage::from_json(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
