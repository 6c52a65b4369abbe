use std::path::PathBuf;

use harness_process::Child;
use harness_provider_cli::parts::{CaptureFiles, End};
use harness_subagent::ActivitySender;
use tokio_util::sync::CancellationToken;

use crate::conversation::{Conversation, Settlement, Topic};
use crate::ending;
use crate::handed::Handed;
use crate::peer::Peer;
use crate::said::Said;
use crate::usage::usage;

/// What the provider knows about one child beside what is talked about.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) topic: Topic,
    /// Asks the agent to stop, which comes before anything that is done to its process.
    pub(crate) stop: CancellationToken,
    /// Where the child's value appears, of one that was asked for it.
    pub(crate) value: Option<CaptureFiles>,
    pub(crate) max_value_bytes: u64,
    pub(crate) transcript: PathBuf,
}

impl Course {
    /// Sees the child to its end.
    pub(crate) async fn follow(self, mut child: Child, activity: ActivitySender) -> End {
        let stdin = child.take_stdin().expect("the child's input is piped");
        let stdout = child.take_stdout().expect("the child's output is streamed");
        let peer = Peer::new(stdin, stdout);
        let mut conversation = Conversation::new(peer, Said::new(activity), self.stop, self.topic);
        let settlement = conversation.hold().await;
        let (session_id, said, stdin) = conversation.finish();
        if let Settlement::Cancelled { .. } = settlement {
            // The end of its input is the first step, for which the input must still be open.
            child.cancel();
        } else {
            // Some agents exit at the end of their input, some never do. This bounds both.
            child.delivered();
            drop(stdin);
        }
        let report = child.wait().await;
        if let Some(error) = report.transcript.as_ref().and_then(|transcript| transcript.error) {
            tracing::warn!(transcript = %self.transcript.display(), %error, "the transcript is incomplete");
        }
        let handed = self.value.map(|files| Handed::read(&files, self.max_value_bytes));
        let usage = usage(settlement.usage(), said.cost());
        let result = ending::judge(&settlement, &report, handed, &self.transcript).map(|mut result| {
            result.output = said.into_text();
            result.usage = usage;
            result.session_id = session_id;
            result
        });
        End::new(result, &report)
    }
}
