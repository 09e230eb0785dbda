//! Functions of strings. Characters are Unicode code points.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::error::Result;
use crate::evaluate::truth;
use crate::functions::{Context, Function, all, any};
use crate::json;
use crate::measure::{self, MEASURE_STEP_BYTES, array_memory, string_memory};
use crate::value::{Number, Value, whole};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new("CONCAT", 2, usize::MAX, |context, it| context.concatenate(it)),
    Function::new("CONTAINS", 2, 3, |context, it| {
        compared(context, it, |text, part| text.contains(part))
    }),
    Function::new("CONTAINS_ALL_CI", 2, usize::MAX, |context, it| {
        contains_several(context, it, true, true)
    }),
    Function::new("CONTAINS_ALL_CS", 2, usize::MAX, |context, it| {
        contains_several(context, it, true, false)
    }),
    Function::new("CONTAINS_ANY_CI", 2, usize::MAX, |context, it| {
        contains_several(context, it, false, true)
    }),
    Function::new("CONTAINS_ANY_CS", 2, usize::MAX, |context, it| {
        contains_several(context, it, false, false)
    }),
    Function::new("ENDSWITH", 2, 3, |context, it| {
        compared(context, it, |text, part| text.ends_with(part))
    }),
    Function::new("INDEX_OF", 2, 3, index_of),
    Function::new("LASTINDEXOF", 2, 3, last_index_of),
    Function::new("LEFT", 2, 2, |context, it| {
        part(context, it, |length, count| (0, count.min(length)))
    }),
    Function::new("LENGTH", 1, 1, |context, it| match it.first().and_then(Value::as_str) {
        Some(text) => {
            context.spend(text.len() / 16)?;
            Ok(Value::count(text.chars().count()))
        }
        None => Ok(Value::Undefined),
    }),
    Function::new("LOWER", 1, 1, |context, it| {
        changed(context, it, |text| text.chars().map(lower).collect())
    }),
    Function::new("LTRIM", 1, 2, |context, it| trimmed(context, it, true, false)),
    Function::new("RegexMatch", 2, 3, regex_match),
    Function::new("REPLACE", 3, 3, replace),
    Function::new("REPLICATE", 2, 2, replicate),
    Function::new("REVERSE", 1, 1, |context, it| {
        changed(context, it, |text| text.chars().rev().collect())
    }),
    Function::new("RIGHT", 2, 2, |context, it| {
        part(context, it, |length, count| (length - count.min(length), length))
    }),
    Function::new("RTRIM", 1, 2, |context, it| trimmed(context, it, false, true)),
    Function::new("STARTSWITH", 2, 3, |context, it| {
        compared(context, it, |text, part| text.starts_with(part))
    }),
    Function::new("StringEquals", 2, 3, |context, it| compared(context, it, |one, two| one == two)),
    Function::new("StringJoin", 2, 2, join),
    Function::new("StringSplit", 2, 2, split),
    Function::new("StringToArray", 1, 1, |context, it| {
        parsed(context, it, |value| matches!(value, Value::Array(_)))
    }),
    Function::new("StringToBoolean", 1, 1, |context, it| {
        parsed(context, it, |value| matches!(value, Value::Bool(_)))
    }),
    Function::new("StringToNull", 1, 1, |context, it| {
        parsed(context, it, |value| matches!(value, Value::Null))
    }),
    Function::new("StringToNumber", 1, 1, string_to_number),
    Function::new("StringToObject", 1, 1, |context, it| {
        parsed(context, it, |value| matches!(value, Value::Object(_)))
    }),
    Function::new("SUBSTRING", 3, 3, substring),
    Function::new("ToString", 1, 1, to_string),
    Function::new("TRIM", 1, 2, |context, it| trimmed(context, it, true, true)),
    Function::new("UPPER", 1, 1, |context, it| {
        changed(context, it, |text| text.chars().map(upper).collect())
    }),
];

/// Two strings, and perhaps whether case is to be ignored.
fn compared(
    context: &mut Context,
    arguments: &[Value],
    holds: fn(&str, &str) -> bool,
) -> Result<Value> {
    let [one, two, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let (Some(one), Some(two)) = (one.as_str(), two.as_str()) else {
        return Ok(Value::Undefined);
    };
    context.spend((one.len() + two.len()) / 16)?;
    match rest.first() {
        None | Some(Value::Bool(false)) => Ok(Value::Bool(holds(one, two))),
        Some(Value::Bool(true)) => Ok(Value::Bool(holds(&folded(one), &folded(two)))),
        Some(_) => Ok(Value::Undefined),
    }
}

/// Whether a string contains all of the others, or any, by the rules of AND and OR.
fn contains_several(
    context: &mut Context,
    arguments: &[Value],
    is_all: bool,
    is_case_ignored: bool,
) -> Result<Value> {
    let [text, parts @ ..] = arguments else { return Ok(Value::Undefined) };
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        let arguments = [text.clone(), part.clone(), Value::Bool(is_case_ignored)];
        found.push(compared(context, &arguments, |text, part| text.contains(part))?.as_bool());
    }
    Ok(truth(if is_all { all(found) } else { any(found) }))
}

