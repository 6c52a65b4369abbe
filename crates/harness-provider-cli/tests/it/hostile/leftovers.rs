//! Children that leave others behind.

use harness_subagent::StopReason;

use super::case::Case;

/// Starts a process that survives the loss of everything: its parent, its session, its place, its streams.
const DAEMON: &str = "(cd / && exec setsid sh -c 'while :; do sleep 600; done' \"$HARNESS_TEST_TOKEN\" < /dev/null > /dev/null 2>&1 &)";

pub(crate) fn cases() -> Vec<Case> {
    let leaves = |name, script: &str| Case::new(name, format!("{script}\nhand_in"), &StopReason::COMPLETED);
    vec![
        leaves("leaves one that holds its output", "sleep 600 &"),
        leaves("leaves one that holds nothing", "sleep 600 < /dev/null > /dev/null 2>&1 &"),
        leaves("leaves one that ignores hanging up", "nohup sleep 600 > /dev/null 2>&1 &"),
        leaves(
            "leaves one that ignores every request",
            "(trap '' HUP INT TERM; while :; do sleep 600; done) &",
        ),
        leaves("leaves one in another session", "setsid sleep 600 &"),
        leaves("leaves a daemon", DAEMON),
        leaves("leaves a daemon of a daemon", "setsid sh -c 'setsid setsid sleep 600 & setsid sleep 600' &"),
        leaves("leaves one that stopped itself", "setsid sh -c 'kill -STOP $$' &"),
        leaves("leaves one that works hard", "setsid sh -c 'while :; do :; done' &"),
        leaves("leaves one that floods its output", "yes &"),
        leaves("leaves one in another session that floods its output", "setsid yes &"),
        leaves(
            "leaves one that writes to the workspace for ever",
            "setsid sh -c 'while :; do date >> log; sleep 0.01; done' &",
        ),
        leaves("leaves half a hundred", "for i in $(seq 50); do sleep 600 & done"),
        leaves(
            "leaves a long line of generations",
            "setsid sh -c 'f() { if [ $1 -gt 0 ]; then f $(($1 - 1)) & wait; else sleep 600; fi; }; f 25' &",
        ),
        leaves(
            "leaves one that always has a successor",
            "setsid sh -c 'f() { if [ $1 -gt 0 ]; then (sleep 0.02; f $(($1 - 1))) & fi; }; f 300' &",
        ),
        leaves(
            "leaves one whose children are never waited for",
            "setsid sh -c 'for i in 1 2 3 4 5; do sh -c : & done; exec sleep 600' &",
        ),
        leaves("leaves one that waits for a pipe", "mkfifo pipe; setsid sh -c 'read line < pipe' &"),
        leaves(
            "leaves one with another name for its call",
            "HARNESS_CALL=9 HARNESS_RUN=other setsid sleep 600 &",
        ),
        leaves("leaves one without a mark in its own session", "env -i /bin/sleep 600 &"),
        leaves("leaves a daemon without a mark", &format!("unset HARNESS_MARK; {DAEMON}")).without_its_mark(),
        leaves(
            "leaves many without a mark",
            "unset HARNESS_MARK; for i in $(seq 8); do setsid sleep 600 & done",
        )
        .without_its_mark(),
        leaves(
            "leaves one without anything in another session",
            "env -i \"$(command -v setsid)\" sleep 600 &",
        )
        .without_its_mark(),
        leaves("leaves one whose mark is another's", "HARNESS_MARK=1.1.1.1:x setsid sleep 600 &")
            .without_its_mark(),
        Case::helper("adopts the orphans of its own", "adopts"),
        Case::helper("leaves one that lets nobody look into it", "hides").without_its_mark(),
        Case::new("leaves one and fails", "setsid sleep 600 & exit 7", &StopReason::ERROR)
            .with_detail("exit-status", "7"),
        Case::new("leaves one and crashes", "setsid sleep 600 & kill -SEGV $$", &StopReason::CRASHED)
            .with_detail("signal", "11"),
        Case::new("leaves one without a word", "setsid sleep 600 &", &StopReason::NO_VALUE),
    ]
}
