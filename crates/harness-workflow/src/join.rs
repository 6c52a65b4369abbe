//! The combination behind `parallel` and `pipeline`.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::WorkflowError;

/// Polls every branch that has not ended whenever it is polled itself, in their order.
///
/// It hands its own waker to the branches and makes none. An engine that polls a body by hand, without wake-ups,
/// therefore drives every branch.
pub(crate) async fn all<T, F>(branches: impl IntoIterator<Item = F>) -> Result<Vec<Option<T>>, WorkflowError>
where
    F: Future<Output = Result<T, WorkflowError>>,
{
    let mut branches: Vec<Branch<T, F>> =
        branches.into_iter().map(|branch| Branch::Running(Box::pin(branch))).collect();
    std::future::poll_fn(|cx| poll_all(&mut branches, cx)).await?;
    Ok(branches.into_iter().map(Branch::into_yield).collect())
}

fn poll_all<T, F>(branches: &mut [Branch<T, F>], cx: &mut Context<'_>) -> Poll<Result<(), WorkflowError>>
where
    F: Future<Output = Result<T, WorkflowError>>,
{
    let mut all_ended = true;
    for branch in branches {
        if let Branch::Running(future) = branch {
            match future.as_mut().poll(cx) {
                Poll::Pending => all_ended = false,
                Poll::Ready(Ok(value)) => *branch = Branch::Ended(Some(value)),
                Poll::Ready(Err(error)) if error.is_fatal() => return Poll::Ready(Err(error)),
                Poll::Ready(Err(_)) => *branch = Branch::Ended(None),
            }
        }
    }
    if all_ended { Poll::Ready(Ok(())) } else { Poll::Pending }
}

enum Branch<T, F> {
    Running(Pin<Box<F>>),
    Ended(Option<T>),
}

impl<T, F> Branch<T, F> {
    fn into_yield(self) -> Option<T> {
        match self {
            Self::Ended(value) => value,
            Self::Running(_) => unreachable!("the join resolves only when every branch has ended"),
        }
    }
}
