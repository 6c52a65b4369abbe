//! Standard input, output and error.

use std::{fs, time::Duration};

use harness_process::{ChildSpec, Ending, Input, Line, LineReader, Output, Transcript, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::call::{alone, run, sh};

fn collected(spec: ChildSpec) -> ChildSpec {
    spec.with_output(Output::Collect { max: 32 * 1024 * 1024 })
}

#[tokio::test]
async fn a_prompt_comes_back_byte_for_byte() {
    let nasty = b"it's `x` $(touch pwned) [ ] ; \"\\\n\0\xff\x1b[31m".to_vec();
    for prompt in [Vec::new(), nasty, vec![b'x'; 65_536], vec![b'y'; 65_537]] {
        let report = run(collected(sh("cat")).with_input(Input::Bytes(prompt.clone()))).await;
        assert!(report.collected.as_ref().unwrap().bytes == prompt, "{} bytes", prompt.len());
        assert_eq!(report.stdin_bytes, prompt.len() as u64);
    }
}

#[tokio::test]
async fn ten_megabytes_go_in_while_ten_come_out() {
    let prompt: Vec<u8> = (0..10_000_000u32).flat_map(u32::to_le_bytes).take(10_000_000).collect();
    let report = run(collected(sh("tee /dev/stderr")).with_input(Input::Bytes(prompt.clone()))).await;
    assert!(report.collected.as_ref().unwrap().bytes == prompt);
    assert_eq!(report.stderr_bytes, 10_000_000);
}

#[tokio::test]
async fn a_child_that_speaks_before_it_listens_does_not_deadlock() {
    let script = "head -c 5000000 /dev/zero; cat >/dev/null; echo ok >&2";
    let report = run(sh(script).with_input(Input::Bytes(vec![b'x'; 5_000_000]))).await;
    assert_eq!((report.ending, report.stdout_bytes), (Ending::Exited { code: 0 }, 5_000_000));
    assert_eq!(report.stderr_tail, b"ok\n");
}

#[tokio::test]
async fn a_flood_of_one_stream_does_not_drown_the_other() {
    for script in
        ["yes >&2 & exec sh -c 'echo heard; sleep 0.5'", "yes & exec sh -c 'echo heard >&2; sleep 0.5'"]
    {
        let report = run(sh(script)).await;
        let heard = |tail: &[u8]| tail == b"heard\n";
        assert!(heard(&report.stdout_tail) || heard(&report.stderr_tail), "{script}");
        assert!(report.first_byte.is_some());
    }
}

#[tokio::test]
async fn a_child_that_does_not_want_its_prompt_is_no_fault() {
    for script in ["exec 0<&-; sleep 0.1; echo ok", "head -c 1 >/dev/null; sleep 0.1; echo ok", "echo ok"] {
        let report = run(collected(sh(script)).with_input(Input::Bytes(vec![b'x'; 5_000_000]))).await;
        assert_eq!(report.ending, Ending::Exited { code: 0 }, "{script}");
        assert_eq!(report.collected.as_ref().unwrap().bytes, b"ok\n", "{script}");
    }
}

#[tokio::test]
async fn a_child_without_a_prompt_reads_the_end() {
    let report = run(collected(sh("cat; echo end"))).await;
    assert_eq!(report.collected.as_ref().unwrap().bytes, b"end\n");
}

#[tokio::test]
async fn a_file_can_be_the_prompt() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "from a file").unwrap();
    let report = run(collected(sh("cat")).with_input(Input::File(file.path().into()))).await;
    assert_eq!(report.collected.as_ref().unwrap().bytes, b"from a file");
}

#[tokio::test]
async fn what_is_over_the_bound_is_counted_and_not_kept() {
    let report = run(sh("printf 1234567890").with_output(Output::Collect { max: 4 })).await;
    let collected = report.collected.as_ref().unwrap();
    assert_eq!((collected.bytes.as_slice(), collected.truncated), (b"1234".as_slice(), true));
    let report = run(sh("printf 1234").with_output(Output::Collect { max: 4 })).await;
    assert!(!report.collected.as_ref().unwrap().truncated);
}

#[tokio::test]
async fn the_transcript_holds_both_streams_up_to_its_cap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transcript");
    let report = run(sh("echo out; sleep 0.1; echo err >&2; sleep 0.1; printf 123456")
        .with_transcript(Transcript::new(&path).with_cap(11)))
    .await;
    assert_eq!(fs::read_to_string(&path).unwrap(), "out\nerr\n123");
    let transcript = report.transcript.as_ref().unwrap();
    assert_eq!((transcript.written, transcript.missing), (11, 3));
}

