//! The client rdkafka, by the contract of ../../../README.md.

use std::time::Duration;

use clients::{Outcome, key_of, print_offsets, print_record, unknown, value_of};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, StreamConsumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments[1]);
    let command: Vec<&str> = arguments[2..].iter().map(String::as_str).collect();
    match command[..] {
        ["produce", topic, codec, kind, count] => produce(config, topic, codec, kind == "idempotent", count.parse()?),
        ["consume", topic, group, count] => consume(config, topic, group, Some(count.parse()?)).await,
        ["member", topic, group] => consume(config, topic, group, None).await,
        ["offsets", topic, millisecond] => offsets(config, topic, millisecond.parse()?),
        ["list-groups"] => list_groups(config),
        ["describe-group", group] => describe_group(config, group),
        _ => administrate(config, &command).await,
    }
}

fn produce(mut config: ClientConfig, topic: &str, codec: &str, idempotent: bool, count: usize) -> Outcome {
    config.set("compression.type", codec);
    config.set("enable.idempotence", idempotent.to_string());
    let producer: BaseProducer = config.create()?;
    for number in 0..count {
        let (key, value) = (key_of(number), value_of(number));
        let record = BaseRecord::to(topic).key(&key).payload(&value);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    Ok(producer.flush(PATIENCE)?)
}

/// Prints and commits records, one after the other: as many as are wanted, or until SIGTERM.
async fn consume(mut config: ClientConfig, topic: &str, group: &str, wanted: Option<usize>) -> Outcome {
    config.set("group.id", group);
    config.set("auto.offset.reset", "earliest");
    config.set("enable.auto.commit", "false");
    config.set("session.timeout.ms", "6000");
    config.set("heartbeat.interval.ms", "500");
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    let mut ended = signal(SignalKind::terminate())?;
    let mut count = 0;
    while Some(count) != wanted {
        let message = tokio::select! {
            received = consumer.recv() => received?,
            _ = ended.recv() => break,
        };
        print_record(message.partition(), message.offset(), message.key(), message.payload());
        // It is another member's by now, which reads it again.
        if let Err(error) = consumer.commit_message(&message, CommitMode::Sync) {
            eprintln!("not committed: {error}");
        }
        count += 1;
    }
    Ok(())
}

fn offsets(config: ClientConfig, topic: &str, millisecond: i64) -> Outcome {
    let consumer: BaseConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE)?;
    for partition in metadata.topics()[0].partitions() {
        let number = partition.id();
        let (earliest, latest) = consumer.fetch_watermarks(topic, number, PATIENCE)?;
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(topic, number, Offset::Offset(millisecond))?;
        let found = consumer.offsets_for_times(times, PATIENCE)?;
        let at = found.elements()[0].offset().to_raw().ok_or("no offset")?;
        print_offsets(number, earliest, latest, at);
    }
    Ok(())
}

fn list_groups(config: ClientConfig) -> Outcome {
    let consumer: BaseConsumer = config.create()?;
    for group in consumer.fetch_group_list(None, PATIENCE)?.groups() {
        println!("{}", json!({"group": group.name()}));
    }
    Ok(())
}

fn describe_group(config: ClientConfig, name: &str) -> Outcome {
    let consumer: BaseConsumer = config.create()?;
    let list = consumer.fetch_group_list(Some(name), PATIENCE)?;
    let group = &list.groups()[0];
    println!("{}", json!({"state": group.state(), "members": group.members().len()}));
    Ok(())
}

async fn administrate(config: ClientConfig, command: &[&str]) -> Outcome {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let mut results = match command {
        ["create-topic", topic, partitions] => {
            let new = NewTopic::new(topic, partitions.parse()?, TopicReplication::Fixed(1));
            admin.create_topics(&[new], &options).await?
        }
        ["grow-topic", topic, partitions] => {
            let new = NewPartitions::new(topic, partitions.parse()?);
            admin.create_partitions(&[new], &options).await?
        }
        ["delete-topic", topic] => admin.delete_topics(&[topic], &options).await?,
        ["delete-group", group] => admin.delete_groups(&[group], &options).await?,
        _ => return unknown(command),
    };
    let outcome: Result<String, (String, RDKafkaErrorCode)> = results.remove(0);
    outcome.map_err(|(name, code)| format!("{name}: {code}"))?;
    Ok(())
}