fn changed(
    context: &mut Context,
    arguments: &[Value],
    change: fn(&str) -> String,
) -> Result<Value> {
    let Some(text) = arguments.first().and_then(Value::as_str) else {
        return Ok(Value::Undefined);
    };
    context.check_string(text.len())?;
    Ok(Value::string(change(text)))
}

fn lower(character: char) -> char {
    in_case(character, character.to_lowercase())
}

fn upper(character: char) -> char {
    in_case(character, character.to_uppercase())
}

/// The text as it is compared where case is ignored. Letters of which there are two in lower case
/// (σ and ς) have one in upper case.
fn folded(text: &str) -> String {
    text.chars().map(|it| lower(upper(it))).collect()
}

/// The same character in another case, by the rules of .NET for no culture in particular: one for
/// one, no matter what stands around it. What would become several characters (ß), a letter of
/// ASCII (ı, the sign for kelvin) or a letter of another alphabet (the sign for micro) stays.
fn in_case(character: char, mut other: impl Iterator<Item = char>) -> char {
    let is_sign = character == '\u{b5}';
    match (other.next(), other.next()) {
        (Some(only), None) if !is_sign && character.is_ascii() == only.is_ascii() => only,
        (Some(_) | None, _) => character,
    }
}

/// The characters from one place to another, by the length of the string and a count.
fn part(
    context: &mut Context,
    arguments: &[Value],
    place: fn(usize, usize) -> (usize, usize),
) -> Result<Value> {
    let [text, count] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(count)) = (text.as_str(), count.as_integer()) else {
        return Ok(Value::Undefined);
    };
    context.check_string(text.len())?;
    let count = usize::try_from(count).unwrap_or_default();
    let (start, end) = place(text.chars().count(), count);
    Ok(Value::string(text.chars().skip(start).take(end - start).collect::<String>()))
}

fn substring(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [text, start, length] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(start), Some(length)) =
        (text.as_str(), start.as_integer(), length.as_integer())
    else {
        return Ok(Value::Undefined);
    };
    context.check_string(text.len())?;
    // Nothing begins before the first character.
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        return Ok(Value::string(""));
    };
    Ok(Value::string(text.chars().skip(start).take(length).collect::<String>()))
}

fn index_of(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [text, wanted, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(wanted)) = (text.as_str(), wanted.as_str()) else {
        return Ok(Value::Undefined);
    };
    context.spend((text.len() + wanted.len()) / 8)?;
    let start = match rest.first() {
        None => 0,
        Some(start) => match start.as_integer().and_then(|it| usize::try_from(it).ok()) {
            Some(start) => start,
            None => return Ok(Value::Undefined),
        },
    };
    let from = text.char_indices().nth(start).map_or(text.len(), |(from, _)| from);
    let found = text[from..].find(wanted).map(|at| text[..from + at].chars().count());
    Ok(found.map_or_else(|| Value::number(-1.0), Value::count))
}

/// The place of the last occurrence that ends at the given place at the latest.
fn last_index_of(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [text, wanted, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(wanted)) = (text.as_str(), wanted.as_str()) else {
        return Ok(Value::Undefined);
    };
    context.spend((text.len() + wanted.len()) / 8)?;
    let end = match rest.first() {
        None => text.len(),
        Some(last) => match last.as_integer().and_then(|it| usize::try_from(it).ok()) {
            Some(last) => {
                text.char_indices().nth(last.saturating_add(1)).map_or(text.len(), |it| it.0)
            }
            None => return Ok(Value::Undefined),
        },
    };
    let found = text[..end].rfind(wanted).map(|at| text[..at].chars().count());
    Ok(found.map_or_else(|| Value::number(-1.0), Value::count))
}

fn trimmed(
    context: &mut Context,
    arguments: &[Value],
    is_left: bool,
    is_right: bool,
) -> Result<Value> {
    let Some(text) = arguments.first().and_then(Value::as_str) else {
        return Ok(Value::Undefined);
    };
    let characters: Option<BTreeSet<char>> = match arguments.get(1) {
        None => None,
        Some(Value::String(set)) => {
            context.spend(text.len() + set.len())?;
            Some(set.chars().collect())
        }
        Some(_) => return Ok(Value::Undefined),
    };
    context.check_string(text.len())?;
    let is_dropped = |it: char| match &characters {
        Some(set) => set.contains(&it),
        None => it.is_whitespace(),
    };
    let text = if is_left { text.trim_start_matches(is_dropped) } else { text };
    let text = if is_right { text.trim_end_matches(is_dropped) } else { text };
    Ok(Value::string(text))
}

