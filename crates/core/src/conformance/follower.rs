//! A reader that follows its keys through splits and merges, as a processor does.

use crate::conformance::harness::{drain, must};
use crate::{Change, Container, Continuation, ErrorKind, KeyRange, PageSize};

/// Places in the feed that together cover the keys it began with.
#[derive(Clone)]
pub(super) struct Follower {
    places: Vec<(KeyRange, Continuation)>,
    pub(super) seen: Vec<Change>,
}

impl Follower {
    pub(super) fn new(keys: KeyRange, after: Continuation) -> Self {
        Self { places: vec![(keys, after)], seen: Vec::new() }
    }

    /// Reads everything there is. Where ranges have moved it asks for them and goes on in each
    /// part.
    pub(super) async fn catch_up(&mut self, container: &Container, size: PageSize) {
        let mut open = std::mem::take(&mut self.places);
        open.reverse();
        let mut moves = 0;
        while let Some((keys, after)) = open.pop() {
            match drain(container, &keys, &after, size).await {
                Ok((changes, next)) => {
                    self.seen.extend(changes);
                    self.places.push((keys, next));
                }
                Err(error) if error.kind() == ErrorKind::RangeMoved => {
                    moves += 1;
                    assert!(moves < 1000, "ranges move all the time although nobody moves them");
                    let ranges = must(container.feed.ranges().await);
                    let parts = ranges.iter().rev().filter_map(|it| it.keys.intersect(&keys));
                    open.extend(parts.map(|part| (part, after.clone())));
                }
                Err(error) => panic!("could not follow {keys} from {after}: {}", error.report()),
            }
        }
    }
}
