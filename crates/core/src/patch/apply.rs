//! One operation is one walk along its path and one splice of the text.

use std::error::Error as StdError;
use std::ops::Range;

use crate::json::cursor::Fault;
use crate::json::edit::{Edit, quote, splice};
use crate::json::excerpt;
use crate::json::scanner::Scanner;
use crate::patch::PatchOperation;
use crate::patch::path::PatchPath;

type Refusal = Box<dyn StdError + Send + Sync>;

/// The object or array that has, or would have, what a path names.
#[derive(Debug)]
struct Holder {
    kind: HolderKind,
    /// Right after the opening bracket.
    inside: usize,
    /// Where the last child ends.
    last_end: Option<usize>,
    /// Whether there are children that the path does not name.
    keeps_some: bool,
    /// What the path names; several where an object repeats a key.
    matches: Vec<Child>,
}

#[derive(Debug, PartialEq, Eq)]
enum HolderKind {
    Object,
    Array { length: usize },
}

#[derive(Clone, Debug)]
struct Child {
    /// With its key, if it has one.
    whole: Range<usize>,
    value: Range<usize>,
    /// Where the child before it ends, if any child before it is not named by the path.
    cut_from: Option<usize>,
    /// Where the next child starts.
    next: Option<usize>,
}

/// How far the walk came; a level counts the names of the path that were passed.
enum Found {
    Holder(Holder),
    Missing { level: usize },
    Scalar { level: usize },
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i64),
    Double(f64),
}

/// The text after one operation.
pub(super) fn apply(text: &str, operation: &PatchOperation) -> Result<String, Refusal> {
    let holder = Holder::find(text, operation.from().unwrap_or(operation.path()))?;
    match operation {
        PatchOperation::Add { path, value } => add(text, &holder, path, value.as_str()),
        PatchOperation::Set { path, value } => match holder.matches.last() {
            Some(child) => Ok(replaced(text, child, value.as_str().to_owned())),
            None => add(text, &holder, path, value.as_str()),
        },
        PatchOperation::Replace { path, value } => {
            Ok(replaced(text, holder.existing(path)?, value.as_str().to_owned()))
        }
        PatchOperation::Remove { path } => {
            holder.existing(path)?;
            Ok(removed(text, &holder))
        }
        PatchOperation::Increment { path, by } => increment(text, &holder, path, by.as_str()),
        PatchOperation::Move { from, path } => {
            let value = &text[holder.existing(from)?.value.clone()];
            if from.names() == path.names() {
                return Ok(text.to_owned());
            }
            let rest = removed(text, &holder);
            add(&rest, &Holder::find(&rest, path)?, path, value)
        }
    }
}

/// Whether an increment can use this value.
pub(super) fn check_number(raw: &str) -> Result<(), String> {
    Number::parse(raw).map(|_| ())
}

fn add(text: &str, holder: &Holder, path: &PatchPath, value: &str) -> Result<String, Refusal> {
    let name = last_name(path);
    let edit: Edit = match (&holder.kind, holder.matches.last()) {
        (HolderKind::Object, Some(child)) => return Ok(replaced(text, child, value.to_owned())),
        (HolderKind::Object, None) => holder.appended(&format!("{}:{value}", quote(name))),
        (HolderKind::Array { .. }, Some(child)) => {
            (child.whole.start..child.whole.start, format!("{value},"))
        }
        (HolderKind::Array { length }, None) => {
            if name != "-" && array_index(name) != Some(*length) {
                return Err(no_place(name, *length).into());
            }
            holder.appended(value)
        }
    };
    Ok(splice(text, &[edit]))
}

fn increment(text: &str, holder: &Holder, path: &PatchPath, by: &str) -> Result<String, Refusal> {
    if holder.kind == HolderKind::Object && holder.matches.is_empty() {
        return add(text, holder, path, by);
    }
    let child = holder.existing(path)?;
    let sum = Number::parse(&text[child.value.clone()])?.plus(Number::parse(by)?)?;
    Ok(replaced(text, child, sum))
}

/// Every repetition of a key goes; otherwise an earlier one would come to count.
fn removed(text: &str, holder: &Holder) -> String {
    let edits: Vec<Edit> =
        holder.matches.iter().map(|child| (child.with_comma(), String::new())).collect();
    splice(text, &edits)
}

fn replaced(text: &str, child: &Child, value: String) -> String {
    splice(text, &[(child.value.clone(), value)])
}

impl Holder {
    fn find(text: &str, path: &PatchPath) -> Result<Self, Refusal> {
        let mut found = Found::Missing { level: 0 };
        let mut scanner = Scanner::new(text);
        scanner.space();
        walk(&mut scanner, path, 0, &mut found)?;
        scanner.end()?;
        match found {
            Found::Holder(holder) => Ok(holder),
            Found::Missing { level } => {
                Err(format!("{:?} does not exist", path.beginning(level)).into())
            }
            Found::Scalar { level } => {
                Err(format!("{:?} is neither object nor array", path.beginning(level)).into())
            }
        }
    }

