//! What the suites of all seams are made of: clauses, the checks that hold them, and the runs of a suite.
//!
//! A suite is a list of [`Check`]s over a fixture, which is how the suite gets what it tests. An implementer
//! stamps the checks as tests with the suite's macro; an example calls [`Suite::run`], which prints a line for
//! each clause.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

/// A future that a check is waited for with.
pub type CheckFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// One sentence of a contract, and who holds an implementation to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Clause {
    /// The clause's name, which is its check's name. Unique in its suite.
    pub id: &'static str,
    /// The crate that states it.
    pub seam: &'static str,
    /// The method or the type that it is stated on.
    pub method: &'static str,
    /// What it says.
    pub text: &'static str,
    /// The path of its check in this crate.
    pub check: &'static str,
    /// The name of the double that breaks it, which a test holds the suite against.
    pub double: &'static str,
}

impl Clause {
    /// Describes a clause. The macros that make the tables call it.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        id: &'static str,
        seam: &'static str,
        method: &'static str,
        text: &'static str,
        check: &'static str,
        double: &'static str,
    ) -> Self {
        Self { id, seam, method, text, check, double }
    }
}

/// A clause with the function that checks it.
pub struct Check<F: ?Sized + 'static> {
    clause: Clause,
    run: for<'a> fn(&'a F) -> CheckFuture<'a>,
}

impl<F: ?Sized> Check<F> {
    /// Joins a clause to its check. The macros that make the tables call it.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(clause: Clause, run: for<'a> fn(&'a F) -> CheckFuture<'a>) -> Self {
        Self { clause, run }
    }

    /// Returns the clause.
    #[must_use]
    pub fn clause(&self) -> &Clause {
        &self.clause
    }

    /// Checks the clause.
    ///
    /// # Panics
    ///
    /// The future panics when the clause is broken.
    #[must_use]
    pub fn run<'a>(&self, fixture: &'a F) -> CheckFuture<'a> {
        (self.run)(fixture)
    }
}

impl<F: ?Sized> fmt::Debug for Check<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("clause", &self.clause).finish_non_exhaustive()
    }
}

/// The clock that a check runs under.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "time either passes or is told to")]
pub enum Clock {
    /// Tokio's paused clock: a wait costs nothing and ends when nothing else can happen. For what runs on tokio
    /// alone.
    Paused,
    /// Time as it passes. For what has threads, processes or peers.
    Real,
}

/// All checks of one trait.
#[derive(Debug)]
pub struct Suite<F: ?Sized + 'static> {
    name: &'static str,
    checks: &'static [Check<F>],
}

