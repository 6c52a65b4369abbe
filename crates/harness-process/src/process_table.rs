//! What the kernel says about processes. Every answer may be stale by the time it is used, so whoever
//! acts on one checks the start time again.

use crate::mark::Owner;

/// One line of the process table.
#[cfg(any(target_os = "linux", test))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// Clock ticks from the system's start to the process's start. With the pid, it names one process.
    pub(crate) start: u64,
    /// Has ended and waits for its parent to take note.
    pub(crate) zombie: bool,
}

#[cfg(any(target_os = "linux", test))]
impl Stat {
    /// Parses `/proc/<pid>/stat`, whose second field is a name that may hold spaces and brackets.
    fn parse(pid: u32, text: &[u8]) -> Option<Self> {
        let name_end = text.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        // A process without a session is shown with -1 by some kernels while it ends.
        let session = fields.next()?.parse().unwrap_or(0);
        let threads: u32 = fields.nth(13)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        // A process whose first thread has ended is shown like a dead one while the others go on.
        let zombie = matches!(state, "Z" | "X" | "x") && threads <= 1;
        Some(Self { pid, parent, group, session, start, zombie })
    }
}

/// Returns who we are, in a form that survives in a child's environment.
pub(crate) fn ourselves() -> Owner {
    static OURSELVES: std::sync::OnceLock<(u32, Owner)> = std::sync::OnceLock::new();
    let pid = std::process::id();
    let (made_by, owner) = *OURSELVES.get_or_init(|| (pid, owner_of(pid)));
    // A forked copy of this process has the table of the original, and another pid.
    if made_by == pid { owner } else { owner_of(pid) }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::BTreeMap,
        fs,
        io::{self, Read},
        os::unix::{ffi::OsStrExt, fs::MetadataExt},
        time::Duration,
    };

    use super::{Owner, Stat};

    pub(super) fn owner_of(pid: u32) -> Owner {
        Owner { namespace: pid_namespace(), pid, start: stat(pid).map_or(0, |stat| stat.start) }
    }

    fn pid_namespace() -> u64 {
        let read = || {
            let link = fs::read_link("/proc/self/ns/pid").ok()?;
            link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
        };
        read().unwrap_or(0)
    }

    /// Returns a start time that no process started at `uptime` or later goes below.
    pub(crate) fn ticks(uptime: Duration) -> u64 {
        let each_second = rustix::param::clock_ticks_per_second();
        let of_the_last = u64::from(uptime.subsec_nanos()) * each_second / 1_000_000_000;
        uptime.as_secs().saturating_mul(each_second).saturating_add(of_the_last).saturating_sub(1)
    }

    /// Returns the process `pid`, or nothing when there is none or it is hidden from us.
    pub(crate) fn stat(pid: u32) -> Option<Stat> {
        let mut text = [0; 1024];
        let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
        let length = file.read(&mut text).ok()?;
        Stat::parse(pid, &text[..length])
    }

    /// What a process's environment says about a marking variable.
    #[derive(Clone, Debug, Eq, PartialEq)]
    pub(crate) enum Marking {
        /// The variable is there.
        Marked(String),
        /// There is an environment without the variable, or one that we may not read.
        Unmarked,
        /// There is no environment: a zombie, a process started without one, or one that is ending or whose
        /// program is being replaced at this moment.
        Empty,
    }

    pub(crate) fn marking(pid: u32, variable: &str) -> Marking {
        let environment = match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) if environment.is_empty() => return Marking::Empty,
            Ok(environment) => environment,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Marking::Unmarked,
            // It has let go of its memory.
            Err(_) => return Marking::Empty,
        };
        let mut values = environment.split(|&byte| byte == 0).filter_map(|entry| {
            let value = entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(value).ok()
        });
        values.next().map_or(Marking::Unmarked, |value| Marking::Marked(value.to_owned()))
    }

    /// Returns the pids of our own children, adopted ones and zombies among them.
    pub(crate) fn own_children() -> io::Result<Vec<u32>> {
        let children = if is_only_thread()? {
            let mut found = Vec::new();
            // Absent from a kernel without such lists, which is found out below.
            if let Ok(file) = fs::File::open("/proc/thread-self/children") {
                read_pids(file, &mut found);
            }
            found
        } else {
            children_of("self")?
        };
        if !children.is_empty() || fs::exists("/proc/thread-self/children")? {
            return Ok(children);
        }
        // A kernel built without the lists of children. Ask every process for its parent instead.
        let us = std::process::id();
        Ok(all().filter_map(stat).filter(|stat| stat.parent == us).map(|stat| stat.pid).collect())
    }

    /// Returns the pids of the children of the process `pid`.
    pub(crate) fn children(pid: u32) -> Vec<u32> {
        children_of(&pid.to_string()).unwrap_or_default()
    }

    fn children_of(process: &str) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            // A thread may end while we read; its children move to another one, which may have been
            // read already. Whoever needs certainty reads until nothing is found.
            let Ok(file) = fs::File::open(thread?.path().join("children")) else { continue };
            read_pids(file, &mut found);
        }
        Ok(found)
    }

    /// Returns whether we have one thread, which then nobody else can change. The folder of the threads has a link for
    /// each beside its own two, so that they need not be listed.
    fn is_only_thread() -> io::Result<bool> {
        Ok(fs::metadata("/proc/self/task")?.nlink() == 3)
    }

    fn read_pids(mut file: fs::File, found: &mut Vec<u32>) {
        let mut text = [0; 4096];
        let mut length = 0;
        // The list comes in pieces of whole lines or less. What is left of a number is kept.
        while let Ok(count @ 1..) = file.read(&mut text[length..]) {
            length += count;
            let end = text[..length].iter().rposition(|&byte| byte == b' ').map_or(0, |space| space + 1);
            found.extend(text[..end].split(|&byte| byte == b' ').filter_map(number));
            text.copy_within(end..length, 0);
            length -= end;
        }
        found.extend(number(&text[..length]));
    }

    /// Returns every pid that we can see.
    pub(crate) fn all() -> impl Iterator<Item = u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        entries.filter_map(|entry| number(entry.ok()?.file_name().as_bytes()))
    }

    fn number(text: &[u8]) -> Option<u32> {
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Returns `roots` and every process below them in `table`.
    pub(crate) fn with_descendants(roots: Vec<Stat>, table: &[Stat]) -> Vec<Stat> {
        let mut by_parent: BTreeMap<u32, Vec<Stat>> = BTreeMap::new();
        for stat in table {
            by_parent.entry(stat.parent).or_default().push(*stat);
        }
        let mut found = Vec::new();
        let mut open = roots;
        while let Some(stat) = open.pop() {
            if !found.contains(&stat) {
                open.extend(by_parent.get(&stat.pid).into_iter().flatten());
                found.push(stat);
            }
        }
        found
    }
}

