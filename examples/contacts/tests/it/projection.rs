use std::sync::Arc;
use std::time::Duration;

use contacts::{
    CompanyDraft, Draft, ProjectionOptions, ProjectionStatistics, SearchEntry, SearchIndex,
    SearchProjection,
};
use millstream_core::Message;
use uuid::Uuid;

use crate::subscription::{Subscription, message};
use crate::world::World;

/// Runs a projection until nothing is left.
async fn project(world: &World, subscription: &Subscription) -> ProjectionStatistics {
    let index = SearchIndex::new(&world.containers.search).unwrap();
    let options = ProjectionOptions::default().messages_max(3).pause(Duration::ZERO);
    let subscriber = Arc::new(subscription.clone());
    let projection = SearchProjection::new(subscriber, index, world.clock.clone(), options);
    let statistics = projection.statistics();
    projection.run(subscription.drained.clone()).await;
    statistics.get()
}

async fn entries(world: &World) -> Vec<SearchEntry> {
    let index = SearchIndex::new(&world.containers.search).unwrap();
    let mut entries = index.entries(100).await.unwrap();
    entries.sort_by(|one, two| one.full_name.cmp(&two.full_name));
    entries
}

/// `name email company` of a line.
fn line(entry: &SearchEntry) -> String {
    let parts = [&entry.full_name, &entry.email, &entry.company_name];
    parts.map(|it| it.as_deref().unwrap_or("-")).join(", ")
}

/// Three contacts with five events each; the last of them is deleted by its fifth.
async fn changes(world: &World) -> Vec<Message> {
    for name in ["Ada", "Barbara", "Grace"] {
        let company_name = "Engines".to_owned();
        let draft = Draft { company_name, ..Draft::named(name, "First") };
        let created = world.service.create(&draft).await.unwrap();
        let id: Uuid = created.contact.id.parse().unwrap();
        let service = &world.service;
        service.update_name(id, None, name, "Second").await.unwrap();
        service.update_description(id, None, Some("text")).await.unwrap();
        service.update_email(id, None, Some("a@example.com")).await.unwrap();
        let company = CompanyDraft { company_name: "Looms".into(), ..CompanyDraft::default() };
        if name == "Grace" {
            service.delete(id, None).await.unwrap();
        } else {
            service.update_company(id, None, &company).await.unwrap();
        }
    }
    world.events().await.iter().map(message).collect()
}

async fn assert_up_to_date(world: &World) {
    let lines: Vec<_> = entries(world).await.iter().map(line).collect();
    let expected = ["Ada Second, a@example.com, Looms", "Barbara Second, a@example.com, Looms"];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn the_list_shows_what_the_events_say() {
    let world = World::new().await;
    let subscription = Subscription::default();
    changes(&world).await.into_iter().for_each(|it| subscription.add(it));
    let statistics = project(&world, &subscription).await;
    assert_eq!(statistics, ProjectionStatistics { handled: 15, ..Default::default() });
    assert_up_to_date(&world).await;
    let index = SearchIndex::new(&world.containers.search).unwrap();
    let shown = entries(&world).await;
    assert_eq!(index.entry(&shown[0].id).await.unwrap().as_ref(), Some(&shown[0]));
    assert_eq!(index.entries(1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn duplicates_have_no_second_effect() {
    let world = World::new().await;
    let subscription = Subscription::default();
    let messages = changes(&world).await;
    for message in &messages {
        subscription.add(message.clone());
        subscription.add(message.clone());
    }
    let statistics = project(&world, &subscription).await;
    let expected = ProjectionStatistics { handled: 15, duplicates: 15, ..Default::default() };
    assert_eq!(statistics, expected);
    assert_up_to_date(&world).await;
    // The whole stream once more, long after.
    let subscription = Subscription::default();
    messages.into_iter().for_each(|it| subscription.add(it));
    let statistics = project(&world, &subscription).await;
    assert_eq!(statistics, ProjectionStatistics { duplicates: 15, ..Default::default() });
    assert_up_to_date(&world).await;
}

#[tokio::test]
async fn messages_whose_settlement_was_lost_come_again_and_do_nothing() {
    let world = World::new().await;
    let subscription = Subscription::default();
    changes(&world).await.into_iter().for_each(|it| subscription.add(it));
    subscription.lose_settlements(4);
    subscription.fail_accepts(2);
    let statistics = project(&world, &subscription).await;
    assert_eq!(statistics.handled, 15);
    assert_eq!(statistics.broker_failures, 6);
    assert!(0 < statistics.duplicates);
    assert_eq!(subscription.completed().len(), 15);
    assert_eq!(subscription.deliveries(), 15 + usize::try_from(statistics.duplicates).unwrap());
    assert_up_to_date(&world).await;
}

#[tokio::test]
async fn a_message_that_fails_is_abandoned_and_comes_again_in_order() {
    for script in ["d", "..d", "r", "a", ".a.r.d.o", "dddddd"] {
        let world = World::new().await;
        let subscription = Subscription::default();
        let messages = changes(&world).await;
        let ids: Vec<_> = messages.iter().map(|it| it.id.clone()).collect();
        messages.into_iter().for_each(|it| subscription.add(it));
        world.faults.plan(script);
        let statistics = project(&world, &subscription).await;
        assert!(0 < statistics.abandoned, "{script}");
        assert_eq!((statistics.gaps, statistics.late), (0, 0), "{script}");
        let lost_answers = script.matches('a').count();
        assert_eq!(statistics.handled, 15 - u64::try_from(lost_answers).unwrap(), "{script}");
        assert_up_to_date(&world).await;
        // Each contact was completed in the order of its events.
        let completed = subscription.completed();
        for contact in ids.chunks(5) {
            let own: Vec<_> = completed.iter().filter(|it| contact.contains(it)).collect();
            assert_eq!(own, contact.iter().collect::<Vec<_>>(), "{script}");
        }
    }
}

#[tokio::test]
async fn a_gap_and_what_comes_late_are_reported() {
    let world = World::new().await;
    let messages = changes(&world).await;
    let subscription = Subscription::default();
    // Of the first contact the name comes last; of the second the first event does.
    for place in [0, 2, 3, 4, 1, 6, 7, 8, 9, 5] {
        subscription.add(messages[place].clone());
    }
    let statistics = project(&world, &subscription).await;
    assert_eq!((statistics.gaps, statistics.late), (2, 2));
    assert_eq!(statistics.handled, 10);
    assert_up_to_date(&world).await;
}

#[tokio::test]
async fn a_message_that_nobody_can_read_goes_to_the_dead_letters_alone() {
    let world = World::new().await;
    let subscription = Subscription::default();
    let messages = changes(&world).await;
    let session = messages[0].session_id.clone().unwrap();
    subscription.add(messages[0].clone());
    for (id, body) in [("garbage", "no JSON"), ("empty", r#"{"action":"ContactNameUpdated"}"#)] {
        subscription.add(Message::new(id, body.to_owned()).session(session.as_str()));
    }
    messages.iter().skip(1).for_each(|it| subscription.add(it.clone()));
    // An event of a kind that nobody knew when this was written.
    let unknown = Message::new("unknown", r#"{"action":"ContactPraised"}"#).session("someone");
    subscription.add(unknown.property("sequence", 1));
    let statistics = project(&world, &subscription).await;
    assert_eq!((statistics.handled, statistics.dead_lettered), (16, 2));
    let expected = [("garbage", "Unreadable"), ("empty", "Unreadable")];
    assert_eq!(subscription.dead(), expected.map(|(id, it)| (id.to_owned(), it.to_owned())));
    assert_up_to_date(&world).await;
}
