use super::*;
use crate::ErrorKind;

/// Applies operations in their JSON form; `expected` is the new body or part of the report of an
/// error.
#[track_caller]
fn check_patch(body: &str, operations: &str, expected: &str) {
    let result =
        Patch::from_json(operations.as_bytes()).and_then(|(patch, _)| patch.apply(body.as_bytes()));
    match result {
        Ok(found) => assert_eq!(String::from_utf8(found).unwrap(), expected, "{operations}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.report().contains(expected), "{operations}: {}", error.report());
        }
    }
}

/// One operation given as `add /a 1`, `remove /a` or `move /a /b`.
#[track_caller]
fn check(body: &str, operation: &str, expected: &str) {
    let mut words = operation.splitn(3, ' ');
    let (op, path, rest) = (words.next().unwrap(), words.next().unwrap(), words.next());
    let json = match (op, rest) {
        ("move", Some(to)) => format!(r#"[{{"op":"move","from":"{path}","path":"{to}"}}]"#),
        (_, Some(value)) => format!(r#"[{{"op":"{op}","path":"{path}","value":{value}}}]"#),
        (_, None) => format!(r#"[{{"op":"{op}","path":"{path}"}}]"#),
    };
    check_patch(body, &json, expected);
}

#[test]
fn the_documented_example_works() {
    let body = r#"{
        "id": "e", "name": "R-410", "price": 455.95,
        "inventory": {"quantity": 15}, "used": false,
        "tags": ["r-series"]
    }"#;
    let patch = r#"[
        {"op": "add", "path": "/color", "value": "silver"},
        {"op": "remove", "path": "/used"},
        {"op": "set", "path": "/price", "value": 355.45},
        {"op": "incr", "path": "/inventory/quantity", "value": 10},
        {"op": "add", "path": "/tags/-", "value": "featured-bikes"},
        {"op": "move", "from": "/color", "path": "/inventory/color"}
    ]"#;
    let expected = r#"{
        "id": "e", "name": "R-410", "price": 355.45,
        "inventory": {"quantity": 25,"color":"silver"},
        "tags": ["r-series","featured-bikes"]
    }"#;
    check_patch(body, patch, expected);
}

