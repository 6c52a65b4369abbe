//! The arguments of one command, taken apart by hand: flags, then names, then nothing.

use anyhow::{Result, bail};

/// What followed the command's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    words: Vec<String>,
    /// What stood after a lone `--`; it belongs to the program that the command starts.
    passed_on: Vec<String>,
}

impl Args {
    /// Splits `words` at the first `--`.
    pub(crate) fn new(words: impl IntoIterator<Item = String>) -> Self {
        let mut words: Vec<String> = words.into_iter().collect();
        let passed_on = match words.iter().position(|word| word == "--") {
            Some(at) => words.split_off(at).split_off(1),
            None => Vec::new(),
        };
        Self { words, passed_on }
    }

    /// Takes the flag `name` out; true if it was there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes the next word that is no flag.
    pub(crate) fn name(&mut self) -> Option<String> {
        let at = self.words.iter().position(|word| !word.starts_with('-'))?;
        Some(self.words.remove(at))
    }

    /// Takes all words that are no flags.
    pub(crate) fn names(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.name()).collect()
    }

    /// Takes everything that is left, in order, for another program.
    pub(crate) fn rest(self) -> Vec<String> {
        self.words.into_iter().chain(self.passed_on).collect()
    }

    /// Refuses whatever nobody has taken.
    pub(crate) fn finish(self) -> Result<()> {
        match self.rest().first() {
            Some(word) => bail!("unexpected argument `{word}`; see `cargo xtask --help`"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_nobody_takes_is_refused() {
        let mut args = args("--write surplus");
        assert!(args.flag("--write"));
        let error = args.finish().unwrap_err().to_string();
        assert!(error.contains("`surplus`"), "{error}");
    }

    #[test]
    fn a_flag_after_the_dashes_is_not_ours() {
        let mut args = args("agents -- --record");
        assert!(!args.flag("--record"));
        assert_eq!(args.name().as_deref(), Some("agents"));
        assert_eq!(args.rest(), ["--record"]);
    }

    #[test]
    fn names_skip_flags() {
        let mut args = args("one --fix two");
        assert_eq!(args.names(), ["one", "two"]);
        assert!(args.flag("--fix"));
        args.finish().unwrap();
    }
}
