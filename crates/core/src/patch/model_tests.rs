//! Random patches against a model that works on a parsed tree.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::json::tests::any_json;
use crate::{Envelope, ItemId};

fn any_operation() -> impl Strategy<Value = PatchOperation> {
    let path = || {
        let name =
            prop::sample::select(vec!["a", "a", "b", "0", "0", "1", "2", "-", "a~1b", "~0", "ä"]);
        prop::collection::vec(name, 1..4).prop_map(|names| format!("/{}", names.join("/")))
    };
    let value = || any_json().prop_map(|json| RawJson::parse(&json).unwrap());
    let by = prop::sample::select(vec!["1", "-3", "0.5", "2e1", "9223372036854775807"]);
    let parse = |path: &str| PatchPath::parse(path).unwrap();
    prop_oneof![
        (path(), value())
            .prop_map(move |(path, value)| PatchOperation::Add { path: parse(&path), value }),
        (path(), value())
            .prop_map(move |(path, value)| PatchOperation::Set { path: parse(&path), value }),
        (path(), value())
            .prop_map(move |(path, value)| PatchOperation::Replace { path: parse(&path), value }),
        path().prop_map(move |path| PatchOperation::Remove { path: parse(&path) }),
        (path(), by).prop_map(move |(path, by)| PatchOperation::Increment {
            path: parse(&path),
            by: RawJson::parse(by).unwrap()
        }),
        (path(), path()).prop_map(move |(from, path)| PatchOperation::Move {
            from: parse(&from),
            path: parse(&path)
        }),
    ]
}

fn any_body() -> impl Strategy<Value = String> {
    let value = || any_json().prop_map(|json| json.trim().to_owned());
    (value(), value(), value()).prop_map(|(a, b, c)| {
        format!(
            "{{\"id\":\"1\",\"big\":1e400, \"a\" : {a},\"b\":{b},\"0\":[{c},[1,2],{{\"a\":1}}]}}"
        )
    })
}

/// The operation on a tree, or `None` if it is refused.
fn model(root: &mut Value, operation: &PatchOperation) -> Option<()> {
    let names = operation.path().names();
    let (name, parents) = names.split_last().unwrap();
    let value = |raw: &RawJson| serde_json::from_str(raw.as_str()).unwrap();
    match operation {
        PatchOperation::Add { value: raw, .. } => model_add(root, names, value(raw)),
        PatchOperation::Set { value: raw, .. } => match descend(root, names) {
            Some(place) => {
                *place = value(raw);
                Some(())
            }
            None => model_add(root, names, value(raw)),
        },
        PatchOperation::Replace { value: raw, .. } => {
            *descend(root, names)? = value(raw);
            Some(())
        }
        PatchOperation::Remove { .. } => model_remove(root, names).map(drop),
        PatchOperation::Increment { by, .. } => {
            if let Value::Object(members) = descend(root, parents)? {
                members.entry(name.clone()).or_insert_with(|| Value::from(0));
            }
            let place = descend(root, names)?;
            let by: Value = value(by);
            let integers = integer(place).zip(integer(&by));
            *place = match integers.and_then(|(left, right)| left.checked_add(right)) {
                Some(sum) => sum.into(),
                None => (place.as_f64()? + by.as_f64()?).into(),
            };
            Some(())
        }
        PatchOperation::Move { from, .. } => {
            let value = model_remove(root, from.names())?;
            model_add(root, names, value)
        }
    }
}

/// The tree takes `-0` for a double, but it is spelled as an integer.
fn integer(value: &Value) -> Option<i64> {
    let is_negative_zero = |double: &f64| *double == 0.0 && double.is_sign_negative();
    value.as_i64().or_else(|| value.as_f64().filter(is_negative_zero).map(|_| 0))
}

fn index(name: &str) -> Option<usize> {
    name.parse().ok().filter(|index: &usize| index.to_string() == name)
}

fn descend<'a>(root: &'a mut Value, names: &[String]) -> Option<&'a mut Value> {
    names.iter().try_fold(root, |value, name| match value {
        Value::Object(members) => members.get_mut(name),
        Value::Array(elements) => elements.get_mut(index(name)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn model_add(root: &mut Value, names: &[String], value: Value) -> Option<()> {
    let (name, parents) = names.split_last().unwrap();
    match descend(root, parents)? {
        Value::Object(members) => drop(members.insert(name.clone(), value)),
        Value::Array(elements) => {
            let at = if name == "-" { elements.len() } else { index(name)? };
            (at <= elements.len()).then(|| elements.insert(at, value))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}

fn model_remove(root: &mut Value, names: &[String]) -> Option<Value> {
    descend(root, names)?;
    let (name, parents) = names.split_last().unwrap();
    match descend(root, parents)? {
        Value::Object(members) => members.remove(name),
        Value::Array(elements) => Some(elements.remove(index(name)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// `1e400` fits no tree; the model sees a string in its place.
fn parse(body: &str) -> Value {
    serde_json::from_str(&body.replace("1e400", "\"big\"")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_patch_does_what_the_model_does(
        body in any_body(),
        operations in prop::collection::vec(any_operation(), 1..=10),
    ) {
        let mut now = body.clone();
        let mut done = Vec::new();
        for operation in operations {
            let Ok(patch) = Patch::new(vec![operation.clone()]) else {
                continue; // A value was to be moved into itself.
            };
            let mut expected = parse(&now);
            let expected = model(&mut expected, &operation).map(|()| expected);
            match patch.apply(now.as_bytes()) {
                Ok(found) => {
                    prop_assert_eq!(Envelope::scan(&found).unwrap().id, ItemId::new("1").unwrap());
                    now = String::from_utf8(found).unwrap();
                    prop_assert!(now.contains("\"big\":1e400"));
                    prop_assert_eq!(Some(parse(&now)), expected, "{}", now);
                    done.push(operation);
                }
                Err(error) => prop_assert_eq!(None, expected, "{}", error.report()),
            }
        }
        if !done.is_empty() {
            let at_once = Patch::new(done).unwrap().apply(body.as_bytes()).unwrap();
            prop_assert_eq!(String::from_utf8(at_once).unwrap(), now);
        }
    }

    #[test]
    fn a_patch_of_random_bytes_never_panics(
        body in prop::collection::vec(any::<u8>(), 0..60),
        operation in any_operation(),
    ) {
        if let Ok(patch) = Patch::new(vec![operation]) {
            let _ = patch.apply(&body);
        }
        let _ = Patch::from_json(&body);
    }

    #[test]
    fn a_random_patch_survives_the_way_to_json_and_back(operation in any_operation()) {
        if let Ok(patch) = Patch::new(vec![operation]) {
            let (again, condition) = Patch::from_json(&patch.to_json()).unwrap();
            prop_assert_eq!(again.operations(), patch.operations());
            prop_assert_eq!(condition, None);
        }
    }
}
