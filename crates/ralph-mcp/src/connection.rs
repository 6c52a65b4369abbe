use std::error::Error;

use rmcp::service::{QuitReason, ServerInitializeError};
use rmcp::{ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// A connection that did not end as connections do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client began with something else than the protocol, or went away while it was answered.
    #[error("the client does not begin as the protocol says")]
    Handshake(#[source] Box<dyn Error + Send + Sync>),
    /// The server's own task broke.
    #[error("the server broke off")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

/// Serves `handler` until the client closes its end or `stop` is cancelled.
///
/// Answers that are due at the end of the input are still written, for a few seconds at most.
pub(crate) async fn serve<H, R, W>(
    handler: H,
    read: R,
    write: W,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let running = match handler.serve_with_ct((read, write), stop).await {
        Ok(running) => running,
        // Nobody has asked for anything.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(error.into())),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Broken(error.into())),
        Ok(_) => Ok(()),
    }
}