fn replace(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [text, from, to] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(from), Some(to)) = (text.as_str(), from.as_str(), to.as_str()) else {
        return Ok(Value::Undefined);
    };
    if from.is_empty() {
        return Ok(Value::string(text));
    }
    context.spend(text.len())?;
    let grown = text.matches(from).count().saturating_mul(to.len());
    context.check_string(text.len().saturating_add(grown))?;
    Ok(Value::string(text.replace(from, to)))
}

fn replicate(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    /// The longest string that Cosmos DB makes.
    const CHARACTERS_MAX: usize = 10_000;
    let [text, count] = arguments else { return Ok(Value::Undefined) };
    // A fraction is cut off.
    let count = count.as_double().filter(|it| 0.0 <= *it).and_then(|it| whole(it.trunc()));
    let count = count.and_then(|it| usize::try_from(it).ok());
    let (Some(text), Some(count)) = (text.as_str(), count) else {
        return Ok(Value::Undefined);
    };
    if CHARACTERS_MAX < text.chars().count().saturating_mul(count) {
        return Ok(Value::Undefined);
    }
    context.check_string(text.len() * count)?;
    Ok(Value::string(text.repeat(count)))
}

fn join(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [Value::Array(parts), Value::String(between)] = arguments else {
        return Ok(Value::Undefined);
    };
    context.spend(parts.len())?;
    let mut length = between.len().saturating_mul(parts.len().saturating_sub(1));
    for part in parts.iter() {
        let Some(part) = part.as_str() else { return Ok(Value::Undefined) };
        length = length.saturating_add(part.len());
    }
    context.check_string(length)?;
    let mut joined = String::with_capacity(length);
    for (index, part) in parts.iter().filter_map(Value::as_str).enumerate() {
        if 0 < index {
            joined.push_str(between);
        }
        joined.push_str(part);
    }
    Ok(Value::string(joined))
}

fn split(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [Value::String(text), Value::String(between)] = arguments else {
        return Ok(Value::Undefined);
    };
    context.spend(text.len() + 1)?;
    if between.is_empty() {
        return Ok(Value::array(vec![Value::String(text.clone())]));
    }
    let count = text.matches(&**between).count() + 1;
    context.hold(array_memory(count) + string_memory(0) * count + text.len())?;
    let mut parts = Vec::with_capacity(count);
    parts.extend(text.split(&**between).map(Value::string));
    Ok(Value::array(parts))
}

fn to_string(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    Ok(match arguments.first() {
        None | Some(Value::Undefined) => Value::Undefined,
        Some(Value::String(text)) => Value::String(text.clone()),
        Some(other) => {
            let measure = context.measure(other, 8)?;
            context.check_string(measure.text)?;
            Value::string(json::to_plain_string(other))
        }
    })
}

fn parsed(
    context: &mut Context,
    arguments: &[Value],
    is_wanted: fn(&Value) -> bool,
) -> Result<Value> {
    let Some(text) = arguments.first().and_then(Value::as_str) else {
        return Ok(Value::Undefined);
    };
    context.spend(text.len())?;
    let room = measure::memory_of_json(text);
    context.hold(room)?;
    let value = json::read(&Bytes::copy_from_slice(text.as_bytes())).ok();
    let value = value.filter(is_wanted).unwrap_or_default();
    // Lists may have room for more than they have.
    let memory = context.measure(&value, MEASURE_STEP_BYTES)?.memory;
    context.hold(memory.saturating_sub(room))?;
    Ok(value)
}

fn string_to_number(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let value = parsed(context, arguments, |value| matches!(value, Value::Number(_)))?;
    let number = value.as_double().filter(|it| it.is_finite());
    Ok(number.map_or(Value::Undefined, |it| Value::Number(Number::from(it))))
}

/// The modifiers are those of Cosmos DB: m, s, i and x.
fn regex_match(context: &mut Context, arguments: &[Value]) -> Result<Value> {
    let [text, pattern, rest @ ..] = arguments else { return Ok(Value::Undefined) };
    let (Some(text), Some(pattern)) = (text.as_str(), pattern.as_str()) else {
        return Ok(Value::Undefined);
    };
    let modifiers = match rest.first() {
        None => "",
        Some(modifiers) => match modifiers.as_str() {
            Some(it) if it.chars().all(|it| "msix".contains(it)) => it,
            Some(_) | None => return Ok(Value::Undefined),
        },
    };
    Ok(truth(context.matches(text, pattern, modifiers)?))
}
