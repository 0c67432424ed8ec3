//! Compares transactions with a slow model of tables, references and garbage collection.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure of the fixture ends the test")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use shunt_ovsdb::{
    database::Database,
    schema::DatabaseSchema,
    transaction::{
        DatabaseAccess, RequestedOperation, TransactionExecution, TransactionRequest, execute,
    },
    value::RowUuid,
};

/// A root table with strong and weak references to rows of a non-root table.
const SCHEMA: &str = r#"{
    "name": "Model", "version": "1.0.0",
    "tables": {
        "Root": {
            "columns": {
                "name": {"type": "integer"},
                "count": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 9}}},
                "strong": {"type": {"key": {"type": "uuid", "refTable": "Kept"}, "min": 0, "max": "unlimited"}},
                "weak": {"type": {"key": {"type": "uuid", "refTable": "Kept", "refType": "weak"}, "min": 0, "max": "unlimited"}}
            },
            "isRoot": true, "maxRows": 3, "indexes": [["name"]]
        },
        "Kept": {
            "columns": {"next": {"type": {"key": {"type": "uuid", "refTable": "Kept"}, "min": 0, "max": 1}}}
        }
    }
}"#;

type Ids = BTreeSet<u8>;

/// An operation of a random transaction.
#[derive(Clone, Debug)]
enum Step {
    InsertRoot { id: u8, name: u8, count: u8, strong: Ids, weak: Ids },
    InsertKept { id: u8, next: Option<u8> },
    SetStrong { id: u8, strong: Ids },
    AddStrong { id: u8, kept: u8 },
    RemoveStrong { id: u8, kept: u8 },
    SetWeak { id: u8, weak: Ids },
    SetNext { id: u8, next: Option<u8> },
    AddCount { id: u8, delta: i8 },
    DeleteRoot { id: u8 },
    DeleteKept { id: u8 },
}

/// The rows that the database must have.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    roots: BTreeMap<u8, Root>,
    kept: BTreeMap<u8, Option<u8>>,
}

/// A row of the root table.
#[derive(Clone, Debug, PartialEq)]
struct Root {
    name: u8,
    count: u8,
    strong: Ids,
    weak: Ids,
}

impl Model {
    /// Returns the rows after a transaction, or `None` if it is refused.
    fn after(&self, steps: &[Step]) -> Option<Self> {
        let mut model = self.clone();
        let mut touched = BTreeSet::new();
        for step in steps {
            model.apply(step, &mut touched)?;
        }
        model.complete()
    }

    fn apply(&mut self, step: &Step, touched: &mut BTreeSet<(bool, u8)>) -> Option<()> {
        match step.clone() {
            Step::InsertRoot { id, name, count, strong, weak } => {
                if count > 9 || self.roots.contains_key(&id) || touched.contains(&(true, id)) {
                    return None;
                }
                touched.insert((true, id));
                self.roots.insert(id, Root { name, count, strong, weak });
            }
            Step::InsertKept { id, next } => {
                if self.kept.contains_key(&id) || touched.contains(&(false, id)) {
                    return None;
                }
                touched.insert((false, id));
                self.kept.insert(id, next);
            }
            Step::SetStrong { id, strong } => self.root(id, |root| root.strong = strong),
            Step::AddStrong { id, kept } => self.root(id, |root| root.strong.extend([kept])),
            Step::RemoveStrong { id, kept } => {
                self.root(id, |root| root.strong.retain(|other| *other != kept));
            }
            Step::SetWeak { id, weak } => self.root(id, |root| root.weak = weak),
            Step::SetNext { id, next } => {
                if let Some(row) = self.kept.get_mut(&id) {
                    *row = next;
                }
            }
            Step::AddCount { id, delta } => {
                if let Some(root) = self.roots.get_mut(&id) {
                    root.count =
                        root.count.checked_add_signed(delta).filter(|count| *count <= 9)?;
                }
            }
            Step::DeleteRoot { id } => {
                if self.roots.remove(&id).is_some() {
                    touched.insert((true, id));
                }
            }
            Step::DeleteKept { id } => {
                if self.kept.remove(&id).is_some() {
                    touched.insert((false, id));
                }
            }
        }
        Some(())
    }

    fn root(&mut self, id: u8, change: impl FnOnce(&mut Root)) {
        if let Some(root) = self.roots.get_mut(&id) {
            change(root);
        }
    }

    fn complete(mut self) -> Option<Self> {
        let strong = self.roots.values().flat_map(|root| root.strong.iter().copied());
        let next = self.kept.values().flatten().copied();
        if strong.chain(next).any(|id| !self.kept.contains_key(&id)) {
            return None;
        }
        loop {
            let is_referred = |id: &u8| {
                self.roots.values().any(|root| root.strong.contains(id))
                    || self.kept.iter().any(|(other, next)| other != id && *next == Some(*id))
            };
            let lost: Vec<u8> = self.kept.keys().copied().filter(|id| !is_referred(id)).collect();
            if lost.is_empty() {
                break;
            }
            self.kept.retain(|id, _| !lost.contains(id));
        }
        let names: BTreeSet<u8> = self.roots.values().map(|root| root.name).collect();
        if names.len() != self.roots.len() || self.roots.len() > 3 {
            return None;
        }
        for root in self.roots.values_mut() {
            root.weak.retain(|id| self.kept.contains_key(id));
        }
        Some(self)
    }

