//! Predicates on keys become lookups: a query reads no more than it must.

use std::sync::atomic::Ordering;

use millstream_core::{KeyRange, PartitionKey};
use millstream_query::{Limits, Parameters, Query, Scope};

use crate::harness::Harness;

fn people() -> Harness {
    let document = |city: u32, id: u32| format!(r#"{{"id":"{id}","city":"c{city}","n":{id}}}"#);
    let documents: Vec<String> =
        (0..10).flat_map(|city| (0..10).map(move |id| document(city, id))).collect();
    Harness::new(&["/city"], &documents)
}

fn tenants() -> Harness {
    let document = |tenant: u32, user: u32| {
        format!(r#"{{"id":"{user}","tenant":"t{tenant}","user":"u{user}","n":{user}}}"#)
    };
    let documents: Vec<String> =
        (0..5).flat_map(|tenant| (0..10).map(move |user| document(tenant, user))).collect();
    Harness::new(&["/tenant", "/user"], &documents)
}

/// How many items are read by key and how many scanned, and how many rows come back.
#[track_caller]
fn check_in(harness: &Harness, scope: &Scope, query: &str, reads: u64, scanned: u64, rows: usize) {
    let parsed = Query::parse(query).unwrap();
    harness.documents.reads.store(0, Ordering::SeqCst);
    harness.documents.scanned.store(0, Ordering::SeqCst);
    let parameters = Parameters::from_json(br#"[{"name": "@city", "value": "c3"}]"#).unwrap();
    let found = harness.all(&parsed, &parameters, scope, Limits::items(1000)).unwrap();
    let (read, scan) = (&harness.documents.reads, &harness.documents.scanned);
    let found = (read.load(Ordering::SeqCst), scan.load(Ordering::SeqCst), found.len());
    assert_eq!(found, (reads, scanned, rows), "{query}");
}

#[track_caller]
fn check(harness: &Harness, query: &str, reads: u64, scanned: u64, rows: usize) {
    check_in(harness, &Scope::all(), query, reads, scanned, rows);
}

#[test]
fn an_id_and_a_partition_key_are_one_read() {
    let harness = people();
    check(&harness, "SELECT * FROM c WHERE c.city = 'c3' AND c.id = '7'", 1, 0, 1);
    check(&harness, "SELECT * FROM c WHERE c.id = '7' AND @city = c.city AND c.n = 8", 1, 0, 0);
    check(&harness, "SELECT * FROM c WHERE c['id'] = '7' AND c['city'] = 'c3'", 1, 0, 1);
    check(&harness, "SELECT VALUE COUNT(1) FROM c WHERE c.id = '7' AND c.city = 'c3'", 1, 0, 1);
    check(&harness, "SELECT * FROM c WHERE c.id = '7' AND c.city = 'c3' ORDER BY c.n", 1, 0, 1);
}

#[test]
fn several_keys_are_several_reads() {
    let harness = people();
    check(&harness, "SELECT * FROM c WHERE c.city IN ('c1', 'c2') AND c.id IN ('1', '2')", 4, 0, 4);
    let pairs =
        "SELECT * FROM c WHERE (c.city = 'c1' AND c.id = '1') OR (c.city = 'c2' AND c.id = '2')";
    check(&harness, pairs, 2, 0, 2);
    let twice = "SELECT * FROM c WHERE c.id IN ('1', '1') AND (c.city = 'c1' OR c.city = 'c1')";
    check(&harness, twice, 1, 0, 1);
    check(&harness, "SELECT * FROM c WHERE c.id = 'a/b' AND c.city = 'c1'", 0, 0, 0);
}

#[test]
fn a_partition_key_is_a_scan_of_its_partition() {
    let harness = people();
    check(&harness, "SELECT * FROM c WHERE c.city = 'c3'", 0, 10, 10);
    check(&harness, "SELECT * FROM c WHERE c.city = 'c3' AND c.n < 5", 0, 10, 5);
    check(&harness, "SELECT * FROM c WHERE c.city IN ('c1', 'c2', 'x')", 0, 20, 20);
    // The partition has the item already.
    let both = "SELECT * FROM c WHERE c.city = 'c1' OR (c.city = 'c1' AND c.id = '1')";
    check(&harness, both, 0, 10, 10);
    check(&harness, "SELECT VALUE t FROM c JOIN t IN [1, 2] WHERE c.city = 'c3'", 0, 10, 20);
    check(
        &harness,
        "SELECT VALUE d.n FROM (SELECT VALUE c FROM c WHERE c.city = 'c3') d",
        0,
        10,
        10,
    );
}

#[test]
fn what_cannot_be_looked_up_is_scanned() {
    let harness = people();
    check(&harness, "SELECT * FROM c WHERE c.id = '7'", 0, 100, 10);
    check(&harness, "SELECT * FROM c WHERE c.city != 'c3'", 0, 100, 90);
    check(&harness, "SELECT * FROM c WHERE c.city = 'c3' OR c.n = 1", 0, 100, 19);
    check(&harness, "SELECT * FROM c WHERE NOT (c.city = 'c3')", 0, 100, 90);
    check(&harness, "SELECT * FROM c WHERE c.city NOT IN ('c3')", 0, 100, 90);
    check(&harness, "SELECT * FROM c WHERE UPPER(c.city) = 'C3'", 0, 100, 10);
    check(&harness, "SELECT * FROM c.city WHERE city.id = '1'", 0, 100, 0);
}

#[test]
fn what_contradicts_itself_reads_nothing() {
    let harness = people();
    check(&harness, "SELECT * FROM c WHERE c.city = 'c1' AND c.city = 'c2'", 0, 0, 0);
    check(&harness, "SELECT * FROM c WHERE c.id = 1", 0, 0, 0);
    check(&harness, "SELECT * FROM c WHERE c.city = {}", 0, 0, 0);
    check(&harness, "SELECT VALUE COUNT(1) FROM c WHERE c.city = {}", 0, 0, 1);
    check(&harness, "SELECT VALUE 1", 0, 0, 1);
}

#[test]
fn the_scope_restricts_every_query() {
    let harness = people();
    let partition = Scope::partition(PartitionKey::from("c3"));
    check_in(&harness, &partition, "SELECT * FROM c", 0, 10, 10);
    check_in(&harness, &partition, "SELECT * FROM c WHERE c.id = '1'", 1, 0, 1);
    check_in(&harness, &partition, "SELECT * FROM c WHERE c.city = 'c4'", 0, 0, 0);
    check_in(&harness, &partition, "SELECT VALUE COUNT(1) FROM c", 0, 10, 1);
    let halves = KeyRange::divide(2).unwrap();
    let query = Query::parse("SELECT VALUE CONCAT(c.city, c.id) FROM c").unwrap();
    let none = Parameters::default();
    let mut rows = Vec::new();
    for half in &halves {
        let scope = Scope::keys(half.clone());
        rows.extend(harness.all(&query, &none, &scope, Limits::items(7)).unwrap());
    }
    rows.sort();
    rows.dedup();
    assert_eq!(rows.len(), 100);
}

#[test]
fn a_hierarchical_key_may_be_given_in_part() {
    let harness = tenants();
    check(&harness, "SELECT * FROM c WHERE c.tenant = 't1'", 0, 10, 10);
    check(&harness, "SELECT * FROM c WHERE c.tenant = 't1' AND c.user = 'u2'", 0, 1, 1);
    check(
        &harness,
        "SELECT * FROM c WHERE c.tenant = 't1' AND c.user = 'u2' AND c.id = '2'",
        1,
        0,
        1,
    );
    check(&harness, "SELECT * FROM c WHERE c.user = 'u2'", 0, 50, 5);
    let inside = "SELECT * FROM c WHERE c.tenant = 't1' OR (c.tenant = 't1' AND c.user = 'u2')";
    check(&harness, inside, 0, 10, 10);
    let prefix = Scope::partition(PartitionKey::of(["t2"]).unwrap());
    check_in(&harness, &prefix, "SELECT * FROM c", 0, 10, 10);
    check_in(&harness, &prefix, "SELECT * FROM c WHERE c.user = 'u2'", 0, 1, 1);
    check_in(&harness, &prefix, "SELECT * FROM c ORDER BY c.n DESC", 0, 10, 10);
    let whole = Scope::partition(PartitionKey::of(["t2", "u3"]).unwrap());
    check_in(&harness, &whole, "SELECT * FROM c", 0, 1, 1);
}

#[test]
fn a_query_knows_whether_it_stays_within_one_partition() {
    let harness = people();
    let check = |query: &str, expected: bool| {
        let query = Query::parse(query).unwrap();
        let none = Parameters::default();
        let found = query.is_within_one_partition(&harness.definition, &none).unwrap();
        assert_eq!(found, expected, "{}", query.text());
    };
    check("SELECT * FROM c WHERE c.city = 'c1'", true);
    check("SELECT * FROM c WHERE c.city = 'c1' AND c.id IN ('1', '2')", true);
    check("SELECT * FROM c WHERE c.city = 'c1' AND c.city = 'c2'", true);
    check("SELECT VALUE COUNT(1) FROM c WHERE c.n > 1 AND c.city = 'c1'", true);
    check("SELECT * FROM c", false);
    check("SELECT * FROM c WHERE c.city IN ('c1', 'c2')", false);
    check("SELECT * FROM c WHERE c.city > 'c1'", false);
}

#[test]
fn a_key_that_does_not_fit_the_container_is_refused() {
    let harness = people();
    let scope = Scope::partition(PartitionKey::of(["a", "b"]).unwrap());
    let query = Query::parse("SELECT * FROM c").unwrap();
    let request = harness.request().with_scope(&scope);
    let error = harness.page(&query, &request).unwrap_err();
    assert!(error.report().starts_with("could not query the logical partition"), "{error}");
}

#[test]
fn a_limit_reads_no_more_than_it_needs() {
    let harness = people();
    check(&harness, "SELECT TOP 3 * FROM c", 0, 3, 3);
    check(&harness, "SELECT * FROM c OFFSET 2 LIMIT 3", 0, 5, 3);
    let query = Query::parse("SELECT * FROM c").unwrap();
    harness.documents.scanned.store(0, Ordering::SeqCst);
    let page = harness.page(&query, &harness.request().with_limits(Limits::items(5))).unwrap();
    assert_eq!(page.rows.len(), 5);
    // One more, to see whether there is a next page.
    assert_eq!(harness.documents.scanned.load(Ordering::SeqCst), 6);
}
