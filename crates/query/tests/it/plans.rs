//! Plans as the SDKs read them, and that what they then send gives the same as the query itself.

use std::collections::BTreeMap;

use millstream_core::{KeyRange, PartitionKeyDefinition};
use millstream_query::{ComputedProperties, Joining, Limits, Parameters, Query, Scope};
use serde_json::{Value, json};

use crate::harness::Harness;

fn plan(query: &str) -> Value {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let plan = Query::parse(query).unwrap().plan(&definition, &Parameters::default()).unwrap();
    serde_json::to_value(plan).unwrap()
}

/// Only what differs from the plan of a plain query.
#[track_caller]
fn check(query: &str, expected: &Value) {
    let mut info = json!({
        "distinctType": "None", "top": null, "offset": null, "limit": null, "orderBy": [],
        "orderByExpressions": [], "groupByExpressions": [], "groupByAliases": [],
        "aggregates": [], "groupByAliasToAggregateType": {}, "rewrittenQuery": "",
        "hasSelectValue": false, "hasNonStreamingOrderBy": false, "dCountInfo": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        info[name] = value.clone();
    }
    assert_eq!(plan(query)["queryInfo"], info, "{query}");
    let rewritten = info["rewrittenQuery"].as_str().unwrap();
    if !rewritten.is_empty() {
        let sent = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
        Query::parse(&sent).unwrap();
        Query::parse(rewritten).unwrap();
    }
}

#[track_caller]
fn check_ranges(definition: &PartitionKeyDefinition, query: &str, expected: &[[&str; 2]]) {
    let parsed = Query::parse(query).unwrap();
    let plan = parsed.plan(definition, &Parameters::default()).unwrap();
    let plan = serde_json::to_value(plan).unwrap();
    let found: Vec<[&str; 2]> = plan["queryRanges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let is_point = it["min"] == it["max"];
            assert_eq!(it["isMinInclusive"], true);
            assert_eq!(it["isMaxInclusive"], is_point);
            [it["min"].as_str().unwrap(), it["max"].as_str().unwrap()]
        })
        .collect();
    assert_eq!(found, expected, "{query}");
}

#[test]
fn what_is_grouped_by_is_written_as_it_was() {
    for (expression, key) in [("- -c.n", "-c.n"), ("~ ~c.n", "~c.n"), ("+ -c.n", "-c.n")] {
        let query = format!("SELECT {expression} AS x FROM c GROUP BY {key}");
        let expected = json!({
            "groupByExpressions": [key], "groupByAliases": ["x"],
            "groupByAliasToAggregateType": {"x": null},
            "rewrittenQuery": format!(
                "SELECT [{{\"item\": {key}}}] AS groupByItems, {{\"x\": {expression}}} AS payload \
                 FROM c GROUP BY {key}"
            ),
        });
        check(&query, &expected);
    }
}

#[test]
fn a_plain_query_has_a_plain_plan() {
    check("SELECT * FROM c WHERE c.x = 1", &json!({}));
    check("SELECT VALUE c.x FROM c", &json!({"hasSelectValue": true}));
    check("SELECT TOP 5 * FROM c", &json!({"top": 5}));
    let window = json!({
        "offset": 2, "limit": 3, "rewrittenQuery": "SELECT * FROM c OFFSET 0 LIMIT 5",
    });
    check("SELECT * FROM c OFFSET 2 LIMIT 3", &window);
    assert_eq!(plan("SELECT * FROM c")["partitionedQueryExecutionInfoVersion"], 2);
}

