use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Waits for `future`, but no longer than `patience`.
pub(crate) async fn within<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match timeout(patience, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not come within {patience:?}"),
    }
}

/// Waits until `holds` does, but no longer than `patience`, and says whether it did.
///
/// It looks again and again: what it waits for may be a process, which tells nobody of its end.
pub(crate) async fn comes_true(patience: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Polls `future` once and returns what it yields, if anything.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}