#[cfg(target_os = "macos")]
fn owner_of(pid: u32) -> Owner {
    Owner { namespace: 0, pid, start: 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let text = b"7 (a) Z (b 1) S 3 4 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 99 1000";
        let expected = Stat { pid: 7, parent: 3, group: 4, session: 5, start: 99, zombie: false };
        assert_eq!(Stat::parse(7, text), Some(expected));
    }

    #[test]
    fn a_process_is_dead_when_its_last_thread_is() {
        for (state, threads, zombie) in [("Z", 1, true), ("X", 0, true), ("Z", 2, false), ("S", 1, false)] {
            let text = format!("7 (a) {state} 3 4 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 {threads} 0 99 0");
            assert_eq!(Stat::parse(7, text.as_bytes()).unwrap().zombie, zombie, "{text}");
        }
    }

    #[test]
    fn a_cut_line_is_no_process() {
        for text in ["", "7 (a", "7 (a) S 3 4", "7 (a) S x 4 5 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 99"] {
            assert_eq!(Stat::parse(7, text.as_bytes()), None, "{text:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn our_own_entry_is_read() {
        let stat = stat(std::process::id()).unwrap();
        assert!(!stat.zombie && stat.start > 0);
        assert_eq!(ourselves().start, stat.start);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_mark_is_read_from_the_environment_and_nothing_else() {
        let marking_of = |environment: &[(&str, &str)]| {
            let mut command = std::process::Command::new("/bin/sleep");
            let mut child = command.arg("60").env_clear().envs(environment.iter().copied()).spawn().unwrap();
            let mut found = marking(child.id(), "MARK");
            for _ in 0..1000 {
                if environment.is_empty() || found != Marking::Empty {
                    break;
                }
                // It was looked at before the program had its environment.
                std::thread::sleep(Duration::from_millis(1));
                found = marking(child.id(), "MARK");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            found
        };
        assert_eq!(marking_of(&[]), Marking::Empty);
        assert_eq!(marking_of(&[("XMARK", "a"), ("MARKX", "b"), ("X", "MARK=c")]), Marking::Unmarked);
        assert_eq!(marking_of(&[("A", "1"), ("MARK", "x=y"), ("Z", "2")]), Marking::Marked("x=y".into()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_is_found_below_us() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        assert!(own_children().unwrap().contains(&child.id()));
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(all().any(|pid| pid == child.id()));
        let us = stat(std::process::id()).unwrap();
        let table: Vec<_> = all().filter_map(stat).collect();
        assert!(with_descendants(vec![us], &table).iter().any(|stat| stat.pid == child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!own_children().unwrap().contains(&child.id()));
    }
}
