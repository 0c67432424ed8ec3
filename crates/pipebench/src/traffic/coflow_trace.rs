//! Parses a trace of recorded coflows of a cluster.
//!
//! The format agrees with the public trace of a cluster with MapReduce (`coflow-benchmark`): a line
//! with the numbers of racks and of coflows, then a line for each coflow.
//!
//! ```text
//! NUMBER ARRIVAL_MS MAPPERS RACK.. REDUCERS RACK:MEGABYTES..
//! ```
//!
//! Each mapper sends to each reducer. The megabytes are ignored, because the published workload has
//! other sizes of flows than the trace.

use crate::{
    error::{CoflowTraceError, WorkloadError},
    input::Input,
};

/// The coflows of a trace, in order of their arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoflowTrace {
    coflows: Vec<RecordedCoflow>,
}

/// One coflow of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCoflow {
    /// Milliseconds from the start of the trace.
    pub arrival_ms: u64,
    /// The racks of the senders.
    pub mappers: Vec<u32>,
    /// The racks of the receivers.
    pub reducers: Vec<u32>,
}

impl CoflowTrace {
    /// Parses the text of a trace.
    ///
    /// # Errors
    ///
    /// If a line is not in the format: the error names the first such line.
    pub fn parse(text: &str) -> Result<Self, CoflowTraceError> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty());
        let wrong = |line| move |problem| CoflowTraceError { line, problem };
        let (line, first) = lines.next().unwrap_or((1, ""));
        let mut words = first.split_whitespace();
        let racks = number(&mut words, "the first line does not begin with the number of racks");
        let racks = racks.map_err(wrong(line))?;
        let count =
            number(&mut words, "the second word of the first line is not the number of coflows");
        let count = count.map_err(wrong(line))?;
        let coflow = |(line, text)| RecordedCoflow::parse(text, racks).map_err(wrong(line));
        let mut coflows = lines.map(coflow).collect::<Result<Vec<_>, _>>()?;
        if coflows.len() as u64 != count || coflows.is_empty() {
            return Err(wrong(line)(
                "the number of coflows in the first line is not that of the file",
            ));
        }
        coflows.sort_by_key(|coflow| coflow.arrival_ms);
        Ok(Self { coflows })
    }

    /// Reads a trace.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not in the format.
    pub fn read(path: &str) -> Result<Self, WorkloadError> {
        let Input { path, text } = Input::read(path)?;
        Self::parse(&text).map_err(|problem| WorkloadError::CoflowTrace { path, problem })
    }

    /// Returns the coflows, in order of their arrival; there is at least one.
    #[must_use]
    pub fn coflows(&self) -> &[RecordedCoflow] {
        &self.coflows
    }

    /// Returns the arrival of the last coflow, in milliseconds.
    #[must_use]
    pub fn last_arrival_ms(&self) -> u64 {
        self.coflows.last().map_or(0, |coflow| coflow.arrival_ms)
    }
}

impl RecordedCoflow {
    /// Parses a coflow of a trace.
    fn parse(text: &str, racks: u64) -> Result<Self, &'static str> {
        let mut words = text.split_whitespace();
        number(&mut words, "the number of the coflow is missing")?;
        let arrival_ms = number(&mut words, "the arrival time in milliseconds is missing")?;
        let mappers = racks_of(&mut words, racks)?;
        let reducers = racks_of(&mut words, racks)?;
        match words.next() {
            None => Ok(Self { arrival_ms, mappers, reducers }),
            Some(_) => Err("there are words after the last reducer"),
        }
    }

    /// Returns the number of flows: one from each mapper to each reducer.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        let count = self.mappers.len().saturating_mul(self.reducers.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// Parses the next word as a number.
fn number<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    problem: &'static str,
) -> Result<u64, &'static str> {
    words.next().and_then(|word| word.parse().ok()).ok_or(problem)
}

/// Reads a number of racks, and then the racks.
fn racks_of<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    racks: u64,
) -> Result<Vec<u32>, &'static str> {
    let count = number(words, "the number of mappers or reducers is missing")?;
    let mut list = Vec::new();
    for _ in 0..count {
        let word = words
            .next()
            .ok_or("there are fewer racks than the number of mappers or reducers before them")?;
        let rack = word.split(':').next().unwrap_or_default();
        let rack: u32 = rack.parse().map_err(|_| "a rack is not a number")?;
        if u64::from(rack) > racks {
            return Err("the number of a rack is above the number of racks in the first line");
        }
        list.push(rack);
    }
    if list.is_empty() { Err("a coflow needs a mapper and a reducer") } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_in_order_of_arrival() {
        let trace = CoflowTrace::parse("9 2\n7 30 2 1 4 1 5:1.5\n\n3 10 1 0 2 8:1 9:20.0\n");
        let trace = trace.unwrap();
        let [first, second] = trace.coflows() else { panic!("{trace:?}") };
        assert_eq!(
            (first.arrival_ms, &first.mappers[..], &first.reducers[..]),
            (10, &[0][..], &[8, 9][..])
        );
        assert_eq!((second.pairs(), trace.last_arrival_ms()), (2, 30));
    }

    #[test]
    fn a_line_in_another_format_is_refused() {
        for (text, line, problem) in [
            ("", 1, "does not begin with the number of racks"),
            ("9\n", 1, "is not the number of coflows"),
            ("9 2\n1 0 1 1 1 2:1\n", 1, "is not that of the file"),
            ("9 1\nx 0 1 1 1 2:1\n", 2, "the number of the coflow is missing"),
            ("9 1\n1 soon 1 1 1 2:1\n", 2, "the arrival time"),
            ("9 1\n\n1 0 3 1 2\n", 3, "fewer racks"),
            ("9 1\n1 0 0 1 2:1\n", 2, "a mapper and a reducer"),
            ("9 1\n1 0 1 1 1 12:1\n", 2, "above the number of racks"),
            ("9 1\n1 0 1 1 1 2:1 3:1\n", 2, "words after"),
            ("9 1\n1 0 18446744073709551615 1\n", 2, "fewer racks"),
        ] {
            let error = CoflowTrace::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(problem), "{text:?}: {error}");
        }
    }
}