#[test]
fn rows_in_order_carry_what_they_are_sorted_by() {
    check(
        "SELECT * FROM c ORDER BY c.x, c.y DESC",
        &json!({
            "orderBy": ["Ascending", "Descending"],
            "orderByExpressions": ["c.x", "c.y"],
            "rewrittenQuery": "SELECT c._rid, [{\"item\": c.x}, {\"item\": c.y}] AS orderByItems, \
                c AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) \
                ORDER BY c.x ASC, c.y DESC",
        }),
    );
    check(
        "SELECT TOP 3 r.a, r.b + 1 FROM root r WHERE r.z > 1 OR r.z < 0 ORDER BY r.x",
        &json!({
            "top": 3,
            "orderBy": ["Ascending"],
            "orderByExpressions": ["r.x"],
            "rewrittenQuery": "SELECT TOP 3 r._rid, [{\"item\": r.x}] AS orderByItems, \
                {\"a\": r.a, \"$1\": r.b + 1} AS payload FROM root AS r \
                WHERE (r.z > 1 OR r.z < 0) AND \
                ({documentdb-formattableorderbyquery-filter}) ORDER BY r.x ASC",
        }),
    );
    check(
        "SELECT VALUE t FROM t IN c.tags ORDER BY t OFFSET 1 LIMIT 2",
        &json!({
            "offset": 1, "limit": 2, "hasSelectValue": true,
            "orderBy": ["Ascending"],
            "orderByExpressions": ["t"],
            "rewrittenQuery": "SELECT _root._rid, [{\"item\": t}] AS orderByItems, t AS payload \
                FROM _root JOIN t IN _root.tags WHERE IS_DEFINED(t) AND \
                ({documentdb-formattableorderbyquery-filter}) ORDER BY t ASC OFFSET 0 LIMIT 3",
        }),
    );
}

/// What Entity Framework makes of `FromSql(…)` with something behind it.
#[test]
fn rows_of_a_query_in_from_come_in_order_with_the_id_of_their_item() {
    check(
        "SELECT VALUE s FROM (SELECT * FROM root c WHERE c.x = 1) s ORDER BY s.id OFFSET 1 LIMIT 5",
        &json!({
            "offset": 1, "limit": 5, "hasSelectValue": true,
            "orderBy": ["Ascending"],
            "orderByExpressions": ["s.id"],
            "rewrittenQuery": "SELECT s._rid, [{\"item\": s.id}] AS orderByItems, s AS payload \
                FROM (SELECT * FROM root AS c WHERE c.x = 1) AS s WHERE IS_DEFINED(s) AND \
                ({documentdb-formattableorderbyquery-filter}) ORDER BY s.id ASC OFFSET 0 LIMIT 6",
        }),
    );
    // Where the rows are no items, the item stands beside them.
    check(
        "SELECT VALUE s FROM (SELECT c.id, c.x FROM c WHERE c.x = 1) s ORDER BY s.id DESC",
        &json!({
            "hasSelectValue": true,
            "orderBy": ["Descending"],
            "orderByExpressions": ["s.id"],
            "rewrittenQuery": "SELECT _root._rid, [{\"item\": s.id}] AS orderByItems, s AS payload \
                FROM _root JOIN (SELECT c.id, c.x FROM _root AS c WHERE c.x = 1) AS s \
                WHERE IS_DEFINED(s) AND ({documentdb-formattableorderbyquery-filter}) \
                ORDER BY s.id DESC",
        }),
    );
}

#[test]
fn aggregates_are_partial() {
    check(
        "SELECT VALUE AVG(c.x) FROM c WHERE c.y",
        &json!({
            "aggregates": ["Average"], "hasSelectValue": true,
            "rewrittenQuery": "SELECT VALUE [{\"item\": {\"sum\": SUM(c.x), \
                \"count\": COUNT(c.x)}}] FROM c WHERE c.y",
        }),
    );
    // One row is in order anyway.
    check(
        "SELECT VALUE COUNT(1) FROM c ORDER BY c.x",
        &json!({
            "aggregates": ["Count"], "hasSelectValue": true,
            "rewrittenQuery": "SELECT VALUE [{\"item\": COUNT(1)}] FROM c",
        }),
    );
    check(
        "SELECT MIN(c.x) AS low, COUNT(1) FROM c",
        &json!({
            "groupByAliases": ["low", "$1"],
            "groupByAliasToAggregateType": {"low": "Min", "$1": "Count"},
            "rewrittenQuery": "SELECT {\"low\": {\"item\": MIN(c.x), \"item2\": \
                {\"min\": MIN(c.x), \"count\": COUNT(c.x)}}, \"$1\": {\"item\": COUNT(1)}} \
                AS payload FROM c",
        }),
    );
    check(
        "SELECT c.g, SUM(c.x) AS s FROM c JOIN t IN c.l GROUP BY c.g",
        &json!({
            "groupByExpressions": ["c.g"],
            "groupByAliases": ["g", "s"],
            "groupByAliasToAggregateType": {"g": null, "s": "Sum"},
            "rewrittenQuery": "SELECT [{\"item\": c.g}] AS groupByItems, {\"g\": c.g, \
                \"s\": {\"item\": SUM(c.x)}} AS payload FROM c JOIN t IN c.l GROUP BY c.g",
        }),
    );
    check(
        "SELECT VALUE COUNT(1) FROM c GROUP BY c.g",
        &json!({
            "aggregates": ["Count"], "hasSelectValue": true,
            "groupByExpressions": ["c.g"],
            "rewrittenQuery": "SELECT [{\"item\": c.g}] AS groupByItems, \
                [{\"item\": COUNT(1)}] AS payload FROM c GROUP BY c.g",
        }),
    );
    // What is no aggregate is taken as it is, and what is undefined is no row.
    check(
        "SELECT VALUE c.g FROM c WHERE c.y OR c.z GROUP BY c.g",
        &json!({
            "hasSelectValue": true,
            "groupByExpressions": ["c.g"],
            "rewrittenQuery": "SELECT [{\"item\": c.g}] AS groupByItems, c.g AS payload FROM c \
                WHERE (c.y OR c.z) AND IS_DEFINED(c.g) GROUP BY c.g",
        }),
    );
    // Not all SDKs know it, and its parts are joined as those of any other count.
    check(
        "SELECT COUNTIF(c.x) AS n FROM c",
        &json!({
            "groupByAliases": ["n"],
            "groupByAliasToAggregateType": {"n": "Count"},
            "rewrittenQuery": "SELECT {\"n\": {\"item\": COUNTIF(c.x)}} AS payload FROM c",
        }),
    );
}