#[test]
fn add_creates_overwrites_and_inserts() {
    check(r#"{"a":1}"#, "add /b 2", r#"{"a":1,"b":2}"#);
    check(r#"{"a":1}"#, "add /a null", r#"{"a":null}"#);
    check("{}", "add /a {}", r#"{"a":{}}"#);
    check(r#"{"a":{}}"#, "add /a/b 1", r#"{"a":{"b":1}}"#);
    check(r#"{"a":[1,2]}"#, "add /a/0 0", r#"{"a":[0,1,2]}"#);
    check(r#"{"a":[1, 2]}"#, "add /a/1 0", r#"{"a":[1, 0,2]}"#);
    check(r#"{"a":[1,2]}"#, "add /a/2 3", r#"{"a":[1,2,3]}"#);
    check(r#"{"a":[1,2]}"#, "add /a/- 3", r#"{"a":[1,2,3]}"#);
    check(r#"{"a":[ ]}"#, "add /a/- 3", r#"{"a":[3 ]}"#);
    check(r#"{"a":[[1]]}"#, "add /a/0/0 0", r#"{"a":[[0,1]]}"#);
    check(r#"{"a":[1,2]}"#, "add /a/3 3", "an array of length 2 has no place \"3\"");
    check(r#"{"a":[1,2]}"#, "add /a/x 3", "an array of length 2 has no place \"x\"");
    check(r#"{"a":[1,2]}"#, "add /a/00 3", "an array of length 2 has no place \"00\"");
    check(r#"{"a":[1,2]}"#, "add /a/-1 3", "an array of length 2 has no place \"-1\"");
    check(r#"{"a":[1]}"#, "add /a/99999999999999999999 3", "has no place \"99999999999999999999\"");
    check(r#"{"a":1}"#, "add /b/c 1", "could not add \"/b/c\": \"/b\" does not exist");
    check(r#"{"a":1}"#, "add /a/b 1", "\"/a\" is neither object nor array");
    check(r#"{"a":[1]}"#, "add /a/-/b 1", "\"/a/-\" does not exist");
}

#[test]
fn set_creates_and_overwrites() {
    check(r#"{"a":1}"#, "set /b 2", r#"{"a":1,"b":2}"#);
    check(r#"{"a":1}"#, "set /a 2", r#"{"a":2}"#);
    check(r#"{"a":[1,2]}"#, "set /a/0 0", r#"{"a":[0,2]}"#);
    check(r#"{"a":[1,2]}"#, "set /a/2 3", r#"{"a":[1,2,3]}"#);
    check(r#"{"a":[1,2]}"#, "set /a/- 3", r#"{"a":[1,2,3]}"#);
    check(r#"{"a":[1,2]}"#, "set /a/3 3", "has no place \"3\"");
    check(r#"{"a":1}"#, "set /b/c 1", "\"/b\" does not exist");
}

#[test]
fn replace_needs_something_to_replace() {
    check(r#"{"a":1}"#, "replace /a 2", r#"{"a":2}"#);
    check(r#"{"a":[1,2]}"#, "replace /a/1 0", r#"{"a":[1,0]}"#);
    check(r#"{"a":1}"#, "replace /b 2", "could not replace \"/b\": \"/b\" does not exist");
    check(r#"{"a":[1,2]}"#, "replace /a/2 0", "has no place \"2\"");
    check(r#"{"a":[1,2]}"#, "replace /a/- 0", "has no place \"-\"");
}

#[test]
fn remove_needs_something_to_remove() {
    check(r#"{"a":1}"#, "remove /a", "{}");
    check(r#"{"a":1, "b":2, "c":3}"#, "remove /a", r#"{"b":2, "c":3}"#);
    check(r#"{"a":1, "b":2, "c":3}"#, "remove /b", r#"{"a":1, "c":3}"#);
    check(r#"{"a":1, "b":2, "c":3 }"#, "remove /c", r#"{"a":1, "b":2 }"#);
    check(r#"{"a":[1,2,3]}"#, "remove /a/0", r#"{"a":[2,3]}"#);
    check(r#"{"a":[1,2,3]}"#, "remove /a/2", r#"{"a":[1,2]}"#);
    check(r#"{"a":[1]}"#, "remove /a/0", r#"{"a":[]}"#);
    check(r#"{"a":1}"#, "remove /b", "could not remove \"/b\": \"/b\" does not exist");
    check(r#"{"a":[1]}"#, "remove /a/1", "an array of length 1 has no place \"1\"");
    check(r#"{"a":[1]}"#, "remove /a/-", "an array of length 1 has no place \"-\"");
}

#[test]
fn of_a_repeated_property_the_last_one_is_patched() {
    check(r#"{"a":1,"b":2,"a":3}"#, "set /a 4", r#"{"a":1,"b":2,"a":4}"#);
    check(r#"{"a":{"x":1},"a":{}}"#, "replace /a/x 4", "\"/a/x\" does not exist");
    check(r#"{"a":{},"a":{"x":1}}"#, "replace /a/x 4", r#"{"a":{},"a":{"x":4}}"#);
}

#[test]
fn a_repeated_property_is_removed_as_often_as_it_is_there() {
    check(r#"{"a":1,"b":2,"\u0061":3}"#, "remove /a", r#"{"b":2}"#);
    check(r#"{"b":2,"a":1,"a":3,"c":4}"#, "remove /a", r#"{"b":2,"c":4}"#);
    check(r#"{"a":1,"a":3}"#, "remove /a", "{}");
    check(r#"{"a":1,"a":3,"b":2,"a":5,"a":6}"#, "remove /a", r#"{"b":2}"#);
    check(r#"{"a":1,"b":2,"a":3}"#, "move /a /c", r#"{"b":2,"c":3}"#);
}

#[test]
fn increment_adds_to_numbers() {
    check(r#"{"a":1}"#, "incr /a 2", r#"{"a":3}"#);
    check(r#"{"a":1}"#, "incr /a -2", r#"{"a":-1}"#);
    check(r#"{"a":1}"#, "incr /a 0.5", r#"{"a":1.5}"#);
    check(r#"{"a":1.5}"#, "incr /a 2", r#"{"a":3.5}"#);
    check(r#"{"a":1e2}"#, "incr /a 2", r#"{"a":102.0}"#);
    check(r#"{"a":[1,2]}"#, "incr /a/1 5", r#"{"a":[1,7]}"#);
    check(r#"{"a":9007199254740993}"#, "incr /a 2", r#"{"a":9007199254740995}"#);
    check(r#"{"a":9223372036854775807}"#, "incr /a 1", r#"{"a":9.223372036854776e18}"#);
    check(r#"{"a":18446744073709551615}"#, "incr /a 0", r#"{"a":1.8446744073709552e19}"#);
    check(r#"{"a":-0}"#, "incr /a 0", r#"{"a":0}"#);
}

#[test]
fn increment_creates_a_missing_property_as_it_was_spelled() {
    check(r#"{"a":1}"#, "incr /b 0.10", r#"{"a":1,"b":0.10}"#);
    check(r#"{"a":{}}"#, "incr /a/b 2", r#"{"a":{"b":2}}"#);
    check(r#"{"a":1}"#, "incr /b/c 2", "\"/b\" does not exist");
    check(r#"{"a":[1]}"#, "incr /a/1 2", "an array of length 1 has no place \"1\"");
    check(r#"{"a":[1]}"#, "incr /a/- 2", "an array of length 1 has no place \"-\"");
}

#[test]
fn increment_refuses_what_is_not_a_finite_number() {
    check(r#"{"a":"1"}"#, "incr /a 2", "could not increment \"/a\": an increment needs a number");
    check(r#"{"a":null}"#, "incr /a 2", "an increment needs a number");
    check(r#"{"a":1}"#, "incr /a null", "an increment needs a number");
    check(r#"{"a":1}"#, "incr /a 1e400", "the number is too large for a double");
    check(r#"{"a":1e400}"#, "incr /a 1", "the number is too large for a double");
    check(r#"{"a":1.5e308}"#, "incr /a 1.5e308", "the sum is too large for a double");
    let operation = PatchOperation::increment_double("/a", f64::NAN).unwrap();
    assert!(Patch::new(vec![operation]).is_err());
}

#[test]
fn move_takes_and_adds() {
    check(r#"{"a":1e400,"b":2}"#, "move /a /c", r#"{"b":2,"c":1e400}"#);
    check(r#"{"a":1,"b":2}"#, "move /a /b", r#"{"b":1}"#);
    check(r#"{"a":{"x":1},"b":{}}"#, "move /a/x /b/y", r#"{"a":{},"b":{"y":1}}"#);
    check(r#"{"a":{"x":1}}"#, "move /a/x /a", r#"{"a":1}"#);
    check(r#"{"a":[1,2,3]}"#, "move /a/0 /a/2", r#"{"a":[2,3,1]}"#);
    check(r#"{"a":[1,2,3]}"#, "move /a/2 /a/0", r#"{"a":[3,1,2]}"#);
    check(r#"{"a":[1,2,3]}"#, "move /a/0 /a/-", r#"{"a":[2,3,1]}"#);
    check(r#"{"a":[1,2,3]}"#, "move /a/0 /a/3", "an array of length 2 has no place \"3\"");
    check(r#"{"a":1,"b":2}"#, "move /a /a", r#"{"a":1,"b":2}"#);
    check(r#"{"a":1}"#, "move /b /b", "\"/b\" does not exist");
    check(r#"{"a":1}"#, "move /b /a", "could not move \"/b\" to \"/a\": \"/b\" does not exist");
    check(r#"{"a":{"b":1}}"#, "move /a /a/b", "a value cannot be moved into itself");
    check(r#"{"ab":1}"#, "move /ab /a", r#"{"a":1}"#);
}

#[test]
fn the_id_and_system_properties_cannot_be_patched() {
    for name in ["id", "_rid", "_self", "_etag", "_ts", "_attachments"] {
        let reason = format!("property {name:?} cannot be patched");
        check("{}", &format!("set /{name} 1"), &reason);
        check("{}", &format!("add /{name}/x 1"), &reason);
        check("{}", &format!("remove /{name}"), &reason);
        check("{}", &format!("move /{name} /a"), &reason);
        check("{}", &format!("move /a /{name}"), &reason);
    }
    check(r#"{"a":{}}"#, "set /a/id 1", r#"{"a":{"id":1}}"#);
    check("{}", "set /ttl 5", r#"{"ttl":5}"#);
}

#[test]
fn names_in_paths_are_unescaped() {
    check(r#"{"a/b":1}"#, "set /a~1b 2", r#"{"a/b":2}"#);
    check(r#"{"a~b":1}"#, "set /a~0b 2", r#"{"a~b":2}"#);
    check(r#"{"~1":1}"#, "set /~01 2", r#"{"~1":2}"#);
    check(r#"{"a\/b":1}"#, "set /a~1b 2", r#"{"a\/b":2}"#);
    check(r#"{"":1}"#, "set / 2", r#"{"":2}"#);
    check("{}", r"set /\u00e4\n 2", r#"{"ä\n":2}"#);
    check(r#"{"0":1}"#, "set /0 2", r#"{"0":2}"#);
    check("{}", "set a 2", "it does not start with \"/\"");
    check_patch("{}", r#"[{"op":"remove","path":""}]"#, "it does not start with \"/\"");
    check("{}", "set /a~ 2", "\"~\" must be written \"~0\"");
    check("{}", "set /a~2 2", "\"~\" must be written \"~0\"");
}

#[test]
fn what_is_not_named_stays_byte_for_byte() {
    let numbers = "[1e400, 18446744073709551615,0.10 ]";
    let body = &format!("{{ \"id\":\"1\",\n\t\"n\" : {numbers}, \"\\u0061\":\"\\/\", \"z\":1 }}\n");
    check(body, "incr /z 1", &body.replace("\"z\":1", "\"z\":2"));
    check(body, "set /n/1 5", &body.replace("18446744073709551615", "5"));
    check(body, "set /z 1.00e0", &body.replace("\"z\":1", "\"z\":1.00e0"));
}

#[test]
fn operations_see_what_the_earlier_ones_did() {
    let operations = r#"[{"op":"add","path":"/a","value":{"n":[ ]}},
        {"op":"add","path":"/a/n/-","value":1},
        {"op":"incr","path":"/a/n/0","value":1},{"op":"incr","path":"/a/n/0","value":0.5}]"#;
    check_patch("{}", operations, r#"{"a":{"n":[2.5 ]}}"#);
}

#[test]
fn a_body_that_is_not_an_object_is_refused() {
    check("", "set /a 1", "expected a value at byte 0");
    check("5", "set /a 1", "\"\" is neither object nor array");
    check("[1]", "set /0 1", "expected an object at byte 0");
    check("{\"a\":1", "set /a 1", "expected \",\" or \"}\" at byte 6");
    check("{\"a\":1}}", "set /a 1", "expected the end at byte 7");
}

#[test]
fn the_result_is_not_nested_too_deep() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let set = |depth| {
        let value = RawJson::parse(&deep(depth)).unwrap();
        let operation = PatchOperation::Set { path: PatchPath::parse("/a").unwrap(), value };
        Patch::new(vec![operation]).unwrap().apply(b"{}")
    };
    assert_eq!(set(127).unwrap(), format!("{{\"a\":{}}}", deep(127)).into_bytes());
    let report = set(128).unwrap_err().report();
    assert_eq!(
        report,
        "could not keep the patched item: nested deeper than 128 levels at byte 132"
    );
    let body = format!("{{\"a\":{},\"b\":[]}}", deep(127));
    check(&body, "move /a /b/0", "nested deeper than 128 levels");
}

#[test]
fn a_patch_has_one_to_ten_operations() {
    let many =
        |count| format!("[{}]", vec![r#"{"op":"incr","path":"/a","value":1}"#; count].join(","));
    check_patch("{}", "[]", "it has no operations");
    check_patch("{}", &many(10), r#"{"a":10}"#);
    check_patch("{}", &many(11), "it has more than 10 operations");
    check_patch("{}", &many(5000), "it has more than 10 operations");
}

#[test]
fn a_patch_is_read_in_both_forms() {
    #[track_caller]
    fn check(json: &str, expected: &str) {
        let found = match Patch::from_json(json.as_bytes()) {
            Ok((patch, condition)) => format!("{:?} {condition:?}", patch.operations().len()),
            Err(error) => error.report(),
        };
        assert_eq!(found, expected, "{json}");
    }
    check(r#" [ {"op":"remove","path":"/a"} ] "#, "1 None");
    check(
        r#"{"operations":[{"path":"/a","op":"remove","more":1}],"condition":"from c where c.a = \"1\""}"#,
        r#"1 Some("from c where c.a = \"1\"")"#,
    );
    check(r#"{"condition":null,"operations":[{"op":"set","path":"/a","value":null}]}"#, "1 None");
    check("{}", "could not read the patch: it has no property \"operations\"");
    check(r#"{"operations":{}}"#, "could not read the patch: expected an array at byte 0");
    check(
        r#"{"operations":[],"condition":1}"#,
        "could not read the patch: its property \"condition\" is not a string",
    );
    check("[1]", "could not read operation 0 of the patch: expected an object at byte 0");
    check("[{}]", "could not read operation 0 of the patch: it has no string \"op\"");
    check(
        r#"[{"op":"copy","path":"/a"}]"#,
        "could not read operation 0 of the patch: \"op\" is none of add, set, replace, remove, \
         incr, move",
    );
    check(
        r#"[{"op":"set","path":"/a"}]"#,
        "could not read operation 0 of the patch: it has no property \"value\"",
    );
    check(
        r#"[{"op":"move","path":"/a"}]"#,
        "could not read operation 0 of the patch: it has no string \"from\"",
    );
    check("5", "could not read the patch: expected an object at byte 0");
}

#[test]
fn a_patch_survives_the_way_to_json_and_back() {
    let json = concat!(
        r#"{"condition":"from c where c.n = \"ä\"","operations":["#,
        r#"{"op":"add","path":"/a~1","value":{"x": 1e400}},"#,
        r#"{"op":"set","path":"/b","value":null},"#,
        r#"{"op":"replace","path":"/c\"","value":0.10},"#,
        r#"{"op":"remove","path":"/d"},"#,
        r#"{"op":"incr","path":"/e","value":-5},"#,
        r#"{"op":"move","path":"/g","from":"/f"}]}"#,
    );
    let (patch, condition) = Patch::from_json(json.as_bytes()).unwrap();
    let patch = patch.with_condition(PatchCondition::new(condition.unwrap(), |_| Ok(true)));
    assert_eq!(String::from_utf8(patch.to_json()).unwrap(), json);
}

#[test]
fn a_condition_is_asked_with_the_body() {
    let patch = Patch::new(vec![PatchOperation::remove("/a").unwrap()]).unwrap();
    assert!(patch.condition_holds(b"{}", None, &mut 0).unwrap());
    let patch = patch.with_condition(PatchCondition::new("where c.a", |body| Ok(body == b"{}")));
    assert!(patch.condition_holds(b"{}", None, &mut 0).unwrap());
    assert!(!patch.condition_holds(b"{\"a\":1}", None, &mut 0).unwrap());
    assert_eq!(format!("{:?}", patch.condition().unwrap()), "PatchCondition(\"where c.a\")");
    assert_eq!(patch.apply(b"{\"a\":1}").unwrap(), b"{}");
    let failing = PatchCondition::new("?", |_| Err(Error::invalid("read the condition", "no")));
    assert!(patch.with_condition(failing).condition_holds(b"{}", None, &mut 0).is_err());
}
