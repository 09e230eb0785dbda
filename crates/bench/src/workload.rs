//! What every writer commits: an update of a 600-byte item and the insert of a 400-byte event.

use std::sync::LazyLock;

pub(crate) const ITEM_BYTES: usize = 600;
pub(crate) const EVENT_BYTES: usize = 400;

/// Also the number of items loaded in one batch.
pub(crate) const ITEMS_PER_PARTITION: u64 = 10;
/// Much longer than any body, so that pieces hardly repeat.
const POOL_BYTES: usize = 1024 * 1024;
/// 64 letters, so that a body does not compress well.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A small generator of random numbers; the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        assert!(0 < limit, "there is no number below zero");
        self.next() % limit
    }

    /// `start` and `end` with random text between them, so many bytes together.
    pub(crate) fn filled(&mut self, mut start: String, length: usize, end: &str) -> String {
        assert!(start.len() + end.len() <= length, "the names alone are longer than the body");
        start.reserve(length - start.len());
        start.push_str(self.text(length - end.len() - start.len()));
        start.push_str(end);
        start
    }

    /// So many random letters.
    pub(crate) fn text(&mut self, length: usize) -> &'static str {
        static POOL: LazyLock<String> = LazyLock::new(pool);
        let starts = u64::try_from(POOL_BYTES - length).expect("a usize fits into 64 bits");
        let start = usize::try_from(self.below(starts)).expect("it is an index of the pool");
        &POOL[start..start + length]
    }
}

/// Random text to take pieces from. Making every body letter by letter cost a tenth of a commit.
fn pool() -> String {
    let mut random = Random::new(0);
    let letter = |_| {
        let letter = usize::try_from(random.below(64)).expect("a number below 64");
        char::from(LETTERS[letter])
    };
    (0..POOL_BYTES).map(letter).collect()
}

/// One commit: a new body for an existing item, and a new event, both of one partition.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) item: u64,
    /// Unique among the events of all writers and rounds of a run.
    pub(crate) event: u64,
    pub(crate) item_body: String,
    pub(crate) event_body: String,
}

/// Makes the pairs of one writer.
#[derive(Debug)]
pub(crate) struct Pairs {
    random: Random,
    items: u64,
    event_next: u64,
}

impl Pairs {
    /// `writer` must be new for every writer of every round, or event ids repeat.
    pub(crate) fn new(writer: u32, items: u64) -> Self {
        let writer = u64::from(writer);
        Self { random: Random::new(writer), items, event_next: writer << 32 }
    }

    pub(crate) fn next(&mut self) -> Pair {
        let item = self.random.below(self.items);
        let event = self.event_next;
        self.event_next += 1;
        let item_body = item_body(item, event, Shape::CONTACT, &mut self.random);
        let event_body = event_body(item, event, &mut self.random);
        Pair { item, event, item_body, event_body }
    }
}

/// The partition key of an item and its events.
pub(crate) fn partition_of(item: u64) -> String {
    format!("partition-{:06}", item / ITEMS_PER_PARTITION)
}

/// The `id` of an item.
pub(crate) fn item_id(item: u64) -> String {
    format!("item-{item:08}")
}

/// The `id` of an event.
pub(crate) fn event_id(event: u64) -> String {
    format!("event-{event:016x}")
}

/// What an item looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) bytes: usize,
    pub(crate) ttl_seconds: Option<u32>,
}

impl Shape {
    /// The item of `bench commit`.
    pub(crate) const CONTACT: Self = Self { bytes: ITEM_BYTES, ttl_seconds: None };
}

/// An item; `revision` makes each version of it different.
pub(crate) fn item_body(item: u64, revision: u64, shape: Shape, random: &mut Random) -> String {
    let ttl = shape.ttl_seconds.map_or_else(String::new, |it| format!(r#""ttl":{it},"#));
    let start = format!(
        r#"{{"id":"{}","partitionKey":"{}","type":"contact",{ttl}"revision":{revision},"text":""#,
        item_id(item),
        partition_of(item),
    );
    random.filled(start, shape.bytes, "\"}")
}

fn event_body(item: u64, event: u64, random: &mut Random) -> String {
    let start = format!(
        r#"{{"id":"{}","partitionKey":"{}","type":"domainEvent","action":"Changed","entityId":"{}","createdAt":"2026-11-15T10:00:00.000Z","data":{{"text":""#,
        event_id(event),
        partition_of(item),
        item_id(item),
    );
    random.filled(start, EVENT_BYTES, "\"}}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn bodies_are_exactly_as_long_as_promised() {
        for items in [1, 10_000, 5_000_000] {
            let pair = Pairs::new(u32::MAX, items).next();
            assert_eq!(pair.item_body.len(), ITEM_BYTES);
            assert_eq!(pair.event_body.len(), EVENT_BYTES);
            assert!(pair.item < items);
        }
    }

    #[test]
    fn writers_never_share_an_event_id() {
        let mut seen = BTreeSet::new();
        for writer in 0..20 {
            let mut pairs = Pairs::new(writer, 100);
            for _ in 0..50 {
                assert!(seen.insert(pairs.next().event));
            }
        }
    }
}