#[tokio::test]
async fn a_conversation_goes_back_and_forth() {
    let spec = sh("while read line; do echo \"<$line>\"; done; echo end");
    let mut child = start(spec.with_input(Input::Piped).with_output(Output::Stream)).unwrap();
    let mut stdin = child.take_stdin().unwrap();
    let mut stdout = child.take_stdout().unwrap();
    assert!(child.take_stdin().is_none() && child.take_stdout().is_none());
    for word in ["one", "two", "three"] {
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; word.len() + 3];
        stdout.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, format!("<{word}>\n").as_bytes());
    }
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "end\n");
    assert_eq!(child.wait().await.ending, Ending::Exited { code: 0 });
}

#[tokio::test]
async fn a_caller_that_reads_late_gets_everything() {
    let mut child = start(sh("head -c 50000 /dev/zero; echo end").with_output(Output::Stream)).unwrap();
    let mut stdout = child.take_stdout().unwrap();
    let report = child.wait().await;
    assert_eq!(report.stdout_bytes, 50_004);
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 50_004);
    assert!(all.ends_with(b"end\n"));
}

#[tokio::test]
async fn a_caller_that_falls_behind_makes_the_child_wait_and_not_time_out() {
    let limits = crate::call::limits().with_idle(Duration::from_millis(200));
    let spec = sh("head -c 8000000 /dev/zero").with_output(Output::Stream).with_limits(limits);
    let mut child = start(spec).unwrap();
    let mut stdout = child.take_stdout().unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 8_000_000);
    assert_eq!(child.wait().await.ending, Ending::Exited { code: 0 });
}

#[tokio::test]
async fn a_caller_that_stops_reading_does_not_hold_the_child() {
    let mut child = start(sh("head -c 8000000 /dev/zero").with_output(Output::Stream)).unwrap();
    let mut stdout = child.take_stdout().unwrap();
    stdout.read_u8().await.unwrap();
    drop(stdout);
    assert_eq!(child.wait().await.stdout_bytes, 8_000_000);
}

#[tokio::test]
async fn nobody_who_writes_to_a_gone_child_waits() {
    let mut child = start(sh("exit 0").with_input(Input::Piped)).unwrap();
    let mut stdin = child.take_stdin().unwrap();
    child.wait().await;
    let error = stdin.write_all(&[0; 10_000_000]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_line_of_eight_megabytes_arrives_whole() {
    let script = "head -c 8000000 /dev/zero | tr '\\0' x; echo; echo short";
    let mut child = start(sh(script).with_output(Output::Stream)).unwrap();
    let mut lines = LineReader::new(child.take_stdout().unwrap(), 10_000_000);
    assert!(
        matches!(lines.next_line().await.unwrap(), Some(Line::Whole(line)) if line == vec![b'x'; 8_000_000])
    );
    assert_eq!(lines.next_line().await.unwrap(), Some(Line::Whole(b"short")));
    assert_eq!(lines.next_line().await.unwrap(), None);
    assert_eq!(child.wait().await.ending, Ending::Exited { code: 0 });
}

#[tokio::test]
async fn single_bytes_make_a_line() {
    let script = "dd if=/dev/zero bs=1 count=300000 2>/dev/null; echo";
    let mut child = start(sh(script).with_output(Output::Stream)).unwrap();
    let mut lines = LineReader::new(child.take_stdout().unwrap(), 10_000_000);
    assert_eq!(lines.next_line().await.unwrap(), Some(Line::Whole(&[0; 300_000])));
}

#[test]
fn a_flood_does_not_fill_memory() {
    alone("streams::flood", &[]);
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn flood() {
    let directory = tempfile::tempdir().unwrap();
    let transcript = Transcript::new(directory.path().join("transcript")).with_cap(1_000_000);
    for output in [Output::Discard, Output::Collect { max: 1_000_000 }, Output::Stream] {
        let spec = sh("head -c 300000000 /dev/zero; head -c 1000000 /dev/zero >&2").with_output(output);
        let spec = if output == Output::Discard { spec.with_transcript(transcript.clone()) } else { spec };
        let mut child = start(spec).unwrap();
        if let Some(stdout) = child.take_stdout() {
            let mut lines = LineReader::new(stdout, 1_000_000);
            assert_eq!(lines.next_line().await.unwrap(), Some(Line::TooLong { length: 300_000_000 }));
        }
        assert_eq!(child.wait().await.stdout_bytes, 300_000_000);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 20_000, "{peak} kB");
}
