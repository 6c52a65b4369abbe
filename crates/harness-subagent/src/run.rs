use std::fmt::Debug;

use async_trait::async_trait;

use crate::{ActivityStream, AgentId, Result, SubagentResult};

/// One started child, owned by whoever called `start`.
///
/// # Contract
///
/// The provider implements it; the caller of `start` reads the result and disposes of the run, on every
/// path. A registry wraps it and forwards every method.
#[async_trait]
pub trait SubagentRun: Debug + Send + Sync {
    /// Returns the child's id. It never changes and is never empty.
    fn id(&self) -> &AgentId;

    /// Waits until the child has ended and returns how.
    ///
    /// - It may be called any number of times, also at once and after [`dispose`](Self::dispose); every call
    ///   gets the same answer.
    /// - Waiting drives nothing that a dropped wait would stop: the child goes on without it.
    /// - A cancelled child resolves with [`StopReason::ABORTED`](crate::StopReason::ABORTED); one that had
    ///   completed before stays completed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait changes nothing.
    ///
    /// # Errors
    ///
    /// Only for what a result cannot say: [`ErrorKind::RunLost`](crate::ErrorKind::RunLost), when the
    /// provider cannot know how the child ended.
    async fn result(&self) -> Result<SubagentResult>;

    /// Ends the child if it still runs, and waits until it and all it held are gone.
    ///
    /// - The caller calls it on every path, also after a result.
    /// - A repeated or concurrent call waits for the first and gets the same answer.
    /// - Afterwards [`result`](Self::result) resolves at once.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may leave the release unfinished, but not undone: the next call goes on with it. A
    /// provider must bound the release by itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Release`](crate::ErrorKind::Release) when something could not be released. A fault of
    /// the child is never an error here.
    async fn dispose(&self) -> Result<()>;

    /// Returns what the child does from now on. The stream is bounded and lossy and ends with the child.
    ///
    /// A provider that can tell nothing need not override it.
    fn activity(&self) -> ActivityStream {
        ActivityStream::silent()
    }
}
