use super::*;
use crate::subject::Page;

fn version(lsn: u64, item: &str) -> Version {
    Version { lsn, etag: format!("{item}{lsn}") }
}

fn ack(writer: u32, number: u64, lsn: u64) -> Ack {
    Ack {
        writer,
        number,
        range: 0,
        lsn,
        entity_etag: format!("n{lsn}"),
        event_etag: format!("v{lsn}"),
    }
}

fn feed_item(writer: u32, name: ItemName, lsn: u64) -> FeedItem {
    let item = if name == ItemName::Entity { "n" } else { "v" };
    FeedItem { writer, name, version: version(lsn, item) }
}

/// Writer 1 has committed at 1, 2 and 4, writer 2 at 3.
fn healthy() -> (Vec<Ack>, Observed) {
    let acks = vec![ack(1, 1, 1), ack(1, 2, 2), ack(2, 1, 3), ack(1, 3, 4)];
    let first = Partition {
        range: 0,
        entity: Some((3, version(4, "n"))),
        events: [(1, version(1, "v")), (2, version(2, "v")), (3, version(4, "v"))].into(),
    };
    let second = Partition {
        range: 0,
        entity: Some((1, version(3, "n"))),
        events: [(1, version(3, "v"))].into(),
    };
    let feed = vec![
        Page {
            range: 0,
            items: vec![feed_item(1, ItemName::Event(1), 1), feed_item(1, ItemName::Event(2), 2)],
        },
        Page {
            range: 0,
            items: vec![feed_item(2, ItemName::Entity, 3), feed_item(2, ItemName::Event(1), 3)],
        },
        Page {
            range: 0,
            items: vec![feed_item(1, ItemName::Entity, 4), feed_item(1, ItemName::Event(3), 4)],
        },
    ];
    let next = vec![ack(1, 4, 5), ack(2, 2, 6)];
    (acks, Observed { writers: [(1, first), (2, second)].into(), feed, next })
}

/// Plants a fault into a healthy store; exactly these promises must be found broken.
#[track_caller]
fn check_planted(plant: impl FnOnce(&mut Vec<Ack>, &mut Observed), expected: &[Rule]) {
    let (mut acks, mut observed) = healthy();
    plant(&mut acks, &mut observed);
    let found: BTreeSet<Rule> = check(&acks, &observed).into_iter().map(|it| it.rule).collect();
    assert_eq!(found, expected.iter().copied().collect(), "{:?}", check(&acks, &observed));
}

fn first(observed: &mut Observed) -> &mut Partition {
    observed.writers.get_mut(&1).unwrap()
}

#[test]
fn a_healthy_store_breaks_nothing() {
    check_planted(|_, _| {}, &[]);
    check_planted(|_, observed| *observed = Observed::default(), &[Rule::AcknowledgedIsThere]);
    assert_eq!(check(&[], &Observed::default()), []);
}

#[test]
fn a_commit_that_was_not_acknowledged_may_be_there() {
    check_planted(|acks, _| drop(acks.pop()), &[]);
}

#[test]
fn finds_a_lost_commit() {
    check_planted(
        |_, observed| {
            let partition = first(observed);
            partition.entity = Some((2, version(2, "n")));
            partition.events.remove(&3);
            observed.feed[0].items[1] = feed_item(1, ItemName::Entity, 2);
            observed.feed[0].items.push(feed_item(1, ItemName::Event(2), 2));
            observed.feed.pop();
            observed.next[0].number = 3;
        },
        &[Rule::AcknowledgedIsThere],
    );
}

#[test]
fn finds_half_a_batch() {
    check_planted(
        |acks, observed| {
            acks.pop();
            first(observed).events.remove(&3);
            observed.feed[2].items.pop();
        },
        &[Rule::BatchIsWhole],
    );
    check_planted(
        |acks, observed| {
            acks.pop();
            first(observed).entity = Some((2, version(2, "n")));
            observed.feed[2].items.remove(0);
            observed.feed[0].items.push(feed_item(1, ItemName::Entity, 2));
            observed.next[0].number = 3;
        },
        &[Rule::BatchIsWhole],
    );
    check_planted(
        |acks, observed| {
            acks.pop();
            first(observed).entity = Some((3, version(5, "n")));
            observed.feed[2].items.swap(0, 1);
            observed.feed[2].items[1] = feed_item(1, ItemName::Entity, 5);
            observed.next[0] = ack(1, 4, 6);
            observed.next[1] = ack(2, 2, 7);
        },
        &[Rule::BatchIsWhole],
    );
}

#[test]
fn finds_another_version_than_acknowledged() {
    let change = |_: &mut Vec<Ack>, observed: &mut Observed| {
        first(observed).events.insert(2, Version { lsn: 2, etag: "other".to_owned() });
        observed.feed[0].items[1].version.etag = "other".to_owned();
    };
    check_planted(change, &[Rule::VersionStays]);
    check_planted(|acks, _| acks[3].entity_etag = "other".to_owned(), &[Rule::VersionStays]);
    check_planted(|acks, _| acks[2].range = 1, &[Rule::VersionStays]);
}

#[test]
fn finds_a_gap_and_a_repetition_in_the_feed() {
    check_planted(|_, observed| drop(observed.feed.remove(1)), &[Rule::FeedIsComplete]);
    check_planted(
        |_, observed| {
            let item = observed.feed[2].items[1].clone();
            observed.feed[2].items.push(item);
        },
        &[Rule::FeedIsComplete],
    );
    check_planted(
        |_, observed| observed.feed[1].items[0].version.etag = "old".to_owned(),
        &[Rule::FeedIsComplete],
    );
}

#[test]
fn finds_a_feed_out_of_order() {
    check_planted(|_, observed| observed.feed.swap(1, 2), &[Rule::FeedIsOrdered]);
}

#[test]
fn finds_a_batch_cut_at_the_end_of_a_page() {
    check_planted(
        |_, observed| {
            let rest = observed.feed[1].items.split_off(1);
            observed.feed.insert(2, Page { range: 0, items: rest });
        },
        &[Rule::PageKeepsBatch],
    );
}

#[test]
fn finds_a_commit_number_used_twice() {
    check_planted(|_, observed| observed.next[0].lsn = 4, &[Rule::NumbersGrow]);
    check_planted(|_, observed| observed.next[1].lsn = 5, &[Rule::NumbersGrow]);
    check_planted(
        |acks, observed| {
            acks[2] = ack(2, 1, 2);
            let second = observed.writers.get_mut(&2).unwrap();
            second.entity = Some((1, version(2, "n")));
            second.events.insert(1, version(2, "v"));
            let items = [feed_item(2, ItemName::Entity, 2), feed_item(2, ItemName::Event(1), 2)];
            observed.feed[0].items.extend(items);
            observed.feed.remove(1);
        },
        &[Rule::NumbersGrow],
    );
}

#[test]
fn finds_an_etag_used_twice() {
    check_planted(|_, observed| observed.next[0].entity_etag = "n2".to_owned(), &[Rule::EtagIsNew]);
    check_planted(|acks, _| acks[1].entity_etag = "n4".to_owned(), &[Rule::EtagIsNew]);
}

#[test]
fn finds_a_counter_that_jumps() {
    check_planted(|_, observed| observed.next[1].number = 3, &[Rule::BatchIsWhole]);
}
