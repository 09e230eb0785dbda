use axum::body::Body;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_reader_who_has_the_version_gets_no_body() {
    let world = World::new().await;
    let path = world.created().await;
    let etag = world.get(&path).await.etag();
    let line = format!("GET {path}");
    for known in [etag.clone(), format!("\"other\", W/{etag}"), "*".to_owned()] {
        let answer = world.send(&line, &[("if-none-match", &known)], Body::empty()).await;
        assert_eq!((answer.status.as_u16(), answer.etag()), (304, etag.clone()), "{known}");
        assert!(answer.body.is_null());
    }
    let answer = world.send(&line, &[("if-none-match", "\"other\"")], Body::empty()).await;
    assert_eq!(answer.status, 200);
    let answer = world.send(&line, &[("if-none-match", "other")], Body::empty()).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn a_change_of_an_old_version_is_refused() {
    let world = World::new().await;
    let path = world.created().await;
    let (first, update) = (world.get(&path).await.etag(), format!("{path}/update-name"));
    let body = json!({"firstName": "Augusta", "lastName": "King"});
    let answer = world.post_with(&update, &[("if-match", &first)], body).await;
    assert_eq!(answer.status, 204);
    let second = answer.etag();
    assert_ne!(first, second);

    let body = json!({"firstName": "Annabella", "lastName": "King"});
    for old in [first.as_str(), "\"other\"", &format!("W/{second}")] {
        let answer = world.post_with(&update, &[("if-match", old)], body.clone()).await;
        assert_eq!(answer.status, 412, "{old}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let delete = format!("DELETE {path}");
    let answer = world.send(&delete, &[("if-match", &first)], Body::empty()).await;
    assert_eq!(answer.status, 412);
    assert_eq!(world.get(&path).await.body["name"]["firstName"], "Augusta");

    let several = format!("{first}, {second}");
    let answer = world.post_with(&update, &[("if-match", &several)], body.clone()).await;
    assert_eq!(answer.status, 204);
    let answer = world.post_with(&update, &[("if-match", "*")], body.clone()).await;
    assert_eq!((answer.status.as_u16(), answer.etag()), (204, world.get(&path).await.etag()));
    let answer = world.post_with(&update, &[("if-match", "unquoted")], body).await;
    assert_eq!(answer.status, 400);
    let answer = world.send(&delete, &[("if-match", &world.get(&path).await.etag())], "").await;
    assert_eq!(answer.status, 204);
    let expected = ["ContactCreated", "ContactNameUpdated", "ContactNameUpdated", "ContactDeleted"];
    assert_eq!(world.actions().await, expected);
}

#[tokio::test]
async fn an_old_version_is_refused_even_if_nothing_would_change() {
    let world = World::new().await;
    let path = world.created().await;
    let body = json!({"email": "ada@example.com"});
    let headers = [("if-match", "\"other\"")];
    let answer = world.post_with(&format!("{path}/update-email"), &headers, body).await;
    assert_eq!(answer.status, 412);
}

#[tokio::test]
async fn who_comes_second_at_the_same_moment_hears_of_it() {
    let world = World::new().await;
    let path = world.created().await;
    let (etag, update) = (world.get(&path).await.etag(), format!("{path}/update-email"));
    let body = json!({"email": null});
    world.faults.plan("c");
    let answer = world.post(&update, body.clone()).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    world.faults.plan("c");
    let answer = world.post_with(&update, &[("if-match", &etag)], body.clone()).await;
    assert_eq!(answer.status, 412);
    assert_eq!(world.post(&update, body).await.status, 204);
}
