//! The written report of an experiment: JSON for programs, a Markdown table and an SVG plot for
//! people.
//!
//! Each file is written under a temporary name and then renamed, so if the disk is full, the old
//! file remains intact.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{
    Experiment, Row,
    guide::{COLUMNS, question, words_of},
    machine, overview, plot, table,
    title::title,
};

/// Completeness of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A full run, published in `docs/results`.
    Full,
    /// A part of a run, or a run without the rival; not published.
    Part,
    /// A short run; not published.
    Quick,
}

impl Form {
    /// Returns the completeness of a run.
    pub(super) const fn of(is_quick: bool, lacks_something: bool) -> Self {
        match (is_quick, lacks_something) {
            (true, _) => Self::Quick,
            (false, true) => Self::Part,
            (false, false) => Self::Full,
        }
    }

    /// Returns the folder for the results: in the source tree, or in the build folder.
    pub(super) fn folder(self, root: &Path, target: &Path) -> PathBuf {
        match self {
            Self::Full => root.join("docs/results"),
            Self::Part | Self::Quick => target.join("results"),
        }
    }
}

/// An experiment with its rows.
#[derive(Debug)]
pub struct Report<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The measured rows.
    pub rows: &'a [Row],
    /// Completeness of the run.
    pub form: Form,
    /// Options of the experiment, without their values, which are paths.
    pub options: Vec<String>,
}

impl Report<'_> {
    /// Writes all files into a folder, and returns their paths.
    ///
    /// # Errors
    ///
    /// If a file cannot be written. The error has the path and tells the user how to continue.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let json = json_lines(&self.json());
        let sampled = plot(self.experiment, self.rows);
        let place = |ending| folder.join(format!("{}.{ending}", self.experiment.name));
        fs::create_dir_all(folder).map_err(|error| write_failure(folder, &error))?;
        // All temporary files exist before the first file is renamed, so a full disk leaves the old
        // files.
        let mut parts = Vec::new();
        for (ending, text) in [("json", json), ("md", self.page()), ("svg", sampled)] {
            parts.push(Part::make(place(ending), |path| fs::write(path, text.as_bytes()))?);
        }
        parts.into_iter().map(Part::finish).collect()
    }

    /// Returns the command that produces this report.
    #[must_use]
    pub fn command(&self) -> String {
        let options = self.options.iter().map(|option| format!(" {option} .."));
        let quick = if self.form == Form::Quick { " --quick" } else { "" };
        let has_circuits = cfg!(feature = "dbsp") && self.experiment.has_circuits();
        let dbsp = if has_circuits { " --dbsp" } else { "" };
        let options: String = options.collect();
        format!("cargo xtask bench {}{options}{quick}{dbsp}", self.experiment.name)
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let rival = row.rival.as_ref();
            json!({
                "name": row.name,
                "metric": row.metric,
                "unit": row.unit,
                "value": round_to_digits(row.ours.median()),
                "rival": rival.map(|(name, _)| name),
                "rival_value": rival.map(|(_, samples)| round_to_digits(samples.median())),
                "ratio": comparison(row).map(round_to_digits),
                "published": row.published,
            })
        });
        let mut value = json!({
            "experiment": self.experiment.name,
            "source": self.experiment.source,
            "command": self.command(),
            "machine": machine(),
            "rows": rows.collect::<Vec<_>>(),
        });
        for row in self.rows {
            for curve in &row.curves {
                let points =
                    curve.points.iter().map(|(x, y)| [round_to_digits(*x), round_to_digits(*y)]);
                value["curves"][&row.name][&curve.name] = points.collect();
            }
        }
        value
    }

    fn page(&self) -> String {
        let overview = overview(self.rows).map(|table| table + "\n").unwrap_or_default();
        let names_pipelines = self.rows.iter().any(|row| title(&row.name).starts_with("pipeline "));
        let workloads = if names_pipelines { WORKLOADS } else { "" };
        let table = table(self.rows);
        let words = words_of(&format!("{overview}{table}"));
        let words = if words.is_empty() { words } else { format!("## Words\n\n{words}\n") };
        format!(
            "{}Source: {}.\nTo repeat it: `{}`; these values are from one \
             call, on {}.\n\n![plot]({}.svg)\n\n## Columns\n\n{COLUMNS}{workloads}\n{words}## \
             Results\n\n{overview}{table}",
            opening(self.experiment),
            self.experiment.source,
            self.command(),
            machine(),
            self.experiment.name,
        )
    }
}

/// Returns the title of a page, the question, and the measured quantities.
fn opening(experiment: &Experiment) -> String {
    let question = question(experiment.name).unwrap_or_default();
    format!(
        "# {}\n\n**Question.** {question}\n\nMeasured: {}.\n",
        experiment.title, experiment.what
    )
}

/// The line about workloads, for pages with rows of pipelines.
const WORKLOADS: &str = "\n[Workloads](../workloads.md#pipelines-and-updates) describes the \
                         pipelines (OFD, PSC, OLS, ANT, OTL), localities and updates.\n";

/// Formats JSON: one line for each top-level member and each of its elements.
fn json_lines(value: &Value) -> String {
    let block = |open: &str, lines: &[String], close: &str| {
        if lines.is_empty() {
            return format!("{open}{close}");
        }
        format!("{open}\n{}\n{close}", lines.join(",\n"))
    };
    let member = |(key, value): (&String, &Value)| match value {
        Value::Array(elements) => {
            let lines: Vec<String> = elements.iter().map(Value::to_string).collect();
            format!("{}: {}", json!(key), block("[", &lines, "]"))
        }
        Value::Object(members) => {
            let line = |(key, value)| format!("{}: {value}", json!(key));
            let lines: Vec<String> = members.iter().map(line).collect();
            format!("{}: {}", json!(key), block("{", &lines, "}"))
        }
        _ => format!("{}: {value}", json!(key)),
    };
    let members: Vec<String> = value.as_object().into_iter().flatten().map(member).collect();
    block("{", &members, "}") + "\n"
}

