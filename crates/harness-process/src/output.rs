use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use crate::{Collected, spec::Output, tail::Tail, transcript::Writer};

/// One read takes this much at most.
pub(crate) const PIECE: usize = 64 * 1024;
/// The room for the first read, of a child of which it is not known whether it says anything.
const FIRST_READ: usize = 1024;
/// So many pieces may wait for a caller that reads the stream.
const PIECES: usize = 16;
/// So much more may wait once the child is gone: what its pipe held, and a little of what others add.
const OVERDRAFT: usize = 1024 * 1024;

/// The child's standard output, for a caller that reads it as it comes.
///
/// Ends when the child is gone and what it wrote has been read. Dropping it lets the child go on; what it
/// says then is dropped too, but for transcript and tail.
#[derive(Debug)]
pub struct ChildStdout {
    pieces: mpsc::UnboundedReceiver<Piece>,
    credit: Arc<Semaphore>,
    current: Option<Piece>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    at: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for ChildStdout {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.current.is_none() {
            this.current = ready!(this.pieces.poll_recv(context));
        }
        if let Some(piece) = &mut this.current {
            let open = &piece.bytes[piece.at..];
            let count = open.len().min(buffer.remaining());
            buffer.put_slice(&open[..count]);
            piece.at += count;
            if piece.at == piece.bytes.len() {
                this.current = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for ChildStdout {
    fn drop(&mut self) {
        self.credit.close();
    }
}

/// Drains one of the child's output streams.
#[derive(Debug)]
pub(crate) struct Drain {
    pipe: pipe::Receiver,
    /// The end of the stream has not been seen.
    open: bool,
    sink: Sink,
    tail: Tail,
    bytes: u64,
}

#[derive(Debug)]
enum Sink {
    Discard,
    Collect { max: usize, collected: Collected },
    Stream(Stream),
}

#[derive(Debug)]
struct Stream {
    pieces: mpsc::UnboundedSender<Piece>,
    credit: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    overdraft: usize,
}

impl Drain {
    pub(crate) fn new(pipe: pipe::Receiver, output: Output) -> (Self, Option<ChildStdout>) {
        let (sink, stdout) = match output {
            Output::Discard => (Sink::Discard, None),
            Output::Collect { max } => (Sink::Collect { max, collected: Collected::default() }, None),
            Output::Stream => {
                let (sender, pieces) = mpsc::unbounded_channel();
                let credit = Arc::new(Semaphore::new(PIECES));
                let stdout = ChildStdout { pieces, credit: Arc::clone(&credit), current: None };
                let stream = Stream { pieces: sender, credit, permit: None, overdraft: 0 };
                (Sink::Stream(stream), Some(stdout))
            }
        };
        (Self { pipe, open: true, sink, tail: Tail::default(), bytes: 0 }, stdout)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Returns whether it is the caller who keeps the stream from flowing.
    pub(crate) fn is_stalled(&self) -> bool {
        match &self.sink {
            Sink::Stream(stream) => stream.permit.is_none() && stream.credit.available_permits() == 0,
            Sink::Discard | Sink::Collect { .. } => false,
        }
    }

    /// The child is gone: what its pipe holds must not wait for the caller.
    pub(crate) fn last_pieces(&mut self) {
        if let Sink::Stream(stream) = &mut self.sink {
            stream.overdraft = OVERDRAFT;
        }
    }

    /// Waits for output and reads `most` of it at most; the buffer stays empty at the end of the stream.
    /// Cancel safe. Pends for ever when it is not open.
    pub(crate) async fn fill(&mut self, buffer: &mut Vec<u8>, most: usize) {
        buffer.clear();
        if !self.open {
            return std::future::pending().await;
        }
        if let Sink::Stream(stream) = &mut self.sink
            && stream.permit.is_none()
            && stream.overdraft == 0
        {
            match Arc::clone(&stream.credit).acquire_owned().await {
                Ok(permit) => stream.permit = Some(permit),
                Err(_) => self.sink = Sink::Discard,
            }
        }
        loop {
            if self.pipe.readable().await.is_err() {
                self.open = false;
                return;
            }
            match read(&self.pipe, buffer, most) {
                Flow::Open if buffer.is_empty() => {}
                Flow::Open => return,
                Flow::Ended => {
                    self.open = false;
                    return;
                }
            }
        }
    }

    /// Reads what is there without waiting. Returns whether there was anything.
    pub(crate) fn fill_now(&mut self, buffer: &mut Vec<u8>, most: usize) -> bool {
        buffer.clear();
        if !self.open {
            return false;
        }
        if let Flow::Ended = read(&self.pipe, buffer, most) {
            self.open = false;
        }
        !buffer.is_empty()
    }

    /// Hands on what was read.
    pub(crate) fn deliver(&mut self, bytes: &[u8], transcript: Option<&mut Writer>) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.tail.push(bytes);
        if let Some(transcript) = transcript {
            transcript.write(bytes);
        }
        match &mut self.sink {
            Sink::Discard => {}
            Sink::Collect { max, collected } => {
                let room = *max - collected.bytes.len();
                collected.bytes.extend_from_slice(&bytes[..room.min(bytes.len())]);
                collected.truncated |= bytes.len() > room;
            }
            Sink::Stream(stream) => {
                let permit = stream.permit.take();
                if permit.is_none() {
                    stream.overdraft = stream.overdraft.saturating_sub(bytes.len());
                }
                let piece = Piece { bytes: bytes.to_vec(), at: 0, _permit: permit };
                // The caller may have dropped its end. The next piece will find the credit closed.
                let _ = stream.pieces.send(piece);
            }
        }
    }

    pub(crate) fn finish(self) -> (u64, Option<Collected>, Vec<u8>, pipe::Receiver) {
        let collected = match self.sink {
            Sink::Collect { collected, .. } => Some(collected),
            Sink::Discard | Sink::Stream(_) => None,
        };
        (self.bytes, collected, self.tail.finish(), self.pipe)
    }
}

enum Flow {
    Open,
    Ended,
}

/// Reads until the buffer holds `most` or the pipe is empty, so that many small writes make one piece.
fn read(pipe: &pipe::Receiver, buffer: &mut Vec<u8>, most: usize) -> Flow {
    while buffer.len() < most {
        // Whoever says little needs little room. A buffer that is not full does not grow by itself.
        if buffer.len() == buffer.capacity() {
            buffer.reserve_exact(if buffer.is_empty() { FIRST_READ } else { most - buffer.len() });
        }
        match pipe.try_read_buf(buffer) {
            Ok(0) => return Flow::Ended,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Flow::Open,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Flow::Ended,
        }
    }
    Flow::Open
}
