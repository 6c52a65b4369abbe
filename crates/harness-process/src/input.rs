use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{io::AsyncWrite, net::unix::pipe, sync::mpsc};
use tokio_util::sync::PollSender;

/// Pieces of this size wait in line at most.
const PIECE: usize = 64 * 1024;
const PIECES: usize = 8;

/// The child's standard input, for a caller that talks with it.
///
/// Writing waits while the child does not read. Shutting down or dropping it gives the child the end of
/// its input. Fails with [`io::ErrorKind::BrokenPipe`] once the child does not read any more.
#[derive(Debug)]
pub struct ChildStdin {
    pieces: PollSender<Vec<u8>>,
}

impl AsyncWrite for ChildStdin {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(this.pieces.poll_reserve(context)).map_err(broken)?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        this.pieces.send_item(piece.to_vec()).map_err(broken)?;
        Poll::Ready(Ok(piece.len()))
    }

    /// Returns at once: what was written is on its way, and only the child's answer proves more.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().pieces.close();
        Poll::Ready(Ok(()))
    }
}

/// Feeds the child's standard input.
#[derive(Debug)]
pub(crate) struct Feed {
    /// Gone once all is written or the child reads no more.
    pipe: Option<pipe::Sender>,
    waiting: VecDeque<Vec<u8>>,
    /// How much of the first one is written.
    at: usize,
    more: Option<mpsc::Receiver<Vec<u8>>>,
    written: u64,
}

impl Feed {
    /// Returns a feed that has nothing left to do.
    pub(crate) fn done(written: usize) -> Self {
        Self { pipe: None, waiting: VecDeque::new(), at: 0, more: None, written: written as u64 }
    }

    /// Returns a feed of `bytes`, of which the first `at` are written.
    pub(crate) fn bytes(pipe: pipe::Sender, bytes: Vec<u8>, at: usize) -> Self {
        Self { pipe: Some(pipe), waiting: [bytes].into(), at, more: None, written: at as u64 }
    }

    /// Returns a feed of what the other half is given.
    pub(crate) fn piped(pipe: pipe::Sender) -> (Self, ChildStdin) {
        let (sender, receiver) = mpsc::channel(PIECES);
        let feed =
            Self { pipe: Some(pipe), waiting: VecDeque::new(), at: 0, more: Some(receiver), written: 0 };
        (feed, ChildStdin { pieces: PollSender::new(sender) })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes `bytes` behind what is waiting, whatever the other half says. Returns whether it can.
    pub(crate) fn last_words(&mut self, bytes: &[u8]) -> bool {
        let open = self.pipe.is_some() && self.more.is_some();
        if open {
            self.waiting.push_back(bytes.to_vec());
        }
        open
    }

    /// Ends the child's input now. Returns whether it was open to the caller.
    pub(crate) fn close(&mut self) -> bool {
        let open = self.pipe.is_some() && self.more.is_some();
        self.more = None;
        self.pipe = None;
        open
    }

    /// Does one piece of the work. Cancel safe. Must not be called when it is not open.
    pub(crate) async fn work(&mut self) {
        let Some(pipe) = &self.pipe else { return std::future::pending().await };
        let Some(bytes) = self.waiting.front() else {
            let next = match &mut self.more {
                Some(more) => more.recv().await,
                None => None,
            };
            match next {
                Some(bytes) => self.waiting.push_back(bytes),
                None => self.pipe = None,
            }
            return;
        };
        let mut outcome = pipe.writable().await;
        while outcome.is_ok() && self.at < bytes.len() {
            match pipe.try_write(&bytes[self.at..]) {
                Ok(count) => {
                    self.at += count;
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => outcome = Err(error),
            }
        }
        self.waiting.pop_front();
        self.at = 0;
        // A child that does not want its input is no fault.
        if outcome.is_err() || (self.waiting.is_empty() && self.more.is_none()) {
            self.pipe = None;
            self.more = None;
        }
    }
}
