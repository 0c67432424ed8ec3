//! Recorded workloads: the steps of each packet, in the order of the packets.
//!
//! A file has sections that begin with their names. Lines that begin with `#` are comments.
//!
//! ```text
//! steps                one step per line: its table, and its coupling fields as initials
//! 0 -
//! 1 es,ed
//! paths                one traversal per line: the numbers of its steps
//! 0 1
//! packets              the path number of each packet, in order
//! 0 0 0
//! ```

use shunt_gigaflow::outline::{Coupling, FieldSet, OutlineStep, StateId, TraversalOutline};

/// A recorded workload: packets as sequences of steps.
#[derive(Clone, Debug, Default)]
pub struct RecordedWorkload {
    steps: Vec<(u32, FieldSet)>,
    paths: Vec<Vec<u32>>,
    packets: Vec<usize>,
    expected: Vec<(String, Vec<String>)>,
}

impl RecordedWorkload {
    /// Parses a workload; `None` if the text is not valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut workload = Self::default();
        let mut section = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line {
                "steps" | "paths" | "packets" | "expected" => section = line,
                _ => workload.add(section, line)?,
            }
        }
        let in_paths = workload.paths.iter().flatten();
        let whole = in_paths.copied().all(|step| (step as usize) < workload.steps.len())
            && workload.packets.iter().all(|path| *path < workload.paths.len());
        whole.then_some(workload)
    }

    /// Adds a line of a section; `None` if it is malformed.
    fn add(&mut self, section: &str, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match section {
            "steps" => {
                let table = words.next()?.parse().ok()?;
                self.steps.push((table, fields(words.next()?)?));
            }
            "paths" => {
                self.paths.push(words.map(str::parse).collect::<Result<_, _>>().ok()?);
            }
            "packets" => {
                for word in words {
                    self.packets.push(word.parse().ok()?);
                }
            }
            _ => {
                let name = words.next()?.to_owned();
                self.expected.push((name, words.map(str::to_owned).collect()));
            }
        }
        Some(())
    }

    /// Returns the steps of each packet.
    pub fn packets(&self) -> impl Iterator<Item = &[u32]> {
        self.packets.iter().map(|path| self.paths[*path].as_slice())
    }

    /// Returns the words after this name in the section `expected`.
    #[must_use]
    pub fn expected(&self, name: &str) -> Option<&[String]> {
        let entry = self.expected.iter().find(|(other, _)| other == name)?;
        Some(&entry.1)
    }

    /// Writes the outline of a path.
    pub fn outline(&self, path: &[u32], outline: &mut TraversalOutline) {
        for (at, number) in path.iter().enumerate() {
            let (table, fields) = self.steps[*number as usize];
            match at {
                0 => outline.begin(StateId::new(table)),
                _ => outline.partition_point(StateId::new(table)),
            }
            outline.step(OutlineStep { fields, identity: (*number).into() });
        }
    }
}

/// Parses a set of coupled fields.
fn fields(text: &str) -> Option<FieldSet> {
    let names = text.split(',').filter(|name| *name != "-");
    names.map(field).try_fold(FieldSet::EMPTY, |set, field| Some(set.with(field?)))
}

/// Parses the name of a coupling.
fn field(name: &str) -> Option<Coupling> {
    Some(match name {
        "es" => Coupling::EthSrc,
        "ed" => Coupling::EthDst,
        "is" => Coupling::IpSrc,
        "id" => Coupling::IpDst,
        "pr" => Coupling::IpProto,
        "ts" => Coupling::TpSrc,
        "td" => Coupling::TpDst,
        _ => return None,
    })
}
