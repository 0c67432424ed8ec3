//! Actions with numbers as arguments: `conjunction`, `fin_timeout`, `sample`, `note`.

use shunt_flow::{
    PortNo,
    text::{PortNames, format_port},
};

use super::super::{
    RuleTextError,
    number::{parse_as, parse_dotted_hex},
    scope::Scope,
    slice::TextSlice,
};
use crate::action::{Action, SampleAction, SampleDirection};

/// Parses `conjunction(ID,K/N)`.
pub(super) fn conjunction(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let form = "conjunction(ID,K/N) with N from 2 to 64 and K from 1 to N";
    let bad = || argument.bad("conjunction", form);
    let (id, clause) = argument.split_once(",").ok_or_else(bad)?;
    let (clause, clauses) = clause.split_once("/").ok_or_else(bad)?;
    let id = parse_as(id.trimmed(), "a conjunction", u32::MAX)?;
    let clause = parse_as(clause.trimmed(), "a clause", u8::MAX)?;
    let clauses_count = parse_as(clauses.trimmed(), "a number of clauses", u8::MAX)?;
    match clause.checked_sub(1) {
        Some(clause) if (2..=64).contains(&clauses_count) && clause < clauses_count => {
            Ok(Action::Conjunction { id, clause, clauses_count })
        }
        _ => Err(bad()),
    }
}

/// Parses `fin_timeout(idle_timeout=SECONDS,hard_timeout=SECONDS)`.
pub(super) fn fin_timeout(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let (mut idle, mut hard) = (0, 0);
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        let form = "fin_timeout(idle_timeout=SECONDS,hard_timeout=SECONDS)";
        let timeout = match item.name.text() {
            "idle_timeout" => &mut idle,
            "hard_timeout" => &mut hard,
            _ => return Err(item.name.bad("fin_timeout", form)),
        };
        *timeout = parse_as(value, "a number of seconds", u16::MAX)?;
    }
    Ok(Action::FinTimeout { idle, hard })
}

/// Prints `fin_timeout`.
pub(super) fn format_fin_timeout(idle: u16, hard: u16) -> String {
    let timeouts = [("idle_timeout", idle), ("hard_timeout", hard)];
    let given = timeouts.into_iter().filter(|(_, seconds)| *seconds != 0);
    let items: Vec<String> = given.map(|(name, seconds)| format!("{name}={seconds}")).collect();
    format!("fin_timeout({})", items.join(","))
}

/// Parses `sample(probability=..,collector_set_id=..,..)`.
pub(super) fn sample(argument: TextSlice<'_>, scope: &Scope<'_>) -> Result<Action, RuleTextError> {
    let form = "sample(probability=OF_65536,collector_set_id=ID,obs_domain_id=ID,obs_point_id=ID,\
                sampling_port=PORT,ingress or egress)";
    let mut action = SampleAction {
        probability: 0,
        collector_set_id: 0,
        observation_domain_id: 0,
        observation_point_id: 0,
        sampling_port: None,
        direction: None,
    };
    for item in argument.items() {
        let item = item?;
        let value = item.argument_or_end();
        let id = || parse_as(value, "an id", u32::MAX);
        match item.name.text() {
            "probability" => action.probability = parse_as(value, "a probability", u16::MAX)?,
            "collector_set_id" => action.collector_set_id = id()?,
            "obs_domain_id" => action.observation_domain_id = id()?,
            "obs_point_id" => action.observation_point_id = id()?,
            "sampling_port" => {
                let port = scope.port(value)?;
                action.sampling_port = (port != PortNo::ANY).then_some(port);
            }
            "ingress" => {
                item.no_argument("ingress")?;
                action.direction = Some(SampleDirection::Ingress);
            }
            "egress" => {
                item.no_argument("egress")?;
                action.direction = Some(SampleDirection::Egress);
            }
            _ => return Err(item.name.bad("sample", form)),
        }
    }
    if action.probability == 0 {
        return Err(argument.bad("sample", form));
    }
    Ok(Action::Sample(Box::new(action)))
}

/// Prints `sample`.
pub(super) fn format_sample(action: &SampleAction, ports: &dyn PortNames) -> String {
    let mut text = format!(
        "sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={}",
        action.probability,
        action.collector_set_id,
        action.observation_domain_id,
        action.observation_point_id,
    );
    if let Some(port) = action.sampling_port {
        text = text + ",sampling_port=" + &format_port(port, ports);
    }
    let direction = match action.direction {
        Some(SampleDirection::Ingress) => ",ingress",
        Some(SampleDirection::Egress) => ",egress",
        None => "",
    };
    text + direction + ")"
}

/// Parses `note[:HEX]`, and pads the action to a multiple of eight bytes.
pub(super) fn note(argument: TextSlice<'_>) -> Result<Action, RuleTextError> {
    let mut bytes = parse_dotted_hex(argument)?.into_vec();
    let whole = bytes.len().saturating_add(NOTE_HEADER).next_multiple_of(8);
    let length = whole.saturating_sub(NOTE_HEADER);
    bytes.resize(length, 0);
    Ok(Action::Note(bytes.into()))
}

/// Bytes of `struct nx_action_note` before the note.
const NOTE_HEADER: usize = 10;