impl<F: ?Sized> Suite<F> {
    /// Makes a suite. The macros that make the tables call it.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, checks: &'static [Check<F>]) -> Self {
        Self { name, checks }
    }

    /// Returns the name of the trait that the suite is about.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the checks in the order of the contract.
    #[must_use]
    pub fn checks(&self) -> &'static [Check<F>] {
        self.checks
    }

    /// Checks one clause on a fresh fixture in a runtime of its own, and returns what was found.
    ///
    /// # Panics
    ///
    /// When the suite has no such clause.
    pub fn verdict<T, N>(&self, id: &str, clock: Clock, constructor: impl FnOnce() -> N) -> Verdict
    where
        T: AsFixture<F>,
        N: Future<Output = T>,
    {
        let Some(check) = self.checks.iter().find(|check| check.clause.id == id) else {
            panic!("the suite of {} has no clause {id}", self.name);
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            runtime(clock).block_on(async {
                let fixture = constructor().await;
                check.run(fixture.as_fixture()).await;
            });
        }));
        match outcome {
            Ok(()) => Verdict::Held,
            Err(panic) => Verdict::Broken { message: message_of(&*panic) },
        }
    }

    /// Checks one clause as a test does: it fails when the clause is broken, and also when the clause holds though
    /// `known_failures` lists it.
    ///
    /// # Panics
    ///
    /// When the test fails.
    pub fn test<T, N>(&self, id: &str, known_failures: &[&str], clock: Clock, constructor: impl FnOnce() -> N)
    where
        T: AsFixture<F>,
        N: Future<Output = T>,
    {
        match (self.verdict(id, clock, constructor), known_failures.contains(&id)) {
            (Verdict::Held, false) | (Verdict::Broken { .. }, true) => {}
            (Verdict::Held, true) => {
                panic!("{id} is listed as a known failure, and holds; take it off the list")
            }
            (Verdict::Broken { message }, false) => panic!("{id}: {message}"),
        }
    }

    /// Checks that a list of known failures names clauses of this suite alone.
    ///
    /// # Panics
    ///
    /// When it names anything else.
    pub fn test_known_failures(&self, known_failures: &[&str]) {
        let ids: BTreeSet<&str> = self.checks.iter().map(|check| check.clause.id).collect();
        for known in known_failures {
            assert!(ids.contains(known), "the suite of {} has no clause {known}", self.name);
        }
    }

    /// Checks all clauses, each on a fresh fixture, prints a line for each to standard output, and says whether
    /// all held.
    pub fn run<T, N>(&self, clock: Clock, constructor: impl Fn() -> N) -> bool
    where
        T: AsFixture<F>,
        N: Future<Output = T>,
    {
        let mut broken = 0_usize;
        let mut out = std::io::stdout().lock();
        for check in self.checks {
            let id = check.clause.id;
            // Nobody reads the lines when standard output is closed; the answer still counts.
            let _ = match self.verdict(id, clock, &constructor) {
                Verdict::Held => writeln!(out, "ok      {id}"),
                Verdict::Broken { message } => {
                    broken += 1;
                    writeln!(out, "BROKEN  {id}: {}", message.lines().collect::<Vec<_>>().join(" | "))
                }
            };
        }
        let total = self.checks.len();
        let _ = writeln!(out, "{}: {} of {total} clauses hold", self.name, total - broken);
        broken == 0
    }
}

/// What a check found.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a clause either holds or does not")]
pub enum Verdict {
    /// The clause holds.
    Held,
    /// The clause is broken.
    Broken {
        /// How it showed.
        message: String,
    },
}

/// Lends a fixture to a suite. Each suite implements it for everything that implements its fixture trait.
pub trait AsFixture<F: ?Sized> {
    /// Lends the fixture.
    fn as_fixture(&self) -> &F;
}

fn runtime(clock: Clock) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if clock == Clock::Paused {
        builder.start_paused(true);
    }
    builder.build().expect("a runtime on the current thread needs nothing but memory and file descriptors")
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the check panicked without a message".to_owned())
}

/// Makes the table of a suite from its list of clauses.
///
/// The list is a macro that calls the macro it is given with the clauses, so that the table and the stamped tests
/// have one source:
///
/// ```text
/// name_of_check on "Trait::method" breaks "Double": "What the clause says.";
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __clause_table {
    (
        [$(#[$doc:meta])* $suite:ident, $name:literal, $seam:literal, $module:ident, $path:literal, $fixture:ty]
        $($check:ident on $method:literal breaks $double:literal: $text:literal;)*
    ) => {
        $(#[$doc])*
        pub static $suite: $crate::conformance::Suite<$fixture> = $crate::conformance::Suite::new($name, &[
            $($crate::conformance::Check::new(
                $crate::conformance::Clause::new(
                    stringify!($check), $seam, $method, $text, concat!($path, "::", stringify!($check)), $double,
                ),
                |fixture| Box::pin($module::$check(fixture)),
            )),*
        ]);
    };
}

/// Stamps each clause of a list as a test.
#[doc(hidden)]
#[macro_export]
macro_rules! __clause_tests {
    (
        [$suite:path, $constructor:path, $clock:ident, [$($known:ident),*]]
        $($check:ident on $method:literal breaks $double:literal: $text:literal;)*
    ) => {
        const KNOWN_FAILURES: &[&str] = &[$(stringify!($known)),*];

        #[test]
        fn known_failures_are_clauses() {
            $suite.test_known_failures(KNOWN_FAILURES);
        }

        $(
            #[doc = $text]
            #[test]
            fn $check() {
                $suite.test(
                    stringify!($check), KNOWN_FAILURES, $crate::conformance::Clock::$clock, $constructor,
                );
            }
        )*
    };
}
