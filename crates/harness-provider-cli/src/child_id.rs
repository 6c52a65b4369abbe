//! The ids of children, which say where their files are and which process they are.

use std::path::Path;

use harness_subagent::AgentId;

/// Makes the id of the child `pid` of the provider `name`: `<name>/<directory of the call's files>#<pid>`.
#[must_use]
pub fn child_id(name: &str, directory: &Path, pid: u32) -> AgentId {
    AgentId::new(format!("{name}/{}#{pid}", directory.display()))
}

/// Returns the pid in the id of a child that a provider of this crate has started.
///
/// It is for people who look for the process: once the child has ended it may be another process's.
#[must_use]
pub fn pid_of(child: &AgentId) -> Option<u32> {
    child.as_str().rsplit_once('#')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_is_found_in_the_id_that_it_was_put_in_and_in_no_other() {
        assert_eq!(pid_of(&child_id("a#1", Path::new("/b#2/1-1"), 4711)), Some(4711));
        for id in ["", "a", "a/b#", "a/b#x", "a#1/b"] {
            assert_eq!(pid_of(&AgentId::new(id)), None, "{id:?}");
        }
    }
}
