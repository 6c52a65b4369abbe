//! The body of an answer, given out as the script says.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;

use super::exchange::Ending;
use super::server::Shared;

/// One thing that happens on the way of an answer.
#[derive(Debug)]
pub(super) enum Step {
    Give(Bytes),
    Wait(Duration),
    /// Nothing comes any more.
    Hang,
    /// What was given goes out, then the connection breaks.
    Break,
}

/// A body that plays its steps.
#[derive(Debug)]
pub(super) struct Played {
    steps: VecDeque<Step>,
    /// What the client is told about the length, whatever is given in the end.
    length: Option<u64>,
    waiting: Option<Pin<Box<Sleep>>>,
    receipt: Receipt,
}

/// The end of a connection that the script wants to break.
#[derive(Debug)]
pub(super) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script breaks the connection")
    }
}

impl std::error::Error for Broken {}

impl Played {
    pub(super) fn new(steps: impl IntoIterator<Item = Step>, length: Option<u64>, receipt: Receipt) -> Self {
        Self { steps: steps.into_iter().collect(), length, waiting: None, receipt }
    }

    /// A body in one piece.
    pub(super) fn whole(body: impl Into<Bytes>, receipt: Receipt) -> Self {
        let body = body.into();
        let length = u64::try_from(body.len()).ok();
        Self::new([Step::Give(body)], length, receipt)
    }
}

impl Body for Played {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                ready!(waiting.as_mut().poll(context));
                self.waiting = None;
            }
            match self.steps.pop_front() {
                Some(Step::Give(bytes)) => {
                    if self.steps.is_empty() {
                        self.receipt.end(Ending::Answered);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Wait(time)) => self.waiting = Some(Box::pin(tokio::time::sleep(time))),
                Some(Step::Hang) => {
                    self.steps.push_front(Step::Hang);
                    // The connection wakes us when the client leaves, and then drops us.
                    return Poll::Pending;
                }
                Some(Step::Break) => {
                    self.receipt.end(Ending::Broken);
                    return Poll::Ready(Some(Err(Broken)));
                }
                None => {
                    self.receipt.end(Ending::Answered);
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Notes how an exchange ends, once: as it is told, or as it is dropped.
#[derive(Debug)]
pub(super) struct Receipt {
    shared: Arc<Shared>,
    number: usize,
    ended: bool,
}

impl Receipt {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self { shared, number, ended: false }
    }

    /// The receipt of a request that was not kept.
    pub(super) fn of_nothing(shared: Arc<Shared>) -> Self {
        Self { shared, number: 0, ended: true }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        if !self.ended {
            self.ended = true;
            self.shared.end(self.number, ending);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        let ending = if self.shared.is_stopping() { Ending::ServerStopped } else { Ending::ClientLeft };
        self.end(ending);
    }
}