/// As in the tests of the SDK for .NET.
#[test]
fn lists_and_sets_are_joined_by_the_sdk() {
    for (function, name) in [("MAKELIST", "MakeList"), ("MAKESET", "MakeSet")] {
        check(
            &format!("SELECT VALUE {function}(c.id) FROM c"),
            &json!({
                "aggregates": [name], "hasSelectValue": true,
                "rewrittenQuery": format!("SELECT VALUE [{{\"item\": {function}(c.id)}}] FROM c"),
            }),
        );
        check(
            &format!("SELECT {function}(c.id) FROM c"),
            &json!({
                "groupByAliases": ["$1"],
                "groupByAliasToAggregateType": {"$1": name},
                "rewrittenQuery": format!(
                    "SELECT {{\"$1\": {{\"item\": {function}(c.id)}}}} AS payload FROM c"
                ),
            }),
        );
        check(
            &format!("SELECT {function}(c.id) FROM c GROUP BY c.zipcode"),
            &json!({
                "groupByExpressions": ["c.zipcode"],
                "groupByAliases": ["$1"],
                "groupByAliasToAggregateType": {"$1": name},
                "rewrittenQuery": format!(
                    "SELECT [{{\"item\": c.zipcode}}] AS groupByItems, {{\"$1\": \
                    {{\"item\": {function}(c.id)}}}} AS payload FROM c GROUP BY c.zipcode"
                ),
            }),
        );
    }
}

