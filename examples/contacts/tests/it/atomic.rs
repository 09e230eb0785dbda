use axum::body::Body;
use serde_json::json;

use crate::world::{World, ada};

/// Contacts and events that are stored, each under its type.
async fn stored(world: &World) -> (usize, usize) {
    let items = world.items().await;
    let events = items.iter().filter(|it| it.sequence.is_some()).count();
    (items.len() - events, events)
}

#[tokio::test]
async fn contact_and_event_commit_together_or_not_at_all() {
    let world = World::new().await;
    // Requests and answers are lost in every combination; three lost in a row are given up.
    for script in ["", "a", "r", "d", "o", "aa", "ar", "ra", "rr", "aaa", "rrr", "arr", "rra"] {
        let before = stored(&world).await;
        world.faults.plan(script);
        let answer = world.post("/api/contacts", ada()).await;
        world.faults.plan("");
        let after = stored(&world).await;
        let is_stored = script.is_empty()
            || script.contains('a')
            || script.ends_with("r") && { script.len() < 3 };
        let added = usize::from(is_stored);
        assert_eq!(after, (before.0 + added, before.1 + added), "{script}");
        if answer.status == 201 {
            assert!(is_stored, "{script}: acknowledged and lost");
        }
        if matches!(answer.status.as_u16(), 429 | 503) && !script.contains(['a', 'r']) {
            assert!(!is_stored, "{script}: refused and stored");
        }
    }
}

#[tokio::test]
async fn an_update_and_its_event_commit_together_or_not_at_all() {
    let world = World::new().await;
    let path = world.created().await;
    for (round, script) in ["", "a", "r", "d", "o", "c", "ra", "rrr"].into_iter().enumerate() {
        let (_, events) = stored(&world).await;
        let before = world.get(&path).await.body["description"].clone();
        world.faults.plan(script);
        let text = format!("round {round}");
        let update = format!("{path}/update-description");
        let answer = world.post(&update, json!({ "description": text })).await;
        world.faults.plan("");
        let is_stored = matches!(script, "" | "a" | "r" | "ra");
        let expected = if is_stored { json!(text) } else { before };
        assert_eq!(world.get(&path).await.body["description"], expected, "{script}");
        assert_eq!(stored(&world).await, (1, events + usize::from(is_stored)), "{script}");
        assert_eq!(answer.status == 204, is_stored, "{script}");
    }
}

#[tokio::test]
async fn a_delete_whose_answer_was_lost_tells_once() {
    let world = World::new().await;
    let path = world.created().await;
    world.faults.plan("a");
    let delete = format!("DELETE {path}");
    assert_eq!(world.send(&delete, &[], Body::empty()).await.status, 204);
    assert_eq!(world.send(&delete, &[], Body::empty()).await.status, 404);
    assert_eq!(world.actions().await, ["ContactCreated", "ContactDeleted"]);
    let events = world.events().await;
    assert_eq!(events.iter().map(|it| it.sequence).collect::<Vec<_>>(), [Some(1), Some(2)]);
}
