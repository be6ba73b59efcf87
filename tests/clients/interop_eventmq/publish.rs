//! Publishers and libzmq's subscribers.

use serde_json::json;

use super::peers::{Frames, Socket};
use super::stage::Stage;

in_namespaces! { topics_are_prefixes subscriptions_end messages_that_the_stock_client_does_not_send }

/// Subscribes to one more topic, and publishes to it until a message arrives: a subscription is not acknowledged, but
/// earlier subscriptions have arrived as well by then.
fn wait_for(publisher: &Socket, subscriber: &Socket, topic: &str) {
    subscriber.subscribe(topic);
    loop {
        publisher.publish(topic, &json!("there?"));
        if subscriber
            .hear_within(20)
            .is_some_and(|heard| heard[0] == topic)
        {
            return;
        }
    }
}

/// The messages up to the end marker in `topic`, without those used for waiting.
fn heard(publisher: &Socket, subscriber: &Socket, topic: &str) -> Vec<Frames> {
    publisher.publish(topic, &json!("the end"));
    let mut heard = Vec::new();
    loop {
        let frames = subscriber.hear_bare();
        match frames[1].as_str() {
            "\"the end\"" if frames[0] == topic => return heard,
            "\"the end\"" | "\"there?\"" => {}
            _ => heard.push(frames),
        }
    }
}

fn topics_are_prefixes(stage: &Stage) {
    let publisher = stage.client();
    let subscribed: [&[&str]; 4] = [
        &[""],
        &["news."],
        &["news.sport", "weather", "news.sport"],
        &["nothing"],
    ];
    let subscribers = subscribed.map(|topics| stage.peers.subscriber(stage.publish(), topics));
    for (number, subscriber) in subscribers.iter().enumerate() {
        wait_for(&publisher, subscriber, &format!("waiting {number}"));
    }
    let published = [
        ("news.sport", json!({"score": [1, 0]})),
        ("news.local", json!("ä")),
        ("news", json!(null)),
        ("weather", json!("rain")),
        ("News.sport", json!(2)),
        ("", json!(3)),
    ];
    for (topic, message) in &published {
        publisher.publish(topic, message);
    }
    let wanted: [&[&str]; 4] = [
        &[
            "news.sport",
            "news.local",
            "news",
            "weather",
            "News.sport",
            "",
        ],
        &["news.sport", "news.local"],
        &["news.sport", "weather"],
        &[],
    ];
    for (number, (subscriber, wanted)) in subscribers.iter().zip(wanted).enumerate() {
        let heard = heard(&publisher, subscriber, &format!("waiting {number}"));
        assert_eq!(
            heard.iter().map(|frames| &frames[0]).collect::<Vec<_>>(),
            wanted
        );
        for frames in heard {
            let (_, message) = published
                .iter()
                .find(|(topic, _)| *topic == frames[0])
                .unwrap();
            assert_eq!(
                &serde_json::from_str::<serde_json::Value>(&frames[1]).unwrap(),
                message
            );
            assert_eq!(frames.len(), 2);
        }
    }
}

fn subscriptions_end(stage: &Stage) {
    let publisher = stage.client();
    let subscriber = stage.peers.subscriber(stage.publish(), &["a", "b", "b"]);
    wait_for(&publisher, &subscriber, "1");
    subscriber.unsubscribe("a");
    subscriber.unsubscribe("b");
    wait_for(&publisher, &subscriber, "2");
    for topic in ["a", "b"] {
        publisher.publish(topic, &json!(topic));
    }
    // A topic that was subscribed to twice ends with the second cancellation.
    assert_eq!(heard(&publisher, &subscriber, "2"), [["b", "\"b\""]]);
}

/// Subscribers come and go, and come back when the daemon does.
#[test]
fn subscribers_outlive_the_daemon() {
    let mut stage = Stage::new();
    let publisher = stage.client();
    let subscriber = stage.peers.subscriber(stage.publish(), &["a"]);
    wait_for(&publisher, &subscriber, "1");
    drop(stage.peers.subscriber(stage.publish(), &["a"]));
    stage.daemon_mut().kill();
    stage.daemon_mut().restart();
    wait_for(&publisher, &subscriber, "2");
    publisher.publish("a", &json!("again"));
    assert_eq!(heard(&publisher, &subscriber, "2"), [["a", "\"again\""]]);
}

/// With headers, as the specification allows for clients, and with any bytes.
fn messages_that_the_stock_client_does_not_send(stage: &Stage) {
    let publisher = stage.client();
    let subscriber = stage.peers.subscriber(stage.publish(), &["raw"]);
    wait_for(&publisher, &subscriber, "1");
    publisher.say("PUBLISH", &["raw", "guarantee", "message"]);
    publisher.say("PUBLISH", &["raw \u{ff}", "\u{0}\u{fe}"]);
    publisher.say("PUBLISH", &["raw"]);
    assert_eq!(
        heard(&publisher, &subscriber, "1"),
        [["raw", "message"], ["raw \u{ff}", "\u{0}\u{fe}"]]
    );
}
