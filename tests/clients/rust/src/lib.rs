//! What the programs of ../../README.md have in common: their records, what they print, and how they end.

use serde_json::json;

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

pub fn key_of(number: usize) -> String {
    format!("key {number}")
}

pub fn value_of(number: usize) -> String {
    format!("value {number} ").repeat(20)
}

pub fn print_record(partition: i32, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
    let [key, value] = [key, value].map(|bytes| bytes.map(String::from_utf8_lossy));
    println!("{}", json!({"partition": partition, "offset": offset, "key": key, "value": value}));
}

/// The first and the next offset of a partition, and that of the first record at a time or later.
pub fn print_offsets(partition: i32, earliest: i64, latest: i64, at: i64) {
    println!("{}", json!({"partition": partition, "earliest": earliest, "latest": latest, "at": at}));
}

pub fn unknown(command: &[&str]) -> Outcome {
    Err(format!("unknown command {command:?}").into())
}
