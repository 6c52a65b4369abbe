//! `e2e` and `soak`: programs of the crates, run by name.

use anyhow::{Result, bail};

use crate::{
    args::Args,
    cargo, npm,
    outcome::Outcome,
    policy::{self, Program},
    workspace::Workspace,
};

pub(crate) fn e2e(args: Args, workspace: &Workspace) -> Result<Outcome> {
    run(args, workspace, policy::E2E)
}

pub(crate) fn soak(args: Args, workspace: &Workspace) -> Result<Outcome> {
    run(args, workspace, policy::SOAK)
}

fn run(mut args: Args, workspace: &Workspace, programs: &[Program]) -> Result<Outcome> {
    if args.flag("--list") {
        args.finish()?;
        for program in programs {
            println!("{}", program.name);
        }
        return Ok(Outcome::Passed);
    }
    let program = find(programs, args.name().as_deref())?;
    let mut command = cargo::cargo(&workspace.root, program.cargo);
    for (name, value) in program.environment {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    match npm::install(&workspace.root, program.npm)? {
        npm::Outcome::Installed(installed) => command.envs(installed.variables),
        npm::Outcome::Impossible(why) => return Ok(Outcome::Skipped(why)),
    };
    cargo::run(command.args(args.rest()))?;
    Ok(Outcome::Passed)
}

fn find<'a>(programs: &'a [Program], name: Option<&str>) -> Result<&'a Program> {
    if let Some(program) = programs.iter().find(|program| Some(program.name) == name) {
        return Ok(program);
    }
    let list = match programs {
        [] => "there are none yet".to_owned(),
        _ => programs
            .iter()
            .map(|program| format!("{}: {}", program.name, program.about))
            .collect::<Vec<_>>()
            .join("\n  "),
    };
    match name {
        Some(name) => bail!("nothing is called `{name}`; choose from:\n  {list}"),
        None => bail!("which one? Choose from:\n  {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAMS: &[Program] = &[
        Program { name: "crash", about: "kill it", cargo: &["run"], npm: &[], environment: &[] },
        Program { name: "hostile", about: "bad children", cargo: &["run"], npm: &[], environment: &[] },
    ];

    #[test]
    fn unknown_names_are_refused_with_the_list() {
        let error = find(PROGRAMS, Some("crush")).unwrap_err().to_string();
        assert!(error.contains("`crush`"), "{error}");
        assert!(error.contains("crash: kill it") && error.contains("hostile: bad children"), "{error}");
    }

    #[test]
    fn a_missing_name_is_asked_for() {
        let error = find(PROGRAMS, None).unwrap_err().to_string();
        assert!(error.contains("crash"), "{error}");
    }

    #[test]
    fn an_empty_table_says_so() {
        let error = find(&[], Some("agents")).unwrap_err().to_string();
        assert!(error.contains("none yet"), "{error}");
    }

    #[test]
    fn a_known_name_is_found() {
        assert_eq!(find(PROGRAMS, Some("hostile")).unwrap().about, "bad children");
    }
}
