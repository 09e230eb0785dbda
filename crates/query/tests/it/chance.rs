//! RAND, of which only the bounds are known.

use std::collections::BTreeSet;

use millstream_query::{Limits, Parameters, Query, Scope};

use crate::harness::Harness;

const ITEMS: usize = 500;

fn rows(query: &str) -> Vec<String> {
    let document = |id: usize| format!(r#"{{"id":"{id}","pk":"a"}}"#);
    let harness = Harness::new(&["/pk"], &(0..ITEMS).map(document).collect::<Vec<_>>());
    let query = Query::parse(query).unwrap();
    harness.all(&query, &Parameters::default(), &Scope::all(), Limits::items(50)).unwrap()
}

#[test]
fn random_numbers_are_different_and_between_0_and_1() {
    let rows = rows("SELECT VALUE RAND() FROM c");
    assert!(rows.iter().all(|it| (0.0..1.0).contains(&it.parse::<f64>().unwrap())));
    assert_eq!(rows.into_iter().collect::<BTreeSet<_>>().len(), ITEMS);
}

#[test]
fn a_random_part_of_all_items_can_be_asked_for() {
    let rows = rows("SELECT VALUE c.id FROM c WHERE rand() < 0.5");
    assert!(rows.len() < ITEMS, "all items were chosen");
    assert!(!rows.is_empty(), "no item was chosen");
    let distinct = rows.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(distinct, rows.len(), "an item came twice");
}
