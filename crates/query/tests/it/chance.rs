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
    for query in [
        "SELECT VALUE c.id FROM c WHERE RAND() < 0.5",
        "SELECT VALUE c.id FROM c WHERE RAND() < 0.5 ORDER BY c.id",
        "SELECT VALUE x FROM (SELECT TOP 100 VALUE c.id FROM c WHERE RAND() < 0.5) x",
        "SELECT VALUE [c.id, n] FROM c JOIN n IN [1, 2, 3, 4, 5] WHERE RAND() < 0.5",
        "SELECT VALUE x FROM (SELECT DISTINCT VALUE c.id FROM c) x WHERE RAND() < 0.5",
    ] {
        let rows = rows(query);
        let count = rows.len();
        assert!(50 <= count, "{query}: {count}");
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>().len(), count, "{query}");
    }
}
