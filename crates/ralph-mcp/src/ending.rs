use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// A stream that cancels a token when it ends or breaks.
#[derive(Debug)]
pub(crate) struct Ending<R> {
    read: R,
    token: CancellationToken,
}

impl<R> Ending<R> {
    pub(crate) fn new(read: R, token: CancellationToken) -> Self {
        Self { read, token }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Ending<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let read = ready!(Pin::new(&mut self.read).poll_read(context, buffer));
        if read.is_err() || (room > 0 && buffer.filled().len() == before) {
            self.token.cancel();
        }
        Poll::Ready(read)
    }
}
