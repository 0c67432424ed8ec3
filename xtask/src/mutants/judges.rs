//! The tests that judge mutants: how long each takes, which mutants it reaches, and how it fares.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::tree::Program;
use crate::shell::{Failure, output};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This test fails.
    Found(String),
    /// This test does not end.
    Endless(String),
    /// All tests that reach it pass.
    Survived,
    /// No test reaches it.
    Unreached,
    /// It does not type-check.
    Unbuildable,
}

/// One test by name.
struct Judge {
    program: usize,
    name: String,
    length: Duration,
    /// How many mutants it has found.
    found: AtomicU32,
}

/// All tests, and which of them reach a mutant.
pub(super) struct Judges {
    programs: Vec<Program>,
    effort: Effort,
    judges: Vec<Judge>,
    reach: BTreeMap<usize, Vec<usize>>,
}

/// How long a test took, and the mutants that it reached.
type Run = (Duration, BTreeSet<usize>);

/// How many random cases properties are tried with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effort {
    /// As many as always.
    #[default]
    Whole,
    /// A part of them, and no test that takes long: what survives is to be tried again.
    Quick,
}

impl Judges {
    /// Runs each test once, with all mutants asleep.
    pub(super) fn new(
        programs: Vec<Program>,
        effort: Effort,
        trace: &Path,
        jobs: usize,
        tell: impl Fn(usize, usize) + Sync,
    ) -> Result<Self, Failure> {
        let mut tests = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let list = output(
                command(program, LENGTH_MAX)
                    .args(["--list", "--format", "terse"])
                    .stdout(Stdio::piped()),
            )?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(names.map(|name| (index, name.to_owned())));
        }
        let mut this = Self { programs, effort, judges: Vec::new(), reach: BTreeMap::new() };
        let (count, done) = (tests.len(), AtomicUsize::new(0));
        let runs = in_parallel(jobs, &tests, |worker, (program, name)| {
            tell(done.fetch_add(1, Ordering::Relaxed), count);
            this.run_asleep(*program, name, &trace.with_extension(format!("trace{worker}")))
        });
        for ((program, name), run) in tests.into_iter().zip(runs) {
            let Some((length, reached)) = run? else { continue };
            let judge = this.judges.len();
            this.judges.push(Judge { program, name, length, found: AtomicU32::new(0) });
            reached.into_iter().for_each(|id| this.reach.entry(id).or_default().push(judge));
        }
        if this.judges.is_empty() {
            return Err(Failure::new("there is no test that could notice anything"));
        }
        Ok(this)
    }

    /// How long a test takes with all mutants asleep, and which it reaches; `None` if it is no judge.
    fn run_asleep(&self, program: usize, name: &str, trace: &Path) -> Result<Option<Run>, Failure> {
        let _ = fs::remove_file(trace);
        let mut run = self.command(program, name, LENGTH_MAX);
        let start = Instant::now();
        let ended = wait(run.env("SHUNT_MUTANT_TRACE", trace).spawn()?, LENGTH_MAX)?;
        if ended != Some(true) {
            let why = if ended.is_none() { "takes too long" } else { "fails by itself" };
            println!("{name} {why}: it is no judge");
            return Ok(None);
        }
        let reached = fs::read_to_string(trace).unwrap_or_default();
        let reached = reached.lines().filter_map(|id| id.parse().ok()).collect();
        Ok(Some((start.elapsed(), reached)))
    }

    /// Wakes a mutant, and asks the tests that reach it until one notices: first those that are
    /// quick or have noticed much.
    pub(super) fn judge(&self, mutant: usize) -> Result<Verdict, Failure> {
        let Some(mut order) = self.reach.get(&mutant).cloned() else {
            return Ok(Verdict::Unreached);
        };
        if self.effort == Effort::Quick {
            order.retain(|judge| self.judges[*judge].length < QUICK_MAX);
        }
        order.sort_by_key(|judge| {
            let judge = &self.judges[*judge];
            (judge.length + START) / (1 + judge.found.load(Ordering::Relaxed))
        });
        for index in order {
            let judge = &self.judges[index];
            let limit = judge.length * SLOWER + SLACK;
            let mut run = self.command(judge.program, &judge.name, limit);
            let ended = wait(run.env("SHUNT_MUTANT", mutant.to_string()).spawn()?, limit)?;
            let name = judge.name.clone();
            match ended {
                Some(true) => {}
                Some(false) => {
                    judge.found.fetch_add(1, Ordering::Relaxed);
                    return Ok(Verdict::Found(name));
                }
                None => return Ok(Verdict::Endless(name)),
            }
        }
        Ok(Verdict::Survived)
    }

    fn command(&self, program: usize, name: &str, limit: Duration) -> Command {
        let mut command = command(&self.programs[program], limit);
        command.args(["--exact", name, "--test-threads", "1"]);
        if self.effort == Effort::Quick {
            command.env("SHUNT_CASES_DIVISOR", QUICK_DIVISOR);
        }
        command
    }
}

/// What becomes of each item, in their order; `work` is told which of the workers does it.
pub(super) fn in_parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(usize, &I) -> T + Sync,
) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, results, work) = (&next, &results, &work);
            scope.spawn(move || {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(worker, item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(index, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_values().collect()
}

/// A test program with bounded memory that leaves the machine to others; random cases are the same in each run, and do not shrink.
fn command(program: &Program, limit: Duration) -> Command {
    let seconds = limit.as_secs().max(1);
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -v {MEMORY_KIB}; ulimit -t {seconds}; exec nice -n 10 \"$0\" \"$@\""),
        ])
        .arg(&program.path)
        .current_dir(&program.folder)
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("PROPTEST_RNG_SEED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Whether a program succeeds; `None` if it does not end within its share of a processor, or in ten
/// times that while others have theirs.
fn wait(mut child: Child, limit: Duration) -> Result<Option<bool>, Failure> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let is_stopped = status.signal().is_some_and(|signal| STOPS.contains(&signal));
            return Ok((!is_stopped).then(|| status.success()));
        }
        if start.elapsed() > limit * 10 {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep((start.elapsed() / 20).clamp(POLL_MIN, POLL_MAX));
    }
}

/// What a test is given at most, with all mutants asleep.
const LENGTH_MAX: Duration = Duration::from_secs(20);
/// How much slower than asleep a test may be with a mutant, and how much longer besides.
const SLOWER: u32 = 10;
const SLACK: Duration = Duration::from_secs(3);
/// Signals of a program that has had its share: `SIGXCPU`, and `SIGKILL` where that is ignored.
const STOPS: [i32; 2] = [24, 9];
/// What it costs to start a program.
const START: Duration = Duration::from_millis(5);
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(50);
/// What is not tried in a hurry.
const QUICK_MAX: Duration = Duration::from_secs(1);
/// One case of so many.
const QUICK_DIVISOR: &str = "30";
const MEMORY_KIB: u32 = 4 << 20;
