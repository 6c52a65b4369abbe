use std::fs::File;

use tokio::net::unix::pipe;

use crate::{
    Collected, TranscriptReport,
    output::{ChildStdout, Drain, PIECE},
    spec::Output,
    transcript::Writer,
};

/// Both output streams of one child, and the transcript that they share.
#[derive(Debug)]
pub(crate) struct Streams {
    stdout: Drain,
    stderr: Drain,
    transcript: Option<Writer>,
    /// One for each, as a piece of either may be on its way.
    buffers: [Vec<u8>; 2],
}

/// What came of the streams.
#[derive(Debug)]
pub(crate) struct StreamsReport {
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    pub(crate) collected: Option<Collected>,
    pub(crate) stdout_tail: Vec<u8>,
    pub(crate) stderr_tail: Vec<u8>,
    pub(crate) transcript: Option<TranscriptReport>,
}

/// What the streams no longer need.
#[derive(Debug)]
pub(crate) struct Spent {
    _pipes: [pipe::Receiver; 2],
    _transcript: Option<File>,
    _buffers: [Vec<u8>; 2],
}

/// Standard error is seldom as busy.
const STDERR_PIECE: usize = 16 * 1024;
/// More than a pipe holds, so that what is in it is read to the end unless somebody keeps filling it.
const PIPE: usize = 1024 * 1024;

impl Streams {
    pub(crate) fn new(
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
        output: Output,
        transcript: Option<Writer>,
    ) -> (Self, Option<ChildStdout>) {
        let (stdout, half) = Drain::new(stdout, output);
        let (stderr, _) = Drain::new(stderr, Output::Discard);
        (Self { stdout, stderr, transcript, buffers: [Vec::new(), Vec::new()] }, half)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Returns whether it is the caller who keeps output from flowing.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stdout.is_stalled()
    }

    /// The child is gone: what its pipes hold must not wait for the caller.
    pub(crate) fn last_pieces(&mut self) {
        self.stdout.last_pieces();
    }

    /// Waits for a piece of either stream and hands it on. Returns its length, 0 at the end of a stream.
    /// Cancel safe. Neither stream can keep the other from being read. Pends for ever when none is open.
    pub(crate) async fn work(&mut self) -> usize {
        let [out, err] = &mut self.buffers;
        let (stream, bytes) = tokio::select! {
            () = self.stdout.fill(out, PIECE), if self.stdout.is_open() => (&mut self.stdout, &*out),
            () = self.stderr.fill(err, STDERR_PIECE), if self.stderr.is_open() => (&mut self.stderr, &*err),
            else => return std::future::pending().await,
        };
        stream.deliver(bytes, self.transcript.as_mut());
        bytes.len()
    }

    /// Hands on what is there now, and a pipe's worth of each stream at most. Returns how much that was.
    pub(crate) fn work_now(&mut self) -> usize {
        let [buffer, _] = &mut self.buffers;
        let mut all = 0;
        for stream in [&mut self.stderr, &mut self.stdout] {
            let mut total = 0;
            while total < PIPE && stream.fill_now(buffer, PIECE) {
                total += buffer.len();
                stream.deliver(buffer, self.transcript.as_mut());
            }
            all += total;
        }
        all
    }

    /// Returns what came of the streams, and what is of no more use.
    pub(crate) fn finish(self) -> (StreamsReport, Spent) {
        let (stdout_bytes, collected, stdout_tail, stdout) = self.stdout.finish();
        let (stderr_bytes, _, stderr_tail, stderr) = self.stderr.finish();
        let (transcript, file) = self.transcript.map(Writer::finish).unzip();
        let report =
            StreamsReport { stdout_bytes, stderr_bytes, collected, stdout_tail, stderr_tail, transcript };
        (report, Spent { _pipes: [stdout, stderr], _transcript: file, _buffers: self.buffers })
    }
}