    /// Reads the rows of a database.
    fn of(database: &Database) -> Self {
        let snapshot = database.snapshot();
        let id = |uuid: RowUuid| (0..=u8::MAX).find(|id| self::uuid(*id) == uuid).unwrap();
        let roots = snapshot.rows("Root").map(|row| {
            let number = |column| u8::try_from(row.integer(column).unwrap()).unwrap();
            let (name, count) = (number("name"), number("count"));
            let ids = |column| row.uuids(column).map(id).collect();
            (id(row.uuid()), Root { name, count, strong: ids("strong"), weak: ids("weak") })
        });
        let kept =
            snapshot.rows("Kept").map(|row| (id(row.uuid()), row.uuids("next").map(id).next()));
        Self { roots: roots.collect(), kept: kept.collect() }
    }
}

fn uuid(id: u8) -> RowUuid {
    RowUuid::from_bits(u128::from(id) + 1)
}

fn reference(id: u8) -> Value {
    json!(["uuid", uuid(id).to_string()])
}

fn references<'a>(ids: impl IntoIterator<Item = &'a u8>) -> Value {
    json!(["set", ids.into_iter().map(|id| reference(*id)).collect::<Vec<_>>()])
}

fn operation(step: &Step) -> Value {
    let is = |id: &u8| json!([["_uuid", "==", reference(*id)]]);
    match step {
        Step::InsertRoot { id, name, count, strong, weak } => {
            let (strong, weak) = (references(strong), references(weak));
            let row = json!({"name": name, "count": count, "strong": strong, "weak": weak});
            json!({"op": "insert", "table": "Root", "uuid": uuid(*id).to_string(), "row": row})
        }
        Step::InsertKept { id, next } => {
            let row = json!({"next": references(next)});
            json!({"op": "insert", "table": "Kept", "uuid": uuid(*id).to_string(), "row": row})
        }
        Step::SetStrong { id, strong } => {
            let row = json!({"strong": references(strong)});
            json!({"op": "update", "table": "Root", "where": is(id), "row": row})
        }
        Step::SetWeak { id, weak } => {
            let row = json!({"weak": references(weak)});
            json!({"op": "update", "table": "Root", "where": is(id), "row": row})
        }
        Step::AddStrong { id, kept } => {
            let mutations = json!([["strong", "insert", reference(*kept)]]);
            json!({"op": "mutate", "table": "Root", "where": is(id), "mutations": mutations})
        }
        Step::RemoveStrong { id, kept } => {
            let mutations = json!([["strong", "delete", reference(*kept)]]);
            json!({"op": "mutate", "table": "Root", "where": is(id), "mutations": mutations})
        }
        Step::SetNext { id, next } => {
            let row = json!({"next": references(next)});
            json!({"op": "update", "table": "Kept", "where": is(id), "row": row})
        }
        Step::AddCount { id, delta } => {
            let mutations = json!([["count", "+=", delta]]);
            json!({"op": "mutate", "table": "Root", "where": is(id), "mutations": mutations})
        }
        Step::DeleteRoot { id } => json!({"op": "delete", "table": "Root", "where": is(id)}),
        Step::DeleteKept { id } => json!({"op": "delete", "table": "Kept", "where": is(id)}),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..5_u8;
    let ids = || proptest::collection::btree_set(0..5_u8, 0..3);
    prop_oneof![
        (id(), 0..4_u8, 0..11_u8, ids(), ids()).prop_map(|(id, name, count, strong, weak)| {
            Step::InsertRoot { id, name, count, strong, weak }
        }),
        (id(), proptest::option::of(id())).prop_map(|(id, next)| Step::InsertKept { id, next }),
        (id(), proptest::option::of(id())).prop_map(|(id, next)| Step::InsertKept { id, next }),
        (id(), ids()).prop_map(|(id, strong)| Step::SetStrong { id, strong }),
        (id(), id()).prop_map(|(id, kept)| Step::AddStrong { id, kept }),
        (id(), id()).prop_map(|(id, kept)| Step::RemoveStrong { id, kept }),
        (id(), ids()).prop_map(|(id, weak)| Step::SetWeak { id, weak }),
        (id(), proptest::option::of(id())).prop_map(|(id, next)| Step::SetNext { id, next }),
        (id(), -3..4_i8).prop_map(|(id, delta)| Step::AddCount { id, delta }),
        id().prop_map(|id| Step::DeleteRoot { id }),
        id().prop_map(|id| Step::DeleteKept { id }),
    ]
}

/// Executes a transaction; returns whether it was accepted.
fn transact(database: &mut Database, operations: &[RequestedOperation]) -> bool {
    let request = TransactionRequest {
        operations,
        access: DatabaseAccess::ReadWrite,
        owns_lock: &|_| false,
        waited: std::time::Duration::ZERO,
    };
    let TransactionExecution::Done(outcome) = execute(database, &request) else {
        panic!("no operation waits");
    };
    let is_error = |result: &Value| result.get("error").is_some();
    let accepted = !outcome.results.iter().any(is_error);
    assert!(accepted || outcome.change.is_empty());
    database.apply(&outcome.change);
    accepted
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Each transaction ends as in the model, and leaves the same rows.
    #[test]
    fn transactions_agree_with_the_model(
        transactions in proptest::collection::vec(proptest::collection::vec(step(), 1..6), 1..25),
    ) {
        let mut database = Database::new(DatabaseSchema::from_text(SCHEMA).unwrap(), [3; 20]);
        let mut model = Model::default();
        for steps in transactions {
            let operations: Vec<_> =
                steps.iter().map(operation).map(RequestedOperation::Json).collect();
            let accepted = transact(&mut database, &operations);
            let after = model.after(&steps);
            prop_assert_eq!(accepted, after.is_some(), "{:?} on {:?}", steps, model);
            model = after.unwrap_or(model);
            prop_assert_eq!(Model::of(&database), model.clone(), "after {:?}", steps);
        }
    }
}
