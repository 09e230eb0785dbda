//! What it costs to delete all items of a partition key, as docs/compatibility.md tells it.

use http::Method;

use crate::client::{Running, on_both};

/// Makes so many items with a filling of so many bytes, and deletes them.
async fn check(gateway: &Running, items: usize, bytes: usize, charge: &str) {
    let filling = "x".repeat(bytes);
    for number in 0..items {
        let body = format!(r#"{{"id":"{number}","pk":"a","filling":"{filling}"}}"#);
        gateway.item("a", &body).await.expect(201);
    }
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let path = "/dbs/d/colls/c/operations/partitionkeydelete";
    let deleted = gateway.ask(Method::POST, path, &[key], "").await.expect(200);
    assert_eq!(deleted.header("x-ms-request-charge"), charge, "{items} of {bytes}");
    let left = gateway.get("/dbs/d/colls/c/docs").await.expect(200);
    assert_eq!(left.json()["_count"], 0);
}

#[test]
fn deleting_by_key_is_charged_by_batches_that_items_or_bytes_end() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        check(&gateway, 0, 0, "1.00").await;
        check(&gateway, 100, 0, "5.00").await;
        check(&gateway, 101, 0, "10.00").await;
        // Three of these make 4 MiB.
        check(&gateway, 7, 1_900_000, "15.00").await;
    });
}
