//! The JSON form of a patch.

use std::error::Error as StdError;

use crate::error::{Error, Result};
use crate::json::RawJson;
use crate::json::cursor::Fault;
use crate::json::edit::quote;
use crate::json::scanner::{Scanner, decode, properties};
use crate::patch::path::PatchPath;
use crate::patch::{Patch, PatchOperation};

type Refusal = Box<dyn StdError + Send + Sync>;

/// Operations and the condition's text.
pub(super) fn read(json: &[u8]) -> Result<(Vec<PatchOperation>, Option<String>)> {
    let text = std::str::from_utf8(json)
        .map_err(|error| unreadable(format!("no UTF-8 at byte {}", error.valid_up_to())))?;
    let mut scanner = Scanner::new(text);
    scanner.space();
    if scanner.peek() == b'[' {
        return Ok((read_operations(text)?, None));
    }
    let [operations, condition] =
        properties(text, ["operations", "condition"]).map_err(unreadable)?;
    let Some(operations) = operations else {
        return Err(unreadable("it has no property \"operations\""));
    };
    let condition = match condition {
        None | Some("null") => None,
        Some(raw) => match decode(raw) {
            Some(text) => Some(text.into_owned()),
            None => return Err(unreadable("its property \"condition\" is not a string")),
        },
    };
    Ok((read_operations(operations)?, condition))
}

pub(super) fn write(patch: &Patch) -> String {
    let mut text = "{".to_owned();
    if let Some(condition) = patch.condition() {
        text += &format!("\"condition\":{},", quote(condition.text()));
    }
    text += "\"operations\":[";
    for (index, operation) in patch.operations().iter().enumerate() {
        if 0 < index {
            text.push(',');
        }
        write_operation(&mut text, operation);
    }
    text + "]}"
}

fn read_operations(text: &str) -> Result<Vec<PatchOperation>> {
    let raw_operations = elements(text).map_err(unreadable)?;
    let mut operations = Vec::with_capacity(raw_operations.len());
    for (index, raw) in raw_operations.into_iter().enumerate() {
        let operation = read_operation(raw).map_err(|error| {
            Error::invalid(format!("read operation {index} of the patch"), error)
        })?;
        operations.push(operation);
    }
    Ok(operations)
}

/// The elements of an array, but not many more than a patch may have.
fn elements(text: &str) -> Result<Vec<&str>, Fault> {
    let mut found = Vec::new();
    let mut scanner = Scanner::new(text);
    scanner.space();
    scanner.array(|scanner, index| {
        let start = scanner.position();
        scanner.value()?;
        if index <= Patch::OPERATIONS_MAX {
            found.push(scanner.since(start));
        }
        Ok(())
    })?;
    scanner.end()?;
    Ok(found)
}

fn read_operation(raw: &str) -> Result<PatchOperation, Refusal> {
    let [op, path, value, from] = properties(raw, ["op", "path", "value", "from"])?;
    let string = |name: &str, raw: Option<&str>| {
        let text = raw.and_then(|raw| decode(raw).map(String::from));
        text.ok_or_else(|| format!("it has no string {name:?}"))
    };
    let value = || match value {
        Some(raw) => Ok(RawJson::parse(raw)?),
        None => Err(Refusal::from("it has no property \"value\"")),
    };
    let op = string("op", op)?;
    let path = PatchPath::parse(&string("path", path)?)?;
    Ok(match op.as_str() {
        "add" => PatchOperation::Add { path, value: value()? },
        "set" => PatchOperation::Set { path, value: value()? },
        "replace" => PatchOperation::Replace { path, value: value()? },
        "remove" => PatchOperation::Remove { path },
        "incr" => PatchOperation::Increment { path, by: value()? },
        "move" => PatchOperation::Move { from: PatchPath::parse(&string("from", from)?)?, path },
        _ => return Err("\"op\" is none of add, set, replace, remove, incr, move".into()),
    })
}

fn write_operation(text: &mut String, operation: &PatchOperation) {
    let path = quote(operation.path().as_str());
    let (op, name, value) = match operation {
        PatchOperation::Add { value, .. } => ("add", "value", value.as_str().to_owned()),
        PatchOperation::Set { value, .. } => ("set", "value", value.as_str().to_owned()),
        PatchOperation::Replace { value, .. } => ("replace", "value", value.as_str().to_owned()),
        PatchOperation::Increment { by, .. } => ("incr", "value", by.as_str().to_owned()),
        PatchOperation::Move { from, .. } => ("move", "from", quote(from.as_str())),
        PatchOperation::Remove { .. } => {
            *text += &format!("{{\"op\":\"remove\",\"path\":{path}}}");
            return;
        }
    };
    *text += &format!("{{\"op\":\"{op}\",\"path\":{path},\"{name}\":{value}}}");
}

fn unreadable(reason: impl Into<Refusal>) -> Error {
    Error::invalid("read the patch", reason)
}
