//! Children that do not end by themselves, and such as make a stand when they are told to.

use harness_subagent::StopReason;

use super::case::{Cancel, Case};

pub(crate) fn cases() -> Vec<Case> {
    let aborted = StopReason::ABORTED;
    let completed = StopReason::COMPLETED;
    let chatty = "while :; do echo; sleep 0.05; done";
    vec![
        Case::first_byte("says nothing", "sleep 600"),
        Case::first_byte("works hard and says nothing", "while :; do :; done"),
        Case::first_byte("stops itself", "kill -STOP $$"),
        Case::first_byte("says nothing any more, to anyone", "exec <&- >&- 2>&-; sleep 600"),
        Case::first_byte("waits for a writer that never comes", "mkfifo pipe; read line < pipe"),
        Case::first_byte("waits for its stopped child", "sh -c 'kill -STOP $$'"),
        Case::first_byte(
            "begins anew at every request to stop",
            "trap 'sleep 600 & wait' TERM; while :; do sleep 600 & wait; done",
        ),
        Case::first_byte(
            "sets its house on fire when told to go",
            "trap 'setsid sleep 600 & (setsid sleep 600 &); exit 0' TERM; sleep 600 & wait",
        ),
        Case::first_byte("hands in when it is told to go", "trap 'hand_in; exit 0' TERM; sleep 600 & wait"),
        Case::first_byte(
            "moves to another session when told to go",
            "trap 'exec setsid -f sh -c \"trap \\\"\\\" TERM; sleep 600\"' TERM; sleep 600 & wait",
        ),
        Case::idle("falls silent", "echo working; sleep 600"),
        Case::idle("falls silent in the middle of a line", "printf working; sleep 600"),
        Case::idle("falls silent and has closed its output", "echo working; exec >&- 2>&-; sleep 600"),
        Case::idle("asks and waits", "printf 'Continue? [y/N] '; read answer; sleep 600"),
        Case::deadline("says something for ever", chatty),
        Case::deadline(
            "says something for ever on the other stream",
            "while :; do echo >&2; sleep 0.05; done",
        ),
        Case::deadline("floods for ever", "yes"),
        Case::deadline("says one byte at a time for ever", "while :; do printf .; sleep 0.02; done"),
        Case::deadline("ignores every request", format!("trap '' HUP INT QUIT TERM USR1 USR2; {chatty}")),
        Case::deadline(
            "replaces its value for ever and never by a whole one",
            "while :; do printf '{' >> \"$v\"; echo; sleep 0.05; done",
        ),
        Case::new("hands in and stays", "hand_in; sleep 600", &completed),
        Case::new("hands in and never stops talking", format!("hand_in; {chatty}"), &completed),
        Case::new(
            "hands in and ignores every request",
            format!("hand_in; trap '' HUP INT TERM; {chatty}"),
            &completed,
        ),
        Case::new("hands in and stops itself", "hand_in; kill -STOP $$", &completed),
        Case::new(
            "hands in, closes its streams and stays",
            "hand_in; exec <&- >&- 2>&-; sleep 600",
            &completed,
        ),
        Case::new("is cancelled before it does anything", "sleep 600", &aborted).with_cancel(Cancel::AtOnce),
        Case::new(
            "is cancelled and ignores it",
            format!("trap '' HUP INT TERM; touch ready; {chatty}"),
            &aborted,
        )
        .with_cancel(Cancel::WhenReady),
        Case::new("is cancelled after handing in", "hand_in; touch ready; sleep 600", &aborted)
            .with_cancel(Cancel::WhenReady),
        Case::new(
            "is cancelled and leaves a writer",
            "setsid sh -c 'while :; do date >> log; sleep 0.02; done' & touch ready; wait",
            &aborted,
        )
        .with_cancel(Cancel::WhenReady),
    ]
}
