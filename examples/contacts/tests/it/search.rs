use axum::body::{Body, to_bytes};
use axum::http::Request;
use contacts::{Draft, SearchIndex};
use serde_json::Value;
use tower::ServiceExt;

use crate::subscription::message;
use crate::world::World;

async fn get(world: &World, query: &str) -> (u16, Value) {
    let index = SearchIndex::new(&world.containers.search).unwrap();
    let uri = format!("/api/search?{query}");
    let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
    let response = contacts::search_router(index).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn contacts_are_found_by_any_part() {
    let world = World::new().await;
    let index = SearchIndex::new(&world.containers.search).unwrap();
    for (first, company) in [("Ada", "Engines"), ("Barbara", "Looms"), ("Grace", "Engines")] {
        let email = Some(format!("{}@example.com", first.to_lowercase()));
        let company_name = company.to_owned();
        let draft = Draft { email, company_name, ..Draft::named(first, "King") };
        world.service.create(&draft).await.unwrap();
    }
    for event in world.events().await {
        index.handle(&message(&event)).await.unwrap();
    }
    for (query, found) in [
        ("", 3),
        ("text=ada+king", 1),
        ("text=ENGINES", 2),
        ("text=grace@", 1),
        ("text=nobody", 0),
        ("max=2", 2),
    ] {
        let (status, body) = get(&world, query).await;
        assert_eq!((status, body["items"].as_array().unwrap().len()), (200, found), "{query}");
    }
    let (_, body) = get(&world, "text=looms").await;
    assert_eq!(body["items"][0]["fullName"], "Barbara King");
    for query in ["max=0", "max=101", "max=all"] {
        assert_eq!(get(&world, query).await.0, 400, "{query}");
    }
    world.faults.set_down(true);
    assert_eq!(get(&world, "").await.0, 503);
}
