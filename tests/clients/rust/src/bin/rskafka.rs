//! The client rskafka, by the contract of ../../../README.md. It has no groups and cannot add partitions.

use chrono::{DateTime, Utc};
use clients::{Outcome, key_of, print_offsets, print_record, unknown, value_of};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const PATIENCE_MS: i32 = 60_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let client = ClientBuilder::new(vec![arguments[1].clone()]).build().await?;
    let command: Vec<&str> = arguments[2..].iter().map(String::as_str).collect();
    match command[..] {
        ["produce", topic, codec, "plain", count] => produce(client, topic, codec, count.parse()?).await,
        ["consume", topic, "-", count] => consume(client, topic, count.parse()?).await,
        ["create-topic", topic, partitions] => {
            let controller = client.controller_client()?;
            Ok(controller.create_topic(topic, partitions.parse()?, 1, PATIENCE_MS).await?)
        }
        ["delete-topic", topic] => Ok(client.controller_client()?.delete_topic(topic, PATIENCE_MS).await?),
        ["offsets", topic, millisecond] => offsets(client, topic, millisecond.parse()?).await,
        _ => unknown(&command),
    }
}

/// A client of each of a topic's partitions.
async fn partitions(client: &Client, name: &str) -> Result<Vec<PartitionClient>, Box<dyn std::error::Error>> {
    let topics = client.list_topics().await?;
    let topic = topics.iter().find(|topic| topic.name == name).ok_or("no such topic")?;
    let mut found = Vec::new();
    for partition in &topic.partitions {
        found.push(client.partition_client(name, *partition, UnknownTopicHandling::Error).await?);
    }
    Ok(found)
}

async fn produce(client: Client, topic: &str, codec: &str, count: usize) -> Outcome {
    let compression = match codec {
        "none" => Compression::NoCompression,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => return Err(format!("unknown codec {codec}").into()),
    };
    let partitions = partitions(&client, topic).await?;
    for (number, partition) in partitions.iter().enumerate() {
        let records = (number..count).step_by(partitions.len()).map(|number| Record {
            key: Some(key_of(number).into()),
            value: Some(value_of(number).into()),
            headers: Default::default(),
            timestamp: Utc::now(),
        });
        partition.produce(records.collect(), compression).await?;
    }
    Ok(())
}

/// Reads each partition to its end; no group is asked, nothing committed.
async fn consume(client: Client, topic: &str, count: usize) -> Outcome {
    let mut left = count;
    for partition in partitions(&client, topic).await? {
        let mut next = partition.get_offset(OffsetAt::Earliest).await?;
        while next < partition.get_offset(OffsetAt::Latest).await? && left > 0 {
            let (records, _) = partition.fetch_records(next, 1..1 << 20, PATIENCE_MS).await?;
            for found in records.iter().take(left) {
                let (key, value) = (found.record.key.as_deref(), found.record.value.as_deref());
                print_record(partition.partition(), found.offset, key, value);
                next = found.offset + 1;
            }
            left -= records.len().min(left);
        }
    }
    Ok(())
}

async fn offsets(client: Client, topic: &str, millisecond: i64) -> Outcome {
    let time = DateTime::from_timestamp_millis(millisecond).ok_or("no such time")?;
    for partition in partitions(&client, topic).await? {
        let earliest = partition.get_offset(OffsetAt::Earliest).await?;
        let latest = partition.get_offset(OffsetAt::Latest).await?;
        let at = partition.get_offset(OffsetAt::Timestamp(time)).await?;
        print_offsets(partition.partition(), earliest, latest, at);
    }
    Ok(())
}
