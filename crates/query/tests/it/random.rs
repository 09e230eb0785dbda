//! Whatever the documents and the size of pages: pages joined are one large page.

use millstream_core::KeyRange;
use millstream_query::{ErrorKind, Limits, Parameters, Query, Scope};
use proptest::prelude::*;

use crate::harness::Harness;

const QUERIES: &[&str] = &[
    "SELECT * FROM c",
    "SELECT VALUE c.id FROM c WHERE c.n > 3",
    "SELECT c.id, t FROM c JOIN t IN c.l",
    "SELECT VALUE t FROM t IN c.l OFFSET 3 LIMIT 7",
    "SELECT TOP 5 VALUE c.id FROM c",
    "SELECT VALUE c.id FROM c ORDER BY c.n",
    "SELECT VALUE c.id FROM c ORDER BY c.k DESC, c.n",
    "SELECT VALUE t FROM c JOIN t IN c.l ORDER BY t, c.n OFFSET 2 LIMIT 9",
    "SELECT DISTINCT VALUE c.k FROM c",
    "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT DISTINCT VALUE c.n FROM c OFFSET 2 LIMIT 3",
    "SELECT DISTINCT TOP 2 VALUE c.k FROM c",
    "SELECT DISTINCT c.k, c.n FROM c ORDER BY c.n, c.k DESC",
    "SELECT DISTINCT c.k FROM c ORDER BY c.k OFFSET 1 LIMIT 4",
    "SELECT DISTINCT VALUE c.k FROM c ORDER BY c.n",
    "SELECT c.k, COUNT(1) AS n, SUM(c.n) AS s FROM c GROUP BY c.k",
    "SELECT c.k, c.n, COUNT(1) AS m FROM c GROUP BY c.k, c.n OFFSET 1 LIMIT 9",
    "SELECT VALUE (c.n > 5 ? c.n : undefined) FROM c GROUP BY c.n OFFSET 1 LIMIT 3",
    "SELECT c.n, COUNT(1) AS m FROM c GROUP BY c.n ORDER BY COUNT(1)",
    "SELECT VALUE {n: COUNT(1), s: SUM(c.n), a: AVG(c.n), lo: MIN(c.k), hi: MAX(c.k)} FROM c",
    "SELECT MAKELIST(c) AS all, MAKESET(c.k) AS k, COUNT(1) AS n FROM c",
    "SELECT c.k, MAKELIST(c.n) AS l, MAKESET(c.n) AS s FROM c GROUP BY c.k",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.k FROM c)",
    "SELECT VALUE d FROM (SELECT VALUE t FROM t IN c.l) d WHERE d > 1",
    "SELECT VALUE x FROM x IN (SELECT VALUE c.l FROM c) WHERE x > 1",
    "SELECT DISTINCT VALUE x FROM x IN (SELECT VALUE c.l FROM c) ORDER BY x OFFSET 1 LIMIT 3",
    "SELECT c.id, m.v FROM c JOIN m IN (SELECT VALUE [{k: 1, v: 'a'}, {k: 2, v: 'b'}]) \
     JOIN t IN c.l WHERE t = m.k",
    "SELECT VALUE c.n FROM c WHERE c.pk IN ('0', '2', '9')",
    "SELECT VALUE c.n FROM c WHERE c.pk = '1' AND c.id IN ('1', '5', '9')",
];

prop_compose! {
    fn document()(
        n in 0..10_u32,
        k in prop::sample::select(vec!["null", "true", "1", "2.5", "\"a\"", "\"b\"", "[1]", "{}"]),
        list in prop::collection::vec(0..5_u32, 0..4),
        has_k in any::<bool>(),
    ) -> String {
        let k = if has_k { format!(",\"k\":{k}") } else { String::new() };
        format!("\"n\":{n},\"l\":{list:?}{k}")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_joined_are_one_large_page(
        documents in prop::collection::vec(document(), 0..30),
        partitions in 1..4_usize,
        items_max in 1..8_usize,
        documents_max in 1..9_u64,
        bytes_max in prop::sample::select(vec![1, 30, 100_000]),
        is_token_short in any::<bool>(),
    ) {
        let whole = |(index, it): (usize, &String)| {
            format!("{{\"id\":\"{index}\",\"pk\":\"{}\",{it}}}", index % partitions)
        };
        let documents: Vec<String> = documents.iter().enumerate().map(whole).collect();
        let harness = Harness::new(&["/pk"], &documents);
        let none = Parameters::default();
        let continuation_bytes_max = if is_token_short { 1 } else { 8192 };
        let small = Limits {
            items_max, documents_max, bytes_max, continuation_bytes_max, ..Limits::default()
        };
        for text in QUERIES {
            let query = Query::parse(text).unwrap();
            let all = Scope::all();
            let large = harness.all(&query, &none, &all, Limits::items(10_000)).unwrap();
            let paged = harness.all(&query, &none, &all, small).unwrap();
            prop_assert_eq!(&paged, &large, "{}", text);
        }
    }

    #[test]
    fn pages_that_may_keep_little_are_refused_or_right(
        documents in prop::collection::vec(document(), 0..30),
        items_max in 1..40_usize,
        held_bytes_max in 200..8000_usize,
        is_token_short in any::<bool>(),
    ) {
        let whole = |(index, it): (usize, &String)| {
            format!("{{\"id\":\"{index}\",\"pk\":\"{}\",{it}}}", index % 3)
        };
        let documents: Vec<String> = documents.iter().enumerate().map(whole).collect();
        let harness = Harness::new(&["/pk"], &documents);
        let none = Parameters::default();
        let continuation_bytes_max = if is_token_short { 1 } else { 8192 };
        let small = Limits {
            items_max, held_bytes_max, continuation_bytes_max, ..Limits::default()
        };
        for text in QUERIES {
            let query = Query::parse(text).unwrap();
            let all = Scope::all();
            match harness.all(&query, &none, &all, small) {
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", text),
                Ok(paged) => {
                    let large = harness.all(&query, &none, &all, Limits::items(10_000)).unwrap();
                    prop_assert_eq!(&paged, &large, "{}", text);
                }
            }
        }
    }

    #[test]
    fn ranges_joined_are_the_container(
        documents in prop::collection::vec(document(), 0..30),
        ranges in 1..5_u32,
        items_max in 1..8_usize,
    ) {
        let whole = |(index, it): (usize, &String)| {
            format!("{{\"id\":\"{index}\",\"pk\":\"{}\",{it}}}", index % 9)
        };
        let documents: Vec<String> = documents.iter().enumerate().map(whole).collect();
        let harness = Harness::new(&["/pk"], &documents);
        let none = Parameters::default();
        let query = Query::parse("SELECT VALUE c.id FROM c WHERE c.n > 1").unwrap();
        let all = Scope::all();
        let expected = harness.all(&query, &none, &all, Limits::items(100)).unwrap();
        let mut found = Vec::new();
        for range in KeyRange::divide(ranges).unwrap() {
            let limits = Limits::items(items_max);
            found.extend(harness.all(&query, &none, &Scope::keys(range), limits).unwrap());
        }
        prop_assert_eq!(found, expected);
    }
}
