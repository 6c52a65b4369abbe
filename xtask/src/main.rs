//! Every check and chore of the workspace, as `cargo xtask …`.
//!
//! A command is one module with one `run` function. It depends on no crate of the workspace: what
//! belongs to a crate is an example, a test or a bench of that crate, built and run from here.

mod apart;
mod api;
mod args;
mod bench;
mod captures;
mod cargo;
mod ci;
mod deny;
mod doc;
mod fmt;
mod lint;
mod npm;
mod outcome;
mod package;
mod policy;
mod programs;
mod test;
mod tidy;
mod vectors;
mod workspace;

use std::{env, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::{args::Args, outcome::Outcome, workspace::Workspace};

/// One command of the table below.
struct Command {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(Args, &Workspace) -> Result<Outcome>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        usage: "",
        about: "Everything that must pass, in order, with the minutes of each step",
        run: ci::run,
    },
    Command { name: "fmt", usage: "[--fix]", about: "Check the formatting, or apply it", run: fmt::run },
    Command {
        name: "tidy",
        usage: "[--write]",
        about: "Check the invariants of the architecture and the tree; --write renews generated files",
        run: tidy::run,
    },
    Command {
        name: "lint",
        usage: "[CRATE…]",
        about: "Clippy on all targets, with every crate's own features; a warning fails",
        run: lint::run,
    },
    Command {
        name: "doc",
        usage: "[CRATE…]",
        about: "Build the documentation; a warning fails",
        run: doc::run,
    },
    Command {
        name: "api",
        usage: "[--write]",
        about: "Compare each seam's public API with its committed listing, or write the listing",
        run: api::run,
    },
    Command {
        name: "package",
        usage: "[--verify]",
        about: "Package every crate and build each seam alone; --verify builds every crate from its package",
        run: package::run,
    },
    Command {
        name: "deny",
        usage: "",
        about: "Licences, advisories and sources of the dependencies (needs cargo-deny)",
        run: deny::run,
    },
    Command {
        name: "test",
        usage: "[CRATE…]",
        about: "All tests and doctests; with nextest where it is installed",
        run: test::run,
    },
    Command {
        name: "apart",
        usage: "",
        about: "Lint, documentation and tests of the crates that the other steps leave out for their weight",
        run: apart::run,
    },
    Command {
        name: "vectors",
        usage: "DIR",
        about: "Run a folder of test vectors through every crate that has a runner for some kind",
        run: vectors::run,
    },
    Command {
        name: "bench",
        usage: "[NAME]",
        about: "Measure against the anchors; a table, and target/bench/summary.json",
        run: bench::run,
    },
    Command {
        name: "captures",
        usage: "[--write]",
        about: "Run the command line on a terminal and compare what is seen with docs/captures, or write it anew",
        run: captures::run,
    },
    Command {
        name: "e2e",
        usage: "NAME|--list [ARGS…]",
        about: "Run against real programs; what is missing is installed pinned, outside the clone",
        run: programs::e2e,
    },
    Command {
        name: "soak",
        usage: "NAME|--list [ARGS…]",
        about: "Repetitions that take too long for every change",
        run: programs::soak,
    },
];

fn main() -> ExitCode {
    if let Some(code) = api::rustdoc_in_disguise() {
        return code;
    }
    match dispatch(env::args().skip(1).collect()) {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Skipped(why)) => {
            println!("skipped: {why}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(mut words: Vec<String>) -> Result<Outcome> {
    if words.is_empty() || matches!(words[0].as_str(), "help" | "-h" | "--help") {
        print!("{}", help());
        return Ok(Outcome::Passed);
    }
    let name = words.remove(0);
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        bail!("unknown command `{name}`\n\n{}", help());
    };
    let ours = words.iter().take_while(|word| *word != "--");
    if ours.clone().any(|word| word == "-h" || word == "--help") {
        println!("cargo xtask {} {}\n\n{}.", command.name, command.usage, command.about);
        return Ok(Outcome::Passed);
    }
    let workspace = Workspace::load()?;
    (command.run)(Args::new(words), &workspace).with_context(|| name)
}

fn help() -> String {
    let mut text = String::from("Every check and chore of the workspace.\n\nUsage: cargo xtask COMMAND\n\n");
    let call = |command: &Command| format!("{} {}", command.name, command.usage);
    let width = COMMANDS.iter().map(|command| call(command).chars().count()).max().unwrap_or(0);
    for command in COMMANDS {
        text.push_str(&format!("  {:width$}  {}\n", call(command), command.about));
    }
    text.push_str("\nA check that this machine does not allow is skipped with one line that says so.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_refused_with_the_list() {
        let error = dispatch(vec!["tset".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`tset`") && error.contains("\n  test "), "{error}");
    }

    #[test]
    fn help_has_one_line_per_command() {
        let help = help();
        for command in COMMANDS {
            assert_eq!(help.matches(&format!("\n  {} ", command.name)).count(), 1, "{}", command.name);
        }
    }
}
