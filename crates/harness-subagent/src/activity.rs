use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::Usage;
use crate::text::bounded;

/// What a child is doing at one moment, for people who watch.
///
/// Nothing may be decided by it: activity can be lost, and its words are the child's.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Activity {
    /// What the child is doing, at most [`MAX_TEXT_BYTES`](Self::MAX_TEXT_BYTES) bytes of UTF-8.
    pub text: String,
    /// What the child has used so far, where the provider can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Activity {
    /// The longest text, the marker of a cut one included.
    pub const MAX_TEXT_BYTES: usize = 512;

    /// Makes an activity; a longer text is cut and marked.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: bounded(text.into(), Self::MAX_TEXT_BYTES, "…"), usage: None }
    }

    /// Says what the child has used so far.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }
}

/// The provider's end of a child's activity: it never waits, and the oldest entries give way.
#[derive(Clone, Debug)]
pub struct ActivitySender {
    sender: broadcast::Sender<Activity>,
}

impl ActivitySender {
    /// Makes a sender that holds `capacity` entries for a reader that lags.
    ///
    /// # Panics
    ///
    /// When `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { sender: broadcast::Sender::new(capacity) }
    }

    /// Tells every present reader. Without a reader the activity is dropped.
    pub fn send(&self, activity: Activity) {
        // An error means that nobody listens, which is nobody's fault.
        let _ = self.sender.send(activity);
    }

    /// Makes a reader that gets what is sent from now on.
    #[must_use]
    pub fn subscribe(&self) -> ActivityStream {
        ActivityStream { receiver: Some(self.sender.subscribe()) }
    }
}

/// A reader of a child's activity: bounded and lossy.
#[derive(Debug)]
pub struct ActivityStream {
    receiver: Option<broadcast::Receiver<Activity>>,
}

impl ActivityStream {
    /// Makes a stream that has ended already, for a child of which nothing can be told.
    #[must_use]
    pub fn silent() -> Self {
        Self { receiver: None }
    }

    /// Says whether the stream has ended.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.receiver.is_none()
    }

    /// Waits for the next activity. Entries that gave way are skipped; [`None`] is the end, for good.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped wait loses nothing.
    pub async fn next(&mut self) -> Option<Activity> {
        loop {
            match self.receiver.as_mut()?.recv().await {
                Ok(activity) => return Some(activity),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => self.receiver = None,
            }
        }
    }
}
