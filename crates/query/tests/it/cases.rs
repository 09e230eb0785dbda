//! A table of queries and their results, in `cases/*.txt`.
//!
//! A file begins with its documents, one in a line, and computed properties. Then come queries:
//!
//! ```text
//! $lower = SELECT VALUE LOWER(c.a) FROM c
//!
//! > SELECT VALUE c.a + @x FROM c      the query; further lines begin with "  "
//! @x = 1                              parameters
//! = 2                                 rows, in this order
//! ~ 2                                 or rows in any order
//! ! message                           or the end of an error
//! ```
//!
//! Every query is run in pages of several sizes, which must give the same.

use millstream_query::{ComputedProperties, Limits, Parameters, Query, Scope};

use crate::harness::Harness;

struct File {
    documents: Vec<String>,
    computed: ComputedProperties,
    cases: Vec<Case>,
}

struct Case {
    line: usize,
    query: String,
    parameters: Vec<String>,
    rows: Vec<String>,
    is_any_order: bool,
    error: Option<String>,
}

#[track_caller]
fn check_file(name: &str, text: &str) {
    let File { documents, computed, cases } = parse(text);
    let harness = Harness::new(&["/pk"], &documents);
    let mut faults = Vec::new();
    for case in &cases {
        if let Err(fault) = check(&harness, &computed, case) {
            faults.push(format!("{name}:{}: {}\n{fault}", case.line, case.query));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

fn parse(text: &str) -> File {
    let mut documents = Vec::new();
    let mut computed = Vec::new();
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(query) = line.strip_prefix("> ") {
            cases.push(Case {
                line: index + 1,
                query: query.to_owned(),
                parameters: Vec::new(),
                rows: Vec::new(),
                is_any_order: false,
                error: None,
            });
            continue;
        }
        if let Some(property) = line.strip_prefix('$') {
            computed.push(property.split_once(" = ").unwrap());
            continue;
        }
        let Some(case) = cases.last_mut() else {
            documents.push(line.to_owned());
            continue;
        };
        if let Some(more) = line.strip_prefix("  ") {
            case.query = format!("{}\n{more}", case.query);
        } else if line.starts_with('@') {
            let (name, value) = line.split_once(" = ").unwrap();
            case.parameters.push(format!(r#"{{"name": "{name}", "value": {value}}}"#));
        } else if let Some(row) = line.strip_prefix("= ") {
            case.rows.push(row.to_owned());
        } else if let Some(row) = line.strip_prefix("~ ") {
            case.rows.push(row.to_owned());
            case.is_any_order = true;
        } else if let Some(error) = line.strip_prefix("! ") {
            case.error = Some(error.to_owned());
        } else {
            panic!("line {} means nothing: {line}", index + 1);
        }
    }
    File { documents, computed: ComputedProperties::new(computed).unwrap(), cases }
}

fn check(harness: &Harness, computed: &ComputedProperties, case: &Case) -> Result<(), String> {
    let parameters = format!("[{}]", case.parameters.join(","));
    let parameters = Parameters::from_json(parameters.as_bytes()).unwrap();
    let run = |limits: Limits| {
        let query = Query::parse_with(&case.query, computed)?;
        harness.all(&query, &parameters, &Scope::all(), limits)
    };
    let found = run(Limits::items(1000));
    let mut rows = match (found, &case.error) {
        (Ok(rows), None) => rows,
        (Err(error), Some(expected)) if error.report().ends_with(expected) => return Ok(()),
        (Err(error), _) => return Err(format!("  error: {}", error.report())),
        (Ok(rows), Some(_)) => return Err(format!("  found: {rows:?}")),
    };
    for items_max in [1, 2, 3, 7] {
        for documents_max in [1, 2, 1000] {
            let limits = Limits { documents_max, ..Limits::items(items_max) };
            let paged = run(limits).map_err(|error| format!("  paged: {}", error.report()))?;
            if paged != rows {
                return Err(format!("  in pages of {items_max}: {paged:#?}\n  at once: {rows:#?}"));
            }
        }
    }
    // The same over a list, where every document is parsed whole.
    let mut listed = Query::parse_with(&case.query, computed)
        .and_then(|query| query.evaluate(&harness.texts, &parameters, &harness.clock))
        .map_err(|error| format!("  over a list: {}", error.report()))?;
    let mut sorted = rows.clone();
    listed.sort();
    sorted.sort();
    if !case.query.contains("TOP") && !case.query.contains("OFFSET") && listed != sorted {
        return Err(format!("  over a list: {listed:#?}\n  at once: {sorted:#?}"));
    }
    let mut expected = case.rows.clone();
    if case.is_any_order {
        rows.sort();
        expected.sort();
    }
    if rows == expected {
        return Ok(());
    }
    Err(rows.iter().map(|row| format!("= {row}")).collect::<Vec<_>>().join("\n"))
}

macro_rules! files {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let file = concat!("cases/", stringify!($name), ".txt");
            check_file(file, include_str!(concat!("cases/", stringify!($name), ".txt")));
        }
    )*};
}

files!(select operators undefined strings patterns arrays math types dates subqueries order groups
       windows rewritten numbers partitions keys computed);