/// With what SDKs list: those for .NET, JavaScript (4.9.3), Python (4.17.1) and Java. The first two
/// can merge lists; that for Python drops an aggregate that it does not know.
#[test]
fn a_plan_of_a_list_needs_an_sdk_that_can_merge_lists() {
    let common = ["Aggregate", "Distinct", "MultipleOrderBy", "OffsetAndLimit", "OrderBy", "Top"];
    let listed = |more: &[&'static str]| [&common, more].concat();
    let dotnet = listed(&[
        "GroupBy",
        "MultipleAggregates",
        "NonValueAggregate",
        "DCount",
        "NonStreamingOrderBy",
        "CountIf",
        "HybridSearch",
    ]);
    let javascript = listed(&[
        "CompositeAggregate",
        "GroupBy",
        "MultipleAggregates",
        "NonValueAggregate",
        "NonStreamingOrderBy",
        "ListAndSetAggregate",
        "CountIf",
        "HybridSearch",
        "WeightedRankFusion",
        "HybridSearchSkipOrderByRewrite",
    ]);
    let python = listed(&[
        "CompositeAggregate",
        "NonStreamingOrderBy",
        "HybridSearch",
        "CountIf",
        "WeightedRankFusion",
    ]);
    let java = listed(&[
        "CompositeAggregate",
        "GroupBy",
        "MultipleAggregates",
        "DCount",
        "NonValueAggregate",
    ]);
    let check = |text: &str, can_be_merged: [bool; 4]| {
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        let plan = Query::parse(text).unwrap().plan(&definition, &Parameters::default()).unwrap();
        let needed = plan.features();
        let lists = [&dotnet, &javascript, &python, &java];
        let found = lists.map(|listed| needed.iter().all(|it| listed.contains(it)));
        assert_eq!(found, can_be_merged, "{text}");
    };
    check("SELECT VALUE MAKELIST(c.x) FROM c", [true, true, false, false]);
    check("SELECT MAKESET(c.x) FROM c", [true, true, false, false]);
    check("SELECT c.g, MAKESET(c.x) AS s FROM c GROUP BY c.g", [true, true, false, false]);
    check("SELECT VALUE MAKELIST(c.x) FROM c GROUP BY c.g", [true, true, false, false]);
    check("SELECT VALUE COUNTIF(c.x) FROM c", [true; 4]);
    check("SELECT VALUE (SELECT VALUE MAKELIST(t) FROM t IN c.l) FROM c", [true; 4]);
}

/// What an SDK does with such a plan: appends the lists of all ranges, or unites the sets.
#[test]
fn lists_of_all_ranges_joined_are_that_of_the_query() {
    let document =
        |n: u32| format!(r#"{{"id":"{n}","pk":"{}","x":{},"g":{}}}"#, n % 5, (n * 7) % 11, n % 3);
    let harness = Harness::new(&["/pk"], &(0..40).map(document).collect::<Vec<_>>());
    let none = Parameters::default();
    let rows = |text: &str, scope: &Scope| -> Vec<Value> {
        let query = Query::parse(text).unwrap();
        let rows = harness.all(&query, &none, scope, Limits::items(2)).unwrap();
        rows.iter().map(|it| serde_json::from_str(it).unwrap()).collect()
    };
    for (text, is_set) in [
        ("SELECT VALUE MAKELIST(c.x) FROM c", false),
        ("SELECT VALUE MAKESET(c.x) FROM c", true),
        ("SELECT VALUE MAKELIST(c.x) FROM c GROUP BY c.g", false),
        ("SELECT VALUE MAKESET(c.x) FROM c GROUP BY c.g", true),
    ] {
        let sent = plan(text)["queryInfo"]["rewrittenQuery"].as_str().unwrap().to_owned();
        let mut joined: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for range in KeyRange::divide(3).unwrap() {
            for row in rows(&sent, &Scope::keys(range)) {
                let of_group = row.get("payload").unwrap_or(&row)[0]["item"].as_array().unwrap();
                let group = row["groupByItems"].to_string();
                joined.entry(group).or_default().extend(of_group.iter().cloned());
            }
        }
        let sorted = |mut items: Vec<Value>| {
            items.sort_by_key(Value::as_u64);
            if is_set {
                items.dedup();
            }
            Value::from(items)
        };
        let joined: Vec<Value> = joined.into_values().map(sorted).collect();
        let whole = rows(text, &Scope::all());
        let whole: Vec<Value> = whole
            .iter()
            .map(|row| {
                let mut items = row.as_array().unwrap().clone();
                items.sort_by_key(Value::as_u64);
                Value::from(items)
            })
            .collect();
        assert_eq!(joined, whole, "{text}");
    }
}

#[test]
fn distinct_rows_are_joined_by_the_sdk() {
    check(
        "SELECT DISTINCT TOP 2 VALUE c.x FROM c",
        &json!({
            "distinctType": "Unordered", "top": 2, "hasSelectValue": true,
            "rewrittenQuery": "SELECT DISTINCT VALUE c.x FROM c",
        }),
    );
    check(
        "SELECT DISTINCT VALUE c.x FROM c ORDER BY c.x",
        &json!({
            "distinctType": "Ordered", "hasSelectValue": true,
            "orderBy": ["Ascending"],
            "orderByExpressions": ["c.x"],
            "rewrittenQuery": "SELECT c._rid, [{\"item\": c.x}] AS orderByItems, c.x \
                AS payload FROM c WHERE IS_DEFINED(c.x) AND \
                ({documentdb-formattableorderbyquery-filter}) ORDER BY c.x ASC",
        }),
    );
    check(
        "SELECT DISTINCT c.x FROM c ORDER BY c.x",
        &json!({
            "distinctType": "Unordered",
            "orderBy": ["Ascending"],
            "orderByExpressions": ["c.x"],
            "rewrittenQuery": "SELECT c._rid, [{\"item\": c.x}] AS orderByItems, {\"x\": c.x} \
                AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) \
                ORDER BY c.x ASC",
        }),
    );
    check(
        "SELECT COUNT(1) AS n FROM (SELECT DISTINCT VALUE c.x FROM c)",
        &json!({
            "distinctType": "Unordered", "dCountInfo": {"dCountAlias": "n"},
            "rewrittenQuery": "SELECT DISTINCT VALUE c.x FROM c",
        }),
    );
    check(
        "SELECT COUNT(d) AS n FROM (SELECT DISTINCT VALUE c.x FROM c) AS d",
        &json!({
            "distinctType": "Unordered", "dCountInfo": {"dCountAlias": "n"},
            "rewrittenQuery": "SELECT DISTINCT VALUE c.x FROM c",
        }),
    );
    check(
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.x, c.y FROM c)",
        &json!({
            "distinctType": "Unordered", "dCountInfo": {"dCountAlias": null},
            "hasSelectValue": true,
            "rewrittenQuery": "SELECT DISTINCT c.x, c.y FROM c",
        }),
    );
}

/// What the SDK for .NET makes of `Distinct()` with something behind it.
#[test]
fn distinct_rows_of_a_query_in_from_are_divided_where_ranges_cannot_share_them() {
    let root = "(SELECT DISTINCT VALUE root FROM root) AS r0";
    check(&format!("SELECT VALUE r0[\"Int\"] FROM {root}"), &json!({"hasSelectValue": true}));
    check(&format!("SELECT * FROM {root} WHERE r0.x > 1"), &json!({}));
    let joined = "JOIN (SELECT VALUE ARRAY(SELECT VALUE c0.p FROM r0 JOIN c0 IN r0.l)) AS v1";
    check(&format!("SELECT VALUE v1 FROM {root} {joined}"), &json!({"hasSelectValue": true}));
    check(
        &format!("SELECT VALUE SUM(r0.x) FROM {root}"),
        &json!({
            "aggregates": ["Sum"], "hasSelectValue": true,
            "rewrittenQuery": format!("SELECT VALUE [{{\"item\": SUM(r0.x)}}] FROM {root}"),
        }),
    );
    for inner in [
        "SELECT DISTINCT * FROM c",
        "SELECT DISTINCT c.pk, c.x FROM c",
        "SELECT DISTINCT VALUE c[\"pk\"] FROM c",
        "SELECT DISTINCT VALUE {p: c.pk} FROM c",
        "SELECT DISTINCT c AS item, t FROM c JOIN t IN c.tags",
        "SELECT VALUE d.x FROM (SELECT DISTINCT VALUE c FROM c) d",
        "SELECT DISTINCT VALUE c.x FROM c WHERE c.pk = 'a'",
    ] {
        let query = format!("SELECT VALUE [r0] FROM ({inner}) AS r0");
        check(&query, &json!({"hasSelectValue": true}));
    }
    // The rows of all ranges together are told apart again.
    let values = "(SELECT DISTINCT VALUE c.x FROM c) AS r0";
    check(
        &format!("SELECT VALUE r0 FROM {values} WHERE r0 > 1"),
        &json!({
            "distinctType": "Unordered", "hasSelectValue": true,
            "rewrittenQuery": format!("SELECT DISTINCT VALUE r0 FROM {values} WHERE r0 > 1"),
        }),
    );
    check(
        &format!("SELECT TOP 2 * FROM {values}"),
        &json!({
            "distinctType": "Unordered", "top": 2,
            "rewrittenQuery": format!("SELECT DISTINCT * FROM {values}"),
        }),
    );
}

/// What an SDK does with such a plan: asks every range, appends, and drops what it has seen.
#[test]
fn distinct_rows_of_all_ranges_are_those_of_the_query() {
    let document = |n: u32| {
        format!(r#"{{"id":"{n}","pk":"{}","x":{},"l":[{{"p":{n}}}]}}"#, n % 5, (n * 7) % 11)
    };
    let harness = Harness::new(&["/pk"], &(0..40).map(document).collect::<Vec<_>>());
    let none = Parameters::default();
    for text in [
        "SELECT VALUE r0.x FROM (SELECT DISTINCT VALUE c FROM c) AS r0",
        "SELECT VALUE r0 FROM (SELECT DISTINCT VALUE c.x FROM c) AS r0 WHERE r0 > 3",
        "SELECT VALUE r0.x FROM (SELECT DISTINCT c.x, c.pk FROM c) AS r0 WHERE r0.x > 3",
        "SELECT VALUE v.p FROM (SELECT DISTINCT VALUE c FROM c) AS r0 JOIN v IN r0.l",
    ] {
        let query = Query::parse(text).unwrap();
        let mut expected = harness.all(&query, &none, &Scope::all(), Limits::items(7)).unwrap();
        let info = &plan(text)["queryInfo"];
        let sent = match info["rewrittenQuery"].as_str().unwrap() {
            "" => query,
            rewritten => Query::parse(rewritten).unwrap(),
        };
        let mut rows: Vec<String> = Vec::new();
        for range in KeyRange::divide(3).unwrap() {
            let found = harness.all(&sent, &none, &Scope::keys(range), Limits::items(3)).unwrap();
            rows.extend(found);
        }
        rows.sort();
        if info["distinctType"] == "Unordered" {
            rows.dedup();
        }
        expected.sort();
        assert_eq!(rows, expected, "{text}");
    }
}

#[test]
fn a_window_that_is_too_far_is_refused() {
    let most = u64::from(u32::MAX);
    check(
        &format!("SELECT * FROM c OFFSET {most} LIMIT {most}"),
        &json!({
            "offset": most, "limit": most,
            "rewrittenQuery": format!("SELECT * FROM c OFFSET 0 LIMIT {most}"),
        }),
    );
    let query = Query::parse("SELECT TOP @n * FROM c").unwrap();
    let parameters = Parameters::from_json(br#"[{"name": "@n", "value": 4294967296}]"#).unwrap();
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let error = query.plan(&definition, &parameters).unwrap_err();
    assert_eq!(error.kind(), millstream_query::ErrorKind::Invalid);
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    for query in [
        "SELECT VALUE COUNT(1) + 1 FROM c",
        "SELECT VALUE ARRAY_LENGTH(MAKELIST(c.x)) FROM c",
        "SELECT VALUE MAKESET(d) FROM (SELECT DISTINCT VALUE c.x FROM c) d",
        "SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g ORDER BY c.g",
        "SELECT VALUE d FROM (SELECT TOP 1 VALUE c FROM c) d",
        "SELECT VALUE d FROM (SELECT DISTINCT VALUE c.x FROM c) d ORDER BY d",
        "SELECT VALUE d FROM (SELECT VALUE c.x FROM c ORDER BY c.x) d",
        "SELECT VALUE d.x FROM (SELECT TOP 2 c.x FROM c WHERE c.pk = 'a') d ORDER BY d.x",
        "SELECT VALUE 1 FROM (SELECT VALUE c FROM c) ORDER BY 1",
        "SELECT VALUE d FROM (SELECT VALUE c.x FROM c OFFSET 1 LIMIT 2) d",
        "SELECT VALUE d FROM (SELECT c.x FROM c GROUP BY c.x) d",
        "SELECT VALUE SUM(d) FROM (SELECT DISTINCT VALUE c.x FROM c) d",
        "SELECT VALUE COUNT(d.a) FROM (SELECT DISTINCT VALUE {a: c.x, a: c.pk} FROM c) d",
        "SELECT COUNT(1) FROM (SELECT DISTINCT VALUE d FROM (SELECT TOP 1 VALUE c FROM c) d)",
        "SELECT COUNT(1) FROM (SELECT DISTINCT VALUE [d] FROM (SELECT DISTINCT c.x FROM c) d)",
        "SELECT VALUE d + 1 FROM (SELECT DISTINCT VALUE c.x FROM c) d",
        "SELECT VALUE t FROM (SELECT DISTINCT VALUE c.tags FROM c) d JOIN t IN d",
        "SELECT VALUE e FROM (SELECT VALUE d.y FROM (SELECT DISTINCT VALUE c.x FROM c) d) e",
    ] {
        let query = Query::parse(query).unwrap();
        let error = query.plan(&definition, &Parameters::default()).unwrap_err();
        assert_eq!(error.kind(), millstream_query::ErrorKind::Unsupported);
    }
}

#[test]
fn rows_of_ranges_are_appended_or_merged_or_only_known_to_who_sees_all() {
    let check = |text: &str, expected: Joining| {
        assert_eq!(Query::parse(text).unwrap().joining(), expected, "{text}");
    };
    check("SELECT * FROM c WHERE c.x = 1", Joining::Appended);
    check("SELECT VALUE t FROM c JOIN t IN c.tags", Joining::Appended);
    check("SELECT VALUE d.x FROM (SELECT VALUE c FROM c) d", Joining::Appended);
    check("SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags) FROM c", Joining::Appended);
    check("SELECT TOP 3 * FROM c", Joining::Merged);
    check("SELECT * FROM c OFFSET 1 LIMIT 2", Joining::Merged);
    check("SELECT * FROM c ORDER BY c.x", Joining::Merged);
    check("SELECT DISTINCT c.x FROM c", Joining::Merged);
    check("SELECT VALUE MAX(c.x) FROM c", Joining::Merged);
    check("SELECT COUNT(1) + 5 FROM c", Joining::Merged);
    check("SELECT c.g FROM c GROUP BY c.g", Joining::Whole);
    check("SELECT COUNT(1) FROM (SELECT DISTINCT VALUE c.x FROM c)", Joining::Whole);
    check("SELECT VALUE MAKELIST(c.x) FROM c", Joining::Whole);
    check("SELECT COUNT(1) AS n, MAKESET(c.x) AS s FROM c", Joining::Whole);
    check("SELECT VALUE (SELECT VALUE MAKELIST(t) FROM t IN c.tags) FROM c", Joining::Appended);
    check("SELECT VALUE d FROM (SELECT TOP 1 VALUE c FROM c) d", Joining::Whole);
    check("SELECT VALUE 1", Joining::Whole);
}

#[test]
fn ranges_follow_from_the_partition_key() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let (a, b) = ("3A5381E1114EB8D3FCC90795045B49B7", "195644569A78B1E22D200348AF9416CE");
    check_ranges(&definition, "SELECT * FROM c", &[["", "FF"]]);
    check_ranges(&definition, "SELECT * FROM c WHERE c.id = 'x'", &[["", "FF"]]);
    check_ranges(&definition, "SELECT * FROM c WHERE c.pk = 'a'", &[[a, a]]);
    check_ranges(&definition, "SELECT * FROM c WHERE c.pk IN ('a', 'b')", &[[b, b], [a, a]]);
    check_ranges(&definition, "SELECT * FROM c WHERE c.pk = 'a' AND c.id IN ('1','2')", &[[a, a]]);
    check_ranges(&definition, "SELECT * FROM c WHERE c.pk = 'a' AND c.pk = 'b'", &[["", "FF"]]);
    let definition = PartitionKeyDefinition::multi_hash(["/x", "/y"]).unwrap();
    let both = format!("{a}{b}");
    let query = "SELECT * FROM c WHERE c.x = 'a' AND c.y = 'b'";
    check_ranges(&definition, query, &[[&both, &both]]);
    let prefix_end = format!("{a}FF");
    check_ranges(&definition, "SELECT * FROM c WHERE c.x = 'a'", &[[a, &prefix_end]]);
}

/// What an SDK does with a plan that sorts: asks every range and merges.
#[test]
fn rewritten_queries_of_all_ranges_merged_are_the_query() {
    let document = |n: u32| {
        format!(r#"{{"id":"{n}","pk":"{}","x":{},"l":[{n}],"_rid":"r{n}"}}"#, n % 5, (n * 7) % 11)
    };
    let harness = Harness::new(&["/pk"], &(0..40).map(document).collect::<Vec<_>>());
    let none = Parameters::default();
    for text in [
        "SELECT VALUE c.x FROM c WHERE c.x > 2 ORDER BY c.x DESC",
        "SELECT VALUE s.x FROM (SELECT * FROM root c WHERE c.x > 2) s ORDER BY s.x DESC",
        "SELECT s.x FROM (SELECT DISTINCT VALUE c FROM c) s WHERE s.x < 9 ORDER BY s.x DESC",
        "SELECT VALUE s.y FROM (SELECT c.x AS y FROM c) s WHERE s.y > 1 ORDER BY s.y DESC",
        "SELECT * FROM (SELECT VALUE c.x FROM c WHERE c.x > 3) c ORDER BY c DESC",
        "SELECT VALUE x FROM x IN (SELECT VALUE [c.x, 3] FROM c) ORDER BY x DESC",
        "SELECT VALUE t + d.n FROM (SELECT VALUE {n: e.x, l: [0, 0]} FROM \
         (SELECT VALUE {x: c.x} FROM c) e) d JOIN t IN d.l ORDER BY d.n DESC",
        "SELECT VALUE d.t FROM (SELECT t FROM t IN c.l) d ORDER BY d.t DESC",
    ] {
        let query = Query::parse(text).unwrap();
        let expected = harness.all(&query, &none, &Scope::all(), Limits::items(5)).unwrap();
        assert!(!expected.is_empty(), "{text}");
        let rewritten = plan(text)["queryInfo"]["rewrittenQuery"].as_str().unwrap().to_owned();
        let sent = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
        let sent = Query::parse(&sent).unwrap();
        let mut rows: Vec<Value> = Vec::new();
        for range in KeyRange::divide(3).unwrap() {
            let found = harness.all(&sent, &none, &Scope::keys(range), Limits::items(3)).unwrap();
            rows.extend(found.iter().map(|it| serde_json::from_str::<Value>(it).unwrap()));
        }
        assert!(rows.iter().all(|it| it["_rid"].is_string()), "{text}");
        rows.sort_by_key(|it| std::cmp::Reverse(it["orderByItems"][0]["item"].as_i64().unwrap()));
        let merged: Vec<String> = rows.iter().map(|it| it["payload"].to_string()).collect();
        assert_eq!(merged, expected, "{text}");
    }
}

#[test]
fn computed_properties_are_written_out_for_the_sdk_that_merges() {
    let computed = [("lower", "SELECT VALUE LOWER(c.name) FROM c")];
    let computed = ComputedProperties::new(computed).unwrap();
    let query = "SELECT p.lower FROM p ORDER BY p.lower";
    let query = Query::parse_with(query, &computed).unwrap();
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let plan = query.plan(&definition, &Parameters::default()).unwrap();
    let plan = serde_json::to_value(plan).unwrap();
    assert_eq!(plan["queryInfo"]["orderByExpressions"], json!(["LOWER(p.name)"]));
    let rewritten = plan["queryInfo"]["rewrittenQuery"].as_str().unwrap();
    assert!(rewritten.contains(r#"{"lower": LOWER(p.name)} AS payload"#), "{rewritten}");
    // What the SDK sends back means the same, with or without them.
    let sent = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
    let documents = [r#"{"id":"1","pk":"a","name":"B"}"#, r#"{"id":"2","pk":"a","name":"a"}"#];
    let harness = Harness::new(&["/pk"], &documents.map(str::to_owned));
    for computed in [&computed, &ComputedProperties::default()] {
        let query = Query::parse_with(&sent, computed).unwrap();
        let limits = Limits::items(10);
        let rows = harness.all(&query, &Parameters::default(), &Scope::all(), limits).unwrap();
        assert!(rows[0].contains(r#""payload":{"lower":"a"}"#), "{}", rows[0]);
    }
}

#[test]
fn a_source_that_is_written_out_can_be_read_again() {
    let computed = [("all", "SELECT VALUE IS_DEFINED(c.tags) ? c.tags : [] FROM c")];
    let computed = ComputedProperties::new(computed).unwrap();
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let queries = [
        "SELECT VALUE t FROM c JOIN t IN c.all ORDER BY t",
        "SELECT VALUE all FROM c JOIN c.all ORDER BY all",
        "SELECT DISTINCT VALUE t FROM c JOIN t IN c.all",
    ];
    for query in queries {
        let query = Query::parse_with(query, &computed).unwrap();
        let plan = query.plan(&definition, &Parameters::default()).unwrap();
        let plan = serde_json::to_value(plan).unwrap();
        let rewritten = plan["queryInfo"]["rewrittenQuery"].as_str().unwrap();
        let sent = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
        if let Err(error) = Query::parse_with(&sent, &computed) {
            panic!("{sent}: {}", error.report());
        }
    }
    // The same without computed properties.
    let query = "SELECT VALUE t FROM c JOIN t IN (c.a ?? c.b) ORDER BY t";
    let rewritten = plan(query)["queryInfo"]["rewrittenQuery"].as_str().unwrap().to_owned();
    Query::parse(&rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true"))
        .unwrap();
}