    /// The child that counts.
    fn existing(&self, path: &PatchPath) -> Result<&Child, Refusal> {
        match (&self.kind, self.matches.last()) {
            (_, Some(child)) => Ok(child),
            (HolderKind::Object, None) => Err(format!("{:?} does not exist", path.as_str()).into()),
            (HolderKind::Array { length }, None) => Err(no_place(last_name(path), *length).into()),
        }
    }

    fn appended(&self, child: &str) -> Edit {
        match self.last_end {
            Some(end) => (end..end, format!(",{child}")),
            None => (self.inside..self.inside, child.to_owned()),
        }
    }

    /// Takes note of the next child.
    fn meet(&mut self, whole: Range<usize>, value: Range<usize>, named: bool) {
        if let Some(child) = self.matches.last_mut() {
            child.next.get_or_insert(whole.start);
        }
        let previous_end = self.last_end.replace(whole.end);
        if named {
            let cut_from = previous_end.filter(|_| self.keeps_some);
            self.matches.push(Child { whole, value, cut_from, next: None });
        } else {
            self.keeps_some = true;
        }
    }
}

impl Child {
    /// What must go so that the rest is still well formed, even if all children that match go.
    fn with_comma(&self) -> Range<usize> {
        match self.cut_from {
            Some(previous_end) => previous_end..self.whole.end,
            None => self.whole.start..self.next.unwrap_or(self.whole.end),
        }
    }
}

impl Number {
    fn parse(raw: &str) -> Result<Self, String> {
        if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err("an increment needs a number".to_owned());
        }
        if let Ok(integer) = raw.parse() {
            return Ok(Self::Integer(integer));
        }
        match raw.parse() {
            Ok(double) if f64::is_finite(double) => Ok(Self::Double(double)),
            _ => Err("the number is too large for a double".to_owned()),
        }
    }

    fn plus(self, other: Self) -> Result<String, String> {
        if let (Self::Integer(left), Self::Integer(right)) = (self, other)
            && let Some(sum) = left.checked_add(right)
        {
            return Ok(sum.to_string());
        }
        let sum = self.to_double() + other.to_double();
        if !sum.is_finite() {
            return Err("the sum is too large for a double".to_owned());
        }
        // The shortest spelling that reads back as the same double; `1.0` and `1e300`, not `1` and
        // 300 zeros.
        Ok(format!("{sum:?}"))
    }

    #[expect(clippy::as_conversions, reason = "rounding to the nearest double is what is meant")]
    fn to_double(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Double(double) => double,
        }
    }
}

/// Reads the value the scanner stands on, which the first `level` names of `path` lead to.
///
/// Goes through the text once, whatever the length of the path. Where a key is repeated the last
/// one counts, so `found` may be overwritten. The recursion ends where the scanner refuses the
/// depth.
fn walk(
    scanner: &mut Scanner<'_>,
    path: &PatchPath,
    level: usize,
    found: &mut Found,
) -> Result<(), Fault> {
    let name = path.names()[level].as_str();
    let is_last = level + 1 == path.names().len();
    let index = array_index(name);
    match scanner.peek() {
        b'{' | b'[' if is_last => {
            let holder = hold(scanner, name, index)?;
            *found = Found::Holder(holder);
            Ok(())
        }
        b'{' => {
            *found = Found::Missing { level: level + 1 };
            scanner.object(|scanner, key, _| match key.says(name) {
                true => walk(scanner, path, level + 1, found),
                false => scanner.value(),
            })
        }
        b'[' => {
            *found = Found::Missing { level: level + 1 };
            scanner.array(|scanner, at| match index == Some(at) {
                true => walk(scanner, path, level + 1, found),
                false => scanner.value(),
            })
        }
        _ => {
            *found = Found::Scalar { level };
            scanner.value()
        }
    }
}

fn hold(scanner: &mut Scanner<'_>, name: &str, index: Option<usize>) -> Result<Holder, Fault> {
    let mut holder = Holder {
        kind: HolderKind::Object,
        inside: scanner.position() + 1,
        last_end: None,
        keeps_some: false,
        matches: Vec::new(),
    };
    if scanner.peek() == b'{' {
        scanner.object(|scanner, key, start| {
            let value_start = scanner.position();
            scanner.value()?;
            let end = scanner.position();
            holder.meet(start..end, value_start..end, key.says(name));
            Ok(())
        })?;
        return Ok(holder);
    }
    let mut length = 0;
    scanner.array(|scanner, at| {
        let start = scanner.position();
        scanner.value()?;
        let end = scanner.position();
        holder.meet(start..end, start..end, index == Some(at));
        length = at + 1;
        Ok(())
    })?;
    holder.kind = HolderKind::Array { length };
    Ok(holder)
}

fn last_name(path: &PatchPath) -> &str {
    path.names().last().expect("a path has at least one name")
}

/// Digits without a leading zero, as RFC 6901 has it.
fn array_index(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = name.starts_with('0') && name != "0";
    if is_number && !has_leading_zero { name.parse().ok() } else { None }
}

fn no_place(name: &str, length: usize) -> String {
    format!("an array of length {length} has no place {:?}", excerpt(name))
}
