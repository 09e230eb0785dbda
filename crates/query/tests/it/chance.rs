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
fn each_page_finds_the_same_random_numbers() {
    let expected: BTreeSet<String> = (0..ITEMS).map(|it| format!("\"{it}\"")).collect();
    for query in [
        "SELECT VALUE c.id FROM c ORDER BY RAND()",
        "SELECT DISTINCT VALUE c.id FROM c ORDER BY RAND() DESC",
        "SELECT VALUE x.id FROM (SELECT c.id, RAND() AS r FROM c) x ORDER BY x.r",
        "SELECT VALUE c.id FROM c GROUP BY RAND(), c.id",
    ] {
        let rows = rows(query);
        assert!(!rows.is_sorted(), "{query}");
        assert_eq!(rows.len(), ITEMS, "{query}");
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), expected, "{query}");
    }
    for query in [
        "SELECT DISTINCT VALUE c.id FROM c WHERE RAND() < 0.5",
        "SELECT VALUE c.id FROM c WHERE RAND() < 0.5 ORDER BY c.id",
        "SELECT VALUE x FROM (SELECT TOP 100 VALUE c.id FROM c WHERE RAND() < 0.5) x",
        "SELECT VALUE [c.id, n] FROM c JOIN n IN [1, 2, 3, 4, 5] WHERE RAND() < 0.5",
        "SELECT VALUE FLOOR(RAND() * 100) FROM c GROUP BY FLOOR(RAND() * 100)",
    ] {
        let rows = rows(query);
        let count = rows.len();
        assert!(50 <= count, "{query}: {count}");
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>().len(), count, "{query}");
    }
}

#[test]
fn a_random_part_of_all_items_can_be_asked_for() {
    let rows = rows("SELECT VALUE c.id FROM c WHERE rand() < 0.5");
    assert!(rows.len() < ITEMS, "all items were chosen");
    assert!(!rows.is_empty(), "no item was chosen");
    let distinct = rows.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(distinct, rows.len(), "an item came twice");
}
