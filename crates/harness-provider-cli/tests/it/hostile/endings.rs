//! Children that end by themselves, and not as they should.

use harness_subagent::StopReason;

use super::case::Case;

pub(crate) fn cases() -> Vec<Case> {
    let no_value = StopReason::NO_VALUE;
    let error = StopReason::ERROR;
    let crashed = StopReason::CRASHED;
    vec![
        Case::new("says and does nothing", "exit 0", &no_value),
        Case::new("greets politely and leaves", "echo 'Hello! What would you like me to do?'", &no_value),
        Case::new(
            "asks a question that nobody can answer",
            "printf 'Overwrite? [y/N] '; read answer; exit 0",
            &no_value,
        ),
        Case::new("gives its prompt back", "cat", &no_value)
            .with_prompt(|| r#"Say {"a":1} when done."#.to_owned()),
        Case::new("says that it is complete and nothing else", "echo complete", &no_value),
        Case::new("says its value instead of handing it in", r#"echo '{"a":1}'"#, &no_value),
        Case::new("quotes the format of a value", r#"printf '```json\n{"a":1}\n```\n'"#, &no_value),
        Case::new("says that it waits for the background", "sleep 600 & echo 'waiting for tests'", &no_value),
        Case::new("fails at once", "exit 1", &error).with_detail("exit-status", "1"),
        Case::new("fails with the highest status", "exit 255", &error).with_detail("exit-status", "255"),
        Case::new("fails with words of a limit", "echo 'limit reached, resets 7pm'; exit 1", &error)
            .with_detail("exit-status", "1"),
        Case::new("fails after handing in", "hand_in; exit 3", &error).with_detail("exit-status", "3"),
        Case::new("passes the death of its own child on", "sh -c 'kill -9 $$'; exit $?", &error)
            .with_detail("exit-status", "137"),
        Case::new("starts a program that is not there", "no-such-program-anywhere", &error)
            .with_detail("exit-status", "127"),
        Case::new("needs the terminal", "stty sane < /dev/tty", &error),
        Case::new("dies of a bad access", "kill -SEGV $$", &crashed).with_detail("signal", "11"),
        Case::new("aborts", "kill -ABRT $$", &crashed).with_detail("signal", "6"),
        Case::new("kills itself", "kill -KILL $$", &crashed).with_detail("signal", "9"),
        Case::new("terminates itself after handing in", "hand_in; kill -TERM $$", &crashed)
            .with_detail("signal", "15"),
        Case::new("kills its whole process group", "sleep 600 & kill -KILL 0", &crashed)
            .with_detail("signal", "9"),
        Case::new(
            "exceeds its own file size limit",
            "ulimit -f 1; exec head -c 100000 /dev/zero > big",
            &crashed,
        )
        .with_detail("signal", "25"),
        Case::new("runs out of descriptors", "ulimit -n 3; echo > file", &error),
        Case::new(
            "speaks of rate limits and does well",
            "hand_in; echo '429 rate limit exceeded' >&2",
            &StopReason::COMPLETED,
        ),
        Case::new(
            "tells its parent that a child has died",
            "kill -CHLD $PPID; hand_in",
            &StopReason::COMPLETED,
        ),
        Case::new(
            "tells its parent to look at the window",
            "kill -WINCH $PPID; kill -URG $PPID; hand_in",
            &StopReason::COMPLETED,
        ),
        Case::refused("is not there", "no-such-program-anywhere"),
        Case::refused("is a directory", "/"),
        Case::refused("may not be run", "/etc/passwd"),
        Case::refused("has an empty name", ""),
        Case::refused_file("is no program", "\u{0}\u{1}\u{2}neither"),
        Case::refused_file("is run by a program that is not there", "#!/no/such/interpreter\n"),
    ]
}
