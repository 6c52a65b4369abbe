use std::path::PathBuf;

use harness_process::{CallReport, Ending, StartError, sanitize};
use harness_subagent::ActivitySender;
use tokio_util::sync::CancellationToken;

use crate::AcpProvider;
use crate::conversation::{Conversation, Settlement, Topic};
use crate::peer::Peer;
use crate::said::Said;

/// What is known of an agent on this machine.
#[derive(Debug)]
#[non_exhaustive]
pub struct DetectedAgent {
    /// The program that would be run, or why there is none.
    pub program: Result<PathBuf, StartError>,
    /// How the agent calls itself.
    pub agent: Option<String>,
    /// The version of it that it tells.
    pub version: Option<String>,
    /// The ways to authenticate that it offers, by their ids. Whether it needs one shows in its first session only.
    pub authentication: Vec<String>,
    /// Why it cannot be used, if it cannot.
    pub trouble: Option<String>,
}

pub(crate) async fn detect(provider: &AcpProvider) -> DetectedAgent {
    let mut detected = DetectedAgent {
        program: provider.find(),
        agent: None,
        version: None,
        authentication: Vec::new(),
        trouble: None,
    };
    if detected.program.is_err() {
        return detected;
    }
    let mut child = match harness_process::start(provider.spec(&std::env::temp_dir())) {
        Ok(child) => child,
        Err(error) => {
            detected.trouble = Some(error.to_string());
            return detected;
        }
    };
    let (Some(stdin), Some(stdout)) = (child.take_stdin(), child.take_stdout()) else {
        unreachable!("the child's input is piped and its output is streamed");
    };
    let said = Said::new(ActivitySender::new(1));
    let topic = Topic::greeting(provider.handshake_limit());
    let mut conversation = Conversation::new(Peer::new(stdin, stdout), said, CancellationToken::new(), topic);
    let greeting = conversation.greet().await;
    drop(conversation);
    child.delivered();
    let report = child.wait().await;
    match greeting {
        Ok(greeting) => {
            let text = |text: &str| Some(sanitize(text).into_owned());
            detected.agent = greeting.agent.as_ref().and_then(|agent| text(&agent.name));
            detected.version = greeting.agent.as_ref().and_then(|agent| text(&agent.version));
            detected.authentication =
                greeting.auth_methods.iter().map(|method| sanitize(&method.id().0).into_owned()).collect();
        }
        Err(settlement) => detected.trouble = Some(trouble(&settlement, &report)),
    }
    detected
}

fn trouble(settlement: &Settlement, report: &CallReport) -> String {
    let words = match settlement {
        Settlement::Unfit { why } => why.clone(),
        Settlement::Refused { error, .. } => {
            format!("it answers its greeting with an error: {}", error.message)
        }
        Settlement::Slow => "it does not answer its greeting in time".to_owned(),
        _ => match report.ending {
            Ending::Exited { code } => format!("it exits with status {code} when it is greeted"),
            ending => format!("it ends as {ending:?} when it is greeted"),
        },
    };
    sanitize(&words).into_owned()
}
