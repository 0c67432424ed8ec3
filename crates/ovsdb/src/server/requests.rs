//! The methods that clients call (RFC 7047, section 4.1, and `ovsdb-server(7)`).

use serde_json::{Map, Value, json};

use super::{
    client_message::TransactMessage,
    server_core::{ClientId, ClientMonitor, Disconnect, ServerCore},
};
use crate::{
    error::{ErrorTag, TransactionError},
    json_object::json_object,
    monitor::{MonitorVersion, RowMonitor},
    schema::is_id,
    transaction::RequestedOperation,
    value::RowUuid,
};

/// The answer to a request: a result, or an error.
type Answer = Result<Value, Value>;

impl ServerCore {
    /// Handles a request, a notification, or a reply, which is ignored.
    pub(super) fn dispatch(&mut self, client: ClientId, message: Value) -> Result<(), Disconnect> {
        let Value::Object(mut message) = message else {
            return Err(Disconnect::Protocol("not an object"));
        };
        let id = message.remove("id").ok_or(Disconnect::Protocol("without id"))?;
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            Some(_) => return Err(Disconnect::Protocol("with a method that is not a string")),
            None if message.contains_key("result") || message.contains_key("error") => {
                return Ok(());
            }
            None => return Err(Disconnect::Protocol("without method and result")),
        };
        let Some(Value::Array(params)) = message.remove("params") else {
            return Err(Disconnect::Protocol("without an array of parameters"));
        };
        if id.is_null() {
            if let ("cancel", Some(id)) = (method.as_str(), params.first()) {
                self.cancel(client, id);
            }
            return Ok(());
        }
        if method == "transact" {
            self.transact_method(client, &id, params);
            return Ok(());
        }
        let params = Value::Array(params);
        let version = match method.as_str() {
            "monitor" => Some(MonitorVersion::One),
            "monitor_cond" => Some(MonitorVersion::Two),
            "monitor_cond_since" => Some(MonitorVersion::Three),
            _ => None,
        };
        if let Some(version) = version {
            self.monitor_method(client, id, &method, &params, version);
            return Ok(());
        }
        let reply = match self.answer(client, &method, params) {
            Ok(result) => json_object([("id", id), ("result", result), ("error", Value::Null)]),
            Err(error) => json_object([("id", id), ("error", error)]),
        };
        self.reply(client, &reply);
        Ok(())
    }

    /// Handles a request; returns its answer.
    fn answer(&mut self, client: ClientId, method: &str, params: Value) -> Answer {
        let answer = match method {
            "echo" => Ok(params),
            "list_dbs" => Ok(self.databases.keys().map(String::as_str).collect::<Vec<_>>().into()),
            "get_server_id" => Ok(self.server_id.to_string().into()),
            "get_schema" => self.database_name(method, &params).map(|name| {
                let served = self.databases.get(&name);
                served.map_or(Value::Null, |served| served.database.schema().to_json())
            }),
            "monitor_cond_change" => self.change_monitor(client, &params),
            "monitor_cancel" => return self.cancel_monitor(client, &params),
            "lock" | "steal" | "unlock" => self.lock_method(client, method, &params),
            "set_db_change_aware" => match params.as_array().map(Vec::as_slice) {
                // The set of databases never changes, so both settings have the same effect.
                Some([Value::Bool(_)]) => Ok(empty_object()),
                _ => {
                    let details = "set_db_change_aware: true or false parameter expected";
                    Err(TransactionError::syntax(details, &params))
                }
            },
            "convert" => Err(TransactionError::new(
                ErrorTag::NotSupported,
                "this server never converts its database: stop it, and convert the file with ovsdb-tool",
            )),
            _ => return Err("unknown method".into()),
        };
        answer.map_err(|error| error.to_json())
    }

    /// Executes a `transact` request.
    pub(super) fn transact_message(&mut self, client: ClientId, request: TransactMessage) {
        if self.databases.contains_key(&request.database) {
            let TransactMessage { id, database, operations } = request;
            self.transact_request(client, &id, &database, operations);
        } else {
            // The error has all parameters.
            let (id, params) = request.into_params();
            self.transact_method(client, &id, params);
        }
    }

    /// Handles `transact` with operations in JSON.
    fn transact_method(&mut self, client: ClientId, id: &Value, mut params: Vec<Value>) {
        match self.name_of_database("transact", &params) {
            Ok(name) => {
                params.remove(0);
                let operations = params.into_iter().map(RequestedOperation::Json).collect();
                self.transact_request(client, id, &name, operations);
            }
            Err(error) => self.reply(client, &json!({"id": id, "error": error.to_json()})),
        }
    }

    /// Returns the database that the first parameter names.
    fn database_name(&self, method: &str, params: &Value) -> Result<String, TransactionError> {
        self.name_of_database(method, params.as_array().map_or(&[], Vec::as_slice))
    }

    /// Returns the database that the first of `params` names.
    fn name_of_database(&self, method: &str, params: &[Value]) -> Result<String, TransactionError> {
        let quoted = || Value::Array(params.to_vec());
        let name = params.first().and_then(Value::as_str).ok_or_else(|| {
            let details = format!("{method} request params must begin with <db-name>");
            TransactionError::syntax(details, &quoted())
        })?;
        if self.databases.contains_key(name) {
            return Ok(name.to_owned());
        }
        let details = format!("{method} request specifies unknown database {name}");
        Err(TransactionError::quoting(ErrorTag::UnknownDatabase, details, &quoted()))
    }

    /// Starts a monitor, and sends the initial rows to the client.
    ///
    /// The reply may have thousands of rows, so its text is not built from a JSON value.
    fn monitor_method(
        &mut self,
        client: ClientId,
        id: Value,
        method: &str,
        params: &Value,
        version: MonitorVersion,
    ) {
        let (start, end) = match version {
            MonitorVersion::One | MonitorVersion::Two => (String::new(), "}"),
            MonitorVersion::Three => (format!("[false,\"{}\",", RowUuid::NIL), "]}"),
        };
        let mut text = format!("{{\"error\":null,\"id\":{id},\"result\":{start}");
        match self.start_monitor(client, method, params, version, &mut text) {
            Ok(()) => {
                text.push_str(end);
                self.send(client, text);
            }
            Err(error) => {
                self.reply(client, &json_object([("id", id), ("error", error.to_json())]));
            }
        }
    }

    /// Starts a monitor, and adds the initial rows to `text`.
    fn start_monitor(
        &mut self,
        client: ClientId,
        method: &str,
        params: &Value,
        version: MonitorVersion,
        text: &mut String,
    ) -> Result<(), TransactionError> {
        let name = self.database_name(method, params)?;
        let wrong = |details: &str| TransactionError::syntax(details, params);
        let (id, requests) = match (params.as_array().map(Vec::as_slice), version) {
            (Some([_, id, requests]), _) => (id, requests),
            (Some([_, id, requests, Value::String(last)]), MonitorVersion::Three) => {
                last.parse::<RowUuid>().map_err(|_| wrong("last-txn-id must be UUID"))?;
                (id, requests)
            }
            _ => return Err(wrong("invalid parameters")),
        };
        let Some(session) = self.sessions.get_mut(&client) else { return Ok(()) };
        if session.monitors.contains_key(&id.to_string()) {
            return Err(TransactionError::syntax("duplicate monitor ID", id));
        }
        if session.monitors.len() >= self.limits.monitors {
            let details = format!(
                "a client may have at most {} monitors: cancel one first",
                self.limits.monitors
            );
            return Err(TransactionError::new(ErrorTag::Resources, details));
        }
        let Some(served) = self.databases.get_mut(&name) else {
            text.push_str("{}");
            return Ok(());
        };
        let monitor = RowMonitor::from_json(requests, served.database.schema(), version)?;
        monitor.write_initial(&served.database, &mut served.texts, text);
        let monitor = ClientMonitor { id: id.clone(), database: name, monitor };
        session.monitors.insert(id.to_string(), monitor);
        Ok(())
    }

    /// Handles the request `monitor_cond_change`.
    fn change_monitor(
        &mut self,
        client: ClientId,
        params: &Value,
    ) -> Result<Value, TransactionError> {
        let Some([old_id, new_id, requests]) = params.as_array().map(Vec::as_slice) else {
            return Err(TransactionError::syntax("invalid parameters", params));
        };
        let Some(session) = self.sessions.get_mut(&client) else { return Ok(empty_object()) };
        let is_taken = new_id != old_id && session.monitors.contains_key(&new_id.to_string());
        let unknown = || TransactionError::syntax("unknown monitor session", old_id);
        let monitor = session.monitors.get_mut(&old_id.to_string()).ok_or_else(unknown)?;
        if is_taken {
            return Err(TransactionError::syntax("duplicate monitor ID", new_id));
        }
        let Some(served) = self.databases.get(&monitor.database) else { return Ok(empty_object()) };
        let update = monitor.monitor.change_conditions(requests, &served.database)?;
        monitor.id = new_id.clone();
        let notification = update.map(|update| monitor.notification(update));
        if let Some(monitor) = session.monitors.remove(&old_id.to_string()) {
            session.monitors.insert(new_id.to_string(), monitor);
        }
        if let Some(notification) = notification {
            self.reply(client, &notification);
        }
        Ok(empty_object())
    }

    /// Handles the request `monitor_cancel`.
    fn cancel_monitor(&mut self, client: ClientId, params: &Value) -> Answer {
        let Some([id]) = params.as_array().map(Vec::as_slice) else {
            return Err("invalid parameters".into());
        };
        let session = self.sessions.get_mut(&client);
        match session.and_then(|session| session.monitors.remove(&id.to_string())) {
            Some(_) => Ok(empty_object()),
            None => Err("unknown monitor".into()),
        }
    }

    /// Handles `lock`, `steal` and `unlock`.
    fn lock_method(
        &mut self,
        client: ClientId,
        method: &str,
        params: &Value,
    ) -> Result<Value, TransactionError> {
        let name = match params.as_array().map(Vec::as_slice) {
            Some([Value::String(name)]) if is_id(name) && name.len() <= LOCK_NAME_BYTES_MAX => name,
            _ => {
                let details = format!("{method} request params must be <id>");
                return Err(TransactionError::syntax(details, params));
            }
        };
        if method != "unlock" && self.locks.count(client) >= self.limits.locks {
            let details =
                format!("a client may have at most {} locks: unlock one first", self.limits.locks);
            return Err(TransactionError::new(ErrorTag::Resources, details));
        }
        let requested = |_| {
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            TransactionError::syntax(details, params)
        };
        match method {
            "lock" => {
                let is_owner = self.locks.lock(name, client).map_err(requested)?;
                Ok(json!({"locked": is_owner}))
            }
            "steal" => {
                let victim = self.locks.steal(name, client).map_err(requested)?;
                if let Some(victim) = victim {
                    self.notify(victim, "stolen", &json!([name]));
                }
                Ok(json!({"locked": true}))
            }
            _ => {
                let next = self.locks.unlock(name, client).ok_or_else(|| {
                    let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
                    TransactionError::syntax(details, params)
                })?;
                if let Some(next) = next {
                    self.notify(next, "locked", &json!([name]));
                }
                Ok(empty_object())
            }
        }
    }
}

/// Maximum length of the name of a lock.
const LOCK_NAME_BYTES_MAX: usize = 255;

/// Returns `{}`, the result of methods without a result.
fn empty_object() -> Value {
    Value::Object(Map::new())
}
