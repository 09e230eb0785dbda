//! The requests of one client: made once, and changed in places for each use.

use std::{ops::Range, sync::Arc};

use crate::{
    Result,
    gateway::{http::Signer, load::Kind},
    workload::{ITEM_BYTES, ITEMS_PER_PARTITION, Random, item_id, partition_of},
};

/// Items that are read one at a time.
pub(super) const READ_ITEMS: u64 = 1000;
/// Items of the page of a feed.
pub(super) const FEED_ITEMS: u64 = 100;
pub(super) const KEY: &str = "x-ms-documentdb-partitionkey";

/// Stand for the number of the item, the number of its partition and random text; as long as what
/// takes their place.
const ITEM: &str = "<item number->";
const PARTITION: &str = "<partition no>";
const TEXT: char = '~';

/// The requests of one client.
pub(super) struct Requests {
    random: Random,
    kept: Kept,
    item_next: u64,
}

enum Kept {
    /// Every request writes something new.
    Template(Template),
    /// Whole requests that only read, and the one that is due.
    Made(Arc<Vec<Vec<u8>>>, usize),
}

/// A request with places that differ from one use to the next.
struct Template {
    bytes: Vec<u8>,
    items: Vec<Range<usize>>,
    partitions: Vec<Range<usize>>,
    texts: Vec<Range<usize>>,
}

/// What all clients of a round have in common.
pub(super) struct Plan {
    /// A request as text with places that differ; none if it only reads.
    template: Option<String>,
    made: Arc<Vec<Vec<u8>>>,
}

impl Plan {
    pub(super) fn new(kind: Kind, signer: &Signer) -> Result<Self> {
        let path = kind.path();
        let (template, made) = match kind {
            Kind::Read => (None, reads(signer, &path)?),
            Kind::Create => (Some(post(signer, &path, &[], &body(""))?), Vec::new()),
            Kind::Batch => {
                let headers = [
                    ("x-ms-cosmos-is-batch-request", "True"),
                    ("x-ms-cosmos-batch-atomic", "True"),
                ];
                let operation =
                    |it| format!(r#"{{"operationType":"Create","resourceBody":{}}}"#, body(it));
                let text = format!("[{},{}]", operation(""), operation("-second"));
                (Some(post(signer, &path, &headers, &text)?), Vec::new())
            }
            Kind::Feed => {
                let count = FEED_ITEMS.to_string();
                let headers = [
                    ("a-im", "Incremental Feed"),
                    ("x-ms-documentdb-partitionkeyrangeid", "0"),
                    ("x-ms-max-item-count", count.as_str()),
                ];
                (None, vec![signer.request("GET", &path, &headers, "")?])
            }
        };
        Ok(Self { template, made: Arc::new(made) })
    }

    /// The requests of a client, which no other has the number of.
    pub(super) fn requests(&self, client: u64) -> Requests {
        let kept = match &self.template {
            Some(text) => Kept::Template(Template::new(text)),
            None => Kept::Made(Arc::clone(&self.made), 0),
        };
        Requests { random: Random::new(client), kept, item_next: client << 24 }
    }
}

impl Requests {
    /// Makes the next request the current one.
    pub(super) fn advance(&mut self) {
        match &mut self.kept {
            Kept::Template(template) => {
                template.fill(self.item_next, &mut self.random);
                self.item_next += 1;
            }
            Kept::Made(requests, current) => {
                let count = u64::try_from(requests.len()).unwrap_or(u64::MAX);
                *current = usize::try_from(self.random.below(count)).unwrap_or_default();
            }
        }
    }

    /// The request that is due.
    pub(super) fn current(&self) -> &[u8] {
        match &self.kept {
            Kept::Template(template) => &template.bytes,
            Kept::Made(requests, current) => &requests[*current],
        }
    }
}

impl Template {
    fn new(text: &str) -> Self {
        let places = |mark: &str| {
            text.match_indices(mark).map(|(at, it)| at..at + it.len()).collect::<Vec<_>>()
        };
        let mut texts: Vec<Range<usize>> = Vec::new();
        for (at, _) in text.match_indices(TEXT) {
            match texts.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                Some(_) | None => texts.push(at..at + 1),
            }
        }
        let (items, partitions) = (places(ITEM), places(PARTITION));
        Self { bytes: text.as_bytes().to_vec(), items, partitions, texts }
    }

    fn fill(&mut self, item: u64, random: &mut Random) {
        for (places, number) in
            [(&self.items, item), (&self.partitions, item / ITEMS_PER_PARTITION)]
        {
            for place in places {
                write_number(&mut self.bytes[place.clone()], number);
            }
        }
        for place in &self.texts {
            let text = random.text(place.len());
            self.bytes[place.clone()].copy_from_slice(text.as_bytes());
        }
    }
}

/// Fills the place with the digits of a number, zeros first.
fn write_number(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit is less than ten");
        number /= 10;
    }
}

/// An item with places that differ, as long as every item.
fn body(suffix: &str) -> String {
    let mut text =
        format!(r#"{{"id":"item-{ITEM}{suffix}","partitionKey":"partition-{PARTITION}","#);
    text += r#""type":"contact","revision":0,"text":""#;
    while text.len() < ITEM_BYTES - 2 {
        text.push(TEXT);
    }
    text + "\"}"
}

fn post(signer: &Signer, path: &str, headers: &[(&str, &str)], body: &str) -> Result<String> {
    let key = format!("[\"partition-{PARTITION}\"]");
    let headers = [headers, &[(KEY, &key)]].concat();
    Ok(String::from_utf8(signer.request("POST", path, &headers, body)?)?)
}

/// A point read of each item. Signing one takes about as long as answering it.
fn reads(signer: &Signer, path: &str) -> Result<Vec<Vec<u8>>> {
    let read = |item| {
        let key = format!("[\"{}\"]", partition_of(item));
        signer.request("GET", &format!("{path}/{}", item_id(item)), &[(KEY, &key)], "")
    };
    (0..READ_ITEMS).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Kind, client: u64, wanted: &[&str]) -> Vec<u8> {
        let mut requests = Plan::new(kind, &Signer::new()).unwrap().requests(client);
        requests.advance();
        let text = std::str::from_utf8(requests.current()).unwrap().to_owned();
        for wanted in wanted {
            assert!(text.contains(wanted), "{text} lacks {wanted}");
        }
        assert!(!text.contains(TEXT) && !text.contains('<'), "{text}");
        requests.advance();
        requests.current().to_vec()
    }

    #[test]
    fn every_create_is_a_new_item_of_the_length_of_all() {
        let wanted = [
            r#"{"id":"item-00000016777216","partitionKey":"partition-00000001677721","#,
            "x-ms-documentdb-partitionkey: [\"partition-00000001677721\"]\r\n",
            "content-length: 600\r\n",
        ];
        let next = check(Kind::Create, 1, &wanted);
        assert!(String::from_utf8(next).unwrap().contains("item-00000016777217"));
    }

    #[test]
    fn a_batch_makes_two_items_of_one_partition() {
        let wanted = ["\"item-00000050331648\"", "\"item-00000050331648-second\""];
        check(Kind::Batch, 3, &wanted);
    }

    #[test]
    fn reads_are_of_items_that_are_there() {
        check(Kind::Read, 1, &["GET /dbs/bench/colls/read/docs/item-00000"]);
        check(Kind::Feed, 1, &["a-im: Incremental Feed\r\n"]);
    }
}
