//! Children that misuse their streams.

use harness_subagent::StopReason;

use super::case::Case;

pub(crate) fn cases() -> Vec<Case> {
    let does = |name, script: &str| Case::new(name, format!("{script}\nhand_in"), &StopReason::COMPLETED);
    let long = || "0123456789abcde\n".repeat(12_500);
    vec![
        does("floods its output", "head -c 300000000 /dev/zero"),
        does("floods the other stream", "head -c 100000000 /dev/zero >&2"),
        does(
            "floods both streams at once",
            "head -c 60000000 /dev/zero & head -c 60000000 /dev/zero >&2; wait",
        ),
        does("says a line of megabytes", "head -c 8000000 /dev/zero | tr '\\0' x"),
        does("says a hundred thousand empty lines", "yes '' | head -n 100000"),
        does("says every byte by itself", "dd if=/dev/zero bs=1 count=100000 status=none"),
        does("says bytes that are no text", "head -c 200000 /dev/urandom"),
        does("says half a character", "printf '\\346\\274'"),
        does("clears the screen and sets the title", "printf '\\033[2J\\033]0;owned\\007\\033[?1049h\\rred'"),
        does("closes its output first", "exec >&- 2>&-"),
        does("closes its input first", "exec <&-").with_prompt(long),
        does("never reads its prompt", "sleep 0.2").with_prompt(long),
        does("reads one byte of its prompt", "head -c 1 > /dev/null").with_prompt(long),
        does("gives a long prompt back while it reads it", "cat").with_prompt(long),
        does("reads its prompt in small pieces", "dd of=got bs=16 count=4096 status=none; cat > /dev/null")
            .with_prompt(long),
        does("leaves its prompt to one that stays behind", "(sleep 600; cat) <&0 &").with_prompt(long),
        does("has its output open for reading", "cat < /dev/stdout & sleep 0.1"),
        Case::new(
            "reads a prompt of ten megabytes and says nothing of it",
            "cat > /dev/null",
            &StopReason::NO_VALUE,
        )
        .with_prompt(|| "x".repeat(10_000_000)),
        Case::new("floods and fails", "head -c 50000000 /dev/zero; exit 9", &StopReason::ERROR)
            .with_detail("exit-status", "9"),
        Case::new("floods and crashes", "head -c 50000000 /dev/zero; kill -KILL $$", &StopReason::CRASHED)
            .with_detail("signal", "9"),
    ]
}
