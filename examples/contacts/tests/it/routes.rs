use axum::body::Body;
use serde_json::json;

use crate::world::{World, ada};

#[tokio::test]
async fn a_contact_is_created_and_read() {
    let world = World::new().await;
    let created = world.post("/api/contacts", ada()).await;
    assert_eq!(created.status, 201);
    let path = created.header("location").to_owned();
    assert_eq!(path, format!("/api/contacts/{}", created.body["id"].as_str().unwrap()));

    let read = world.get(&path).await;
    assert_eq!(read.status, 200);
    assert_eq!(read.etag(), created.etag());
    assert_eq!(read.body, created.body);
    let expected = json!({
        "id": "00000000-0000-0000-0000-000000000001",
        "name": {"firstName": "Ada", "lastName": "King"},
        "description": "A friend",
        "email": "ada@example.com",
        "company": {"companyName": "Analytical Engines"},
        "createdAt": "2026-02-09T11:07:37.302Z",
        "modifiedAt": null,
    });
    assert_eq!(read.body, expected);
    assert_eq!(world.actions().await, ["ContactCreated"]);
}

#[tokio::test]
async fn every_update_changes_its_part_and_tells() {
    let world = World::new().await;
    let path = world.created().await;
    let company = json!({
        "companyName": "Looms", "street": "Mill Lane", "houseNumber": "1a", "postalCode": "9000",
        "city": "Ghent", "country": "Belgium",
    });
    for (update, body) in [
        ("update-name", json!({"firstName": "Augusta", "lastName": "King"})),
        ("update-description", json!({"description": "A good friend"})),
        ("update-email", json!({"email": "augusta@example.com"})),
        ("update-company", company.clone()),
    ] {
        let answer = world.post(&format!("{path}/{update}"), body).await;
        assert_eq!(answer.status, 204, "{update}: {answer:?}");
        assert_eq!(world.get(&path).await.etag(), answer.etag(), "{update}");
    }
    let read = world.get(&path).await.body;
    assert_eq!(read["name"]["firstName"], "Augusta");
    assert_eq!(read["description"], "A good friend");
    assert_eq!(read["email"], "augusta@example.com");
    assert_eq!(read["company"], company);
    let expected = [
        "ContactCreated",
        "ContactNameUpdated",
        "ContactDescriptionUpdated",
        "ContactEmailUpdated",
        "ContactCompanyUpdated",
    ];
    assert_eq!(world.actions().await, expected);
}

#[tokio::test]
async fn an_update_to_what_it_is_writes_nothing() {
    let world = World::new().await;
    let path = world.created().await;
    let before = world.get(&path).await.etag();
    let body = json!({"email": "ada@example.com"});
    let answer = world.post(&format!("{path}/update-email"), body).await;
    assert_eq!((answer.status.as_u16(), answer.etag()), (204, before));
    assert_eq!(world.actions().await, ["ContactCreated"]);
}

#[tokio::test]
async fn a_second_delete_is_not_found_and_raises_no_second_event() {
    let world = World::new().await;
    let path = world.created().await;
    let delete = format!("DELETE {path}");
    let answer = world.send(&delete, &[], Body::empty()).await;
    assert_eq!(answer.status, 204);
    assert!(!answer.etag().is_empty());
    assert_eq!(world.send(&delete, &[], Body::empty()).await.status, 404);
    assert_eq!(world.get(&path).await.status, 404);
    let body = json!({"email": null});
    assert_eq!(world.post(&format!("{path}/update-email"), body).await.status, 404);
    assert_eq!(world.get("/api/contacts").await.body["items"], json!([]));
    assert_eq!(world.actions().await, ["ContactCreated", "ContactDeleted"]);
}

#[tokio::test]
async fn a_list_goes_on_from_page_to_page() {
    let world = World::new().await;
    for _ in 0..7 {
        world.created().await;
    }
    for in_header in [false, true] {
        let (mut names, mut pages) = (Vec::new(), 0);
        let mut continuation: Option<String> = None;
        loop {
            let after = continuation.as_deref().unwrap_or_default();
            let query = if in_header { String::new() } else { format!("&continuation={after}") };
            let line = format!("GET /api/contacts?pageSize=2{query}");
            let headers: &[(&str, &str)] =
                if in_header { &[("x-continuation-token", after)] } else { &[] };
            let page = world.send(&line, headers, Body::empty()).await;
            assert_eq!(page.status, 200, "{page:?}");
            let items = page.body["items"].as_array().unwrap();
            assert!(items.len() <= 2);
            names.extend(items.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
            pages += 1;
            continuation = page.body["continuation"].as_str().map(str::to_owned);
            assert_eq!(page.body["hasMore"], continuation.is_some());
            assert_eq!(page.header("x-continuation-token"), continuation.as_deref().unwrap_or(""));
            if continuation.is_none() {
                break;
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 7);
        assert!(3 < pages);
    }
    let all = world.get("/api/contacts").await.body;
    let expected = json!({
        "id": all["items"][0]["id"], "email": "ada@example.com", "fullName": "Ada King",
        "companyName": "Analytical Engines",
    });
    assert_eq!(all["items"][0], expected);
}

#[tokio::test]
async fn the_document_is_served_and_its_paths_answer() {
    let world = World::new().await;
    let document = world.get("/openapi.json").await;
    assert_eq!(document.status, 200);
    let nobody = "00000000-0000-0000-0000-0000000000ff";
    for (path, item) in document.body["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|it| *it != "parameters") {
            let line = format!("{} {}", method.to_uppercase(), path.replace("{id}", nobody));
            let headers = [("content-type", "application/json")];
            let answer = world.send(&line, &headers, ada().to_string()).await;
            let detail = answer.body["detail"].as_str().unwrap_or_default();
            assert_ne!(answer.status, 405, "{line}");
            assert_ne!(detail, "there is nothing here", "{line}");
            let described = &item[method]["responses"][answer.status.as_str()];
            assert!(!described.is_null(), "{line} answered {}", answer.status);
        }
    }
}
