//! The stream of activity: bounded, lossy, and at its end when the child is.

use harness_subagent::{Activity, ActivitySender, ActivityStream};

fn number(index: usize) -> Activity {
    Activity::new(index.to_string())
}

async fn rest(mut stream: ActivityStream) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(activity) = stream.next().await {
        texts.push(activity.text);
    }
    assert!(stream.is_silent());
    assert_eq!(stream.next().await, None, "the end is for good");
    texts
}

#[test]
#[should_panic = "capacity"]
fn a_capacity_of_zero_is_a_bug_of_the_caller() {
    let _ = ActivitySender::new(0);
}

#[tokio::test]
async fn a_reader_that_lags_loses_the_oldest_entries() {
    let sender = ActivitySender::new(4);
    let stream = sender.subscribe();
    for index in 0..100 {
        sender.send(number(index));
    }
    drop(sender);
    assert_eq!(rest(stream).await, ["96", "97", "98", "99"]);
}

#[tokio::test]
async fn a_reader_gets_what_is_sent_after_it_came() {
    let sender = ActivitySender::new(4);
    sender.send(number(0));
    let early = sender.subscribe();
    sender.send(number(1));
    let late = sender.subscribe();
    sender.send(number(2));
    drop(sender);
    assert_eq!(rest(early).await, ["1", "2"]);
    assert_eq!(rest(late).await, ["2"]);
}

#[tokio::test]
async fn a_stream_ends_with_the_last_sender() {
    let sender = ActivitySender::new(4);
    let twin = sender.clone();
    let mut stream = sender.subscribe();
    drop(sender);
    twin.send(number(1));
    assert!(!stream.is_silent());
    assert_eq!(stream.next().await, Some(number(1)));
    drop(twin);
    assert!(rest(stream).await.is_empty());
}

#[tokio::test]
async fn a_silent_stream_has_ended() {
    assert!(ActivityStream::silent().is_silent());
    assert!(rest(ActivityStream::silent()).await.is_empty());
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let sender = ActivitySender::new(4);
    let mut stream = sender.subscribe();
    tokio::select! {
        biased;
        _ = stream.next() => panic!("nothing was sent"),
        () = std::future::ready(()) => {}
    }
    sender.send(number(7));
    assert_eq!(stream.next().await, Some(number(7)));
}