/// Returns the ratio to the rival, or else the ratio to the published value.
fn comparison(row: &Row) -> Option<f64> {
    row.ratio().map(|ratio| ratio.middle).or_else(|| row.part_of_published())
}

/// Rounds to four significant digits; more digits are noise.
fn round_to_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Writes a file and creates its folder; the file is never left half-written.
///
/// # Errors
///
/// If the file cannot be written. The error has the path and tells the user how to continue.
pub(crate) fn write_atomically(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| write_failure(folder, &error))?;
    let part = Part::make(path.to_owned(), |temporary| fs::write(temporary, text.as_bytes()))?;
    part.finish().map(drop)
}

/// A file under a temporary name.
///
/// The file is removed on drop unless [`finish`](Part::finish) renames it.
struct Part {
    path: PathBuf,
    temporary: PathBuf,
}

impl Part {
    fn make(path: PathBuf, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<Self, String> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let part = Self { temporary: path.with_file_name(name), path };
        make(&part.temporary).map_err(|error| write_failure(&part.path, &error))?;
        Ok(part)
    }

    /// Renames the file to the final path, and returns this path.
    fn finish(self) -> Result<PathBuf, String> {
        fs::rename(&self.temporary, &self.path)
            .map_err(|error| write_failure(&self.path, &error))?;
        Ok(self.path.clone())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The file has been renamed, or is no longer needed.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn write_failure(path: &Path, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run it \
                                         again"
        }
        io::ErrorKind::PermissionDenied => "run it as a user who may write there",
        _ => "a previous file is unchanged",
    };
    format!("{} was not written: {error}; {advice}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{EXPERIMENTS, Samples};

    #[test]
    fn a_failed_write_leaves_the_old_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        fs::write(&path, "old").unwrap();
        let failure = Part::make(path.clone(), |temporary| {
            fs::write(temporary, "half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failure.err().unwrap().contains("free some space"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_full_runs_are_published() {
        let folder =
            |quick, lacks| Form::of(quick, lacks).folder(Path::new("root"), Path::new("target"));
        assert_eq!(folder(false, false), Path::new("root/docs/results"));
        for (quick, lacks) in [(false, true), (true, false), (true, true)] {
            assert_eq!(folder(quick, lacks), Path::new("target/results"));
        }
    }

    #[test]
    fn report_is_written_completely_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = &EXPERIMENTS[0];
        let row = Row { ours: 1.0.into(), ..Row::new("a", "time", "ns") };
        let report = |rows| Report { experiment, rows, form: Form::Full, options: Vec::new() };
        let written = report(std::slice::from_ref(&row)).write(folder.path()).unwrap();
        assert!(written.iter().all(|path| path.is_file()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), written.len());
        let page = folder.path().join(format!("{}.md", experiment.name));
        assert!(fs::read_to_string(&page).unwrap().contains("| a: time | - | 1.00 ns |"));
        // The second file cannot be created.
        let before = folder.path().join(format!("{}.md.partial", experiment.name));
        fs::create_dir(&before).unwrap();
        assert!(report(&[]).write(folder.path()).is_err());
        let json = folder.path().join(format!("{}.json", experiment.name));
        assert!(fs::read_to_string(json).unwrap().contains("\"time\""), "the old file is intact");
    }

    #[test]
    fn committed_pages_have_the_current_words() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
        for experiment in EXPERIMENTS {
            let page = folder.join(format!("{}.md", experiment.name));
            // An experiment that needs other hardware has no page.
            let Ok(page) = fs::read_to_string(page) else { continue };
            let name = experiment.name;
            assert!(
                page.starts_with(&opening(experiment)),
                "{name}.md does not begin with the opening of its experiment"
            );
            assert!(page.contains(COLUMNS), "{name}.md has other columns");
            let results = page.split("## Results\n\n").nth(1).unwrap();
            let words = words_of(results);
            let section = page.split("## Words\n\n").nth(1).unwrap_or_default();
            let found = section.split("\n## ").next().unwrap_or_default();
            assert_eq!(found, words, "{name}.md needs these words:\n{words}");
        }
    }

    #[test]
    fn json_has_a_line_per_row() {
        let value =
            json!({"a": "b", "rows": [{"c": 1.5}, {"c": null}], "x": {"y": [1, 2]}, "z": []});
        let text = json_lines(&value);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2..5], ["\"rows\": [", "{\"c\":1.5},", "{\"c\":null}"]);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn the_json_has_the_fields_that_others_read() {
        let rival = Some(("R".to_owned(), Samples(vec![20.0])));
        let row = Row { ours: Samples(vec![10.0]), rival, ..Row::new("a", "time", "ns") };
        let options = vec!["--from".to_owned()];
        let report =
            Report { experiment: &EXPERIMENTS[0], rows: &[row], form: Form::Full, options };
        let expected = json!({
            "name": "a", "metric": "time", "unit": "ns", "value": 10.0,
            "rival": "R", "rival_value": 20.0, "ratio": 2.0, "published": null,
        });
        assert_eq!(report.json()["rows"][0], expected);
        assert!(report.command().contains(" --from .."));
        let keys: Vec<String> = report.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["command", "experiment", "machine", "rows", "source"]);
    }
}
