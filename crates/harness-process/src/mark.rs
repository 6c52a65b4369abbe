use std::sync::atomic::{AtomicU64, Ordering};

use crate::{StartError, StartErrorKind, process_table};

/// The variable that marks a child and all that it starts as belonging to one call.
///
/// Its value is made by this crate: it names our process, the call, and a label of the caller's
/// choice, so that people can tell what a leftover process belongs to. A mark that we ourselves carry
/// stays in front, so that the runner around us still finds what we started.
#[derive(Clone, Debug)]
pub struct Mark {
    variable: String,
    label: String,
}

/// A mark of a runner inside a runner inside a runner is still far shorter than this.
const MAX_VALUE: usize = 4096;
const MAX_LABEL: usize = 256;

impl Mark {
    /// The variable's name unless the caller chooses another.
    pub const VARIABLE: &'static str = "HARNESS_MARK";

    /// Returns a mark whose label is `label`: at most 256 visible ASCII characters, no comma.
    ///
    /// What breaks that rule is refused when the call is started.
    #[must_use]
    pub fn new(label: impl Into<String>) -> Self {
        Self { variable: Self::VARIABLE.into(), label: label.into() }
    }

    /// Returns the same mark in the variable `name`.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>) -> Self {
        self.variable = name.into();
        self
    }

    pub(crate) fn variable(&self) -> &str {
        &self.variable
    }

    /// Makes the segment that only the call now starting has.
    pub(crate) fn segment(&self) -> Result<String, StartError> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let plain = self.label.len() <= MAX_LABEL
            && self.label.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !plain {
            let message = "the mark's label must be at most 256 visible ASCII characters without a comma";
            return Err(StartError::new(StartErrorKind::Invalid, message));
        }
        let Owner { namespace, pid, start } = process_table::ourselves();
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{namespace}.{pid}.{start}.{call}:{}", self.label))
    }

    /// Returns the variable's value for a child: `segment` behind the mark that we carry ourselves.
    pub(crate) fn value(&self, segment: &str) -> String {
        match std::env::var(&self.variable) {
            Ok(outer) if !outer.is_empty() && outer.len() + segment.len() < MAX_VALUE => {
                format!("{outer},{segment}")
            }
            _ => segment.to_owned(),
        }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new("")
    }
}

/// The process that started a call, told apart from any later one with the same pid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Owner {
    /// The pid namespace in which `pid` means something.
    pub(crate) namespace: u64,
    pub(crate) pid: u32,
    pub(crate) start: u64,
}

/// Returns whether the variable's value holds the segment of one call.
#[cfg(any(target_os = "linux", test))]
pub(crate) fn holds(value: &str, segment: &str) -> bool {
    value.split(',').any(|part| part == segment)
}

/// Returns the owners that the segments of `value` name, outermost first.
#[cfg(any(target_os = "linux", test))]
pub(crate) fn owners(value: &str) -> impl Iterator<Item = Owner> {
    value.split(',').filter_map(|segment| {
        let (head, _label) = segment.split_once(':')?;
        let mut numbers = head.split('.');
        let namespace = numbers.next()?.parse().ok()?;
        let pid = numbers.next()?.parse().ok()?;
        let start = numbers.next()?.parse().ok()?;
        let _call: u64 = numbers.next()?.parse().ok()?;
        numbers.next().is_none().then_some(Owner { namespace, pid, start })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_could_be_taken_for_something_else_is_refused() {
        for label in ["a,b", "a b", "a\n", "é", &"x".repeat(257)] {
            let error = Mark::new(label).segment().unwrap_err();
            assert_eq!(error.kind(), StartErrorKind::Invalid, "{label:?}");
        }
    }

    #[test]
    fn two_calls_never_share_a_segment() {
        let mark = Mark::new("run/1");
        assert_ne!(mark.segment().unwrap(), mark.segment().unwrap());
    }

    #[test]
    fn a_segment_names_its_owner() {
        let segment = Mark::new("run/1:2.3").segment().unwrap();
        assert_eq!(owners(&segment).collect::<Vec<_>>(), [process_table::ourselves()]);
        assert!(holds(&format!("1.2.3.4:,{segment}"), &segment));
        assert!(!holds(&format!("{segment}x"), &segment));
    }

    #[test]
    fn text_that_is_no_segment_names_no_owner() {
        for value in ["", "x", "1.2.3:4", "1.2.3.x:", "1.2.3.4", "1.2.3.4.5:", "-1.2.3.4:", ",,"] {
            assert_eq!(owners(value).count(), 0, "{value:?}");
        }
    }
}
