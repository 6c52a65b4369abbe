//! An agent can be looked at without giving it work.

use std::time::Duration;

use harness_provider_acp::AcpProvider;

use crate::support::Bench;

#[tokio::test]
async fn an_agent_says_what_it_is() {
    let bench = Bench::new();
    let detected = bench.provider("hands in").detect().await;
    assert!(detected.program.is_ok());
    assert_eq!(detected.agent.as_deref(), Some("scripted-agent"));
    assert_eq!(detected.version.as_deref(), Some("1.2.3"));
    assert_eq!(detected.authentication, ["key"]);
    assert_eq!(detected.trouble, None);
    assert_eq!(bench.heard().len(), 1, "nothing but a greeting");
    assert_eq!(bench.alive(), [0_u32; 0]);
}

#[tokio::test]
async fn an_agent_that_cannot_be_used_says_why() {
    for script in ["exits at once", "speaks version 2", "says nothing"] {
        let bench = Bench::new();
        let provider = bench.provider(script).with_handshake_limit(Duration::from_secs(2));
        let detected = provider.detect().await;
        assert!(detected.trouble.is_some(), "{script}");
        assert_eq!(bench.alive(), [0_u32; 0]);
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_an_error() {
    let bench = Bench::new();
    let detected = AcpProvider::new("acp", "/no/such/agent", bench.files()).detect().await;
    assert!(detected.program.is_err());
}
