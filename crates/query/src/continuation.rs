//! Where a query goes on, as text that is bound to it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use millstream_core::{EffectiveKey, KeyRange, ScanContinuation};

use crate::ast::Select;
use crate::error::{Error, Result};
use crate::gather::Place;
use crate::value::{Number, Object, Value};
use crate::{Parameters, Scope, json};

/// The form that is written. A number is never used again for another.
const VERSION: i64 = 1;
/// Longest text that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// A place between two rows of a query.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    /// Of the query, see [`Fingerprints`].
    pub(crate) fingerprint: u128,
    /// What the first page was asked of; a later one may be asked of a part of it.
    pub(crate) scope: Scope,
    /// Rows that have passed, those left out by OFFSET among them.
    pub(crate) passed: u64,
    /// Of the resume filter that was there, if there was one.
    pub(crate) resume: Option<u128>,
    /// What RAND begins with, if it stands in the query.
    pub(crate) seed: Option<u64>,
    pub(crate) state: State,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Rows go on with the next document.
    Documents(Position),
    /// Rows go on behind so many of those that come after the row with these keys; groups do after
    /// the group.
    Behind(Vec<Value>, Place, u64),
    /// Rows go on behind as many as have passed.
    Counted,
    /// Groups go on behind so many of those that come after these keys, or of all. Groups that have
    /// no row count as well.
    Groups(Option<Vec<Value>>, u64),
    /// Aggregates go on with the next document from these states.
    Partial(Position, Vec<Value>),
}

/// A place among the documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Which of the reads.
    pub(crate) access: usize,
    /// The continuation of the page of the scan.
    pub(crate) scan: Option<ScanContinuation>,
    /// The last document of that page that is done: its partition key and id.
    pub(crate) done: Option<(String, String)>,
    /// The document after it, if some of its rows have passed, and how many.
    pub(crate) begun: Option<(String, String, u64)>,
}

/// What tokens are bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprints {
    /// Of the text, the parameters and the container.
    pub(crate) whole: u128,
    /// Of the same but for the filter, if rows are sorted. The place behind a row is one whatever
    /// the filter, and SDKs change it: they add what they know of the rows they have had.
    pub(crate) sorted: Option<u128>,
}

impl Fingerprints {
    pub(crate) fn of(
        text: &str,
        select: &Select,
        parameters: &Parameters,
        container: Option<&str>,
    ) -> Self {
        let is_sorted = !select.order_by.is_empty() && !select.is_grouped();
        let sorted = is_sorted.then(|| {
            let unfiltered = Select { filter: None, ..select.clone() };
            fingerprint(&unfiltered.to_string(), parameters, container)
        });
        Self { whole: fingerprint(text, parameters, container), sorted }
    }

    /// What a token with this state is bound to.
    pub(crate) fn for_state(&self, state: &State) -> u128 {
        match state {
            State::Behind(_, _, 0) => self.sorted.unwrap_or(self.whole),
            State::Behind(..)
            | State::Documents(_)
            | State::Counted
            | State::Groups(..)
            | State::Partial(..) => self.whole,
        }
    }
}

/// A number for the text and the parameters of a query, and the container that it is asked of.
pub(crate) fn fingerprint(text: &str, parameters: &Parameters, container: Option<&str>) -> u128 {
    let mut all = match container {
        Some(container) => format!("{container}\n{text}\n"),
        None => format!("{text}\n"),
    };
    parameters.write(&mut all);
    xxhash_rust::xxh3::xxh3_128(all.as_bytes())
}

impl Token {
    /// The text that is given out.
    pub(crate) fn write(&self) -> String {
        let text = |text: &str| Value::string(text);
        let mut entries: Vec<(Arc<str>, Value)> = vec![
            ("v".into(), Value::Number(Number::from(VERSION))),
            ("q".into(), text(&format!("{:x}", self.fingerprint))),
            ("n".into(), text(&self.passed.to_string())),
        ];
        if let Some(resume) = self.resume {
            entries.push(("f".into(), text(&format!("{resume:x}"))));
        }
        if let Some(seed) = self.seed {
            entries.push(("x".into(), text(&format!("{seed:x}"))));
        }
        if let Some(key) = &self.scope.partition {
            entries.push(("k".into(), text(&key.to_string())));
        }
        if self.scope.keys != KeyRange::all() {
            let bounds = [self.scope.keys.min(), self.scope.keys.max()];
            let bounds = bounds.map(|it| Value::string(it.to_string()));
            entries.push(("r".into(), Value::array(bounds.to_vec())));
        }
        match &self.state {
            State::Documents(position) => entries.extend(position.entries()),
            State::Partial(position, states) => {
                entries.extend(position.entries());
                entries.push(("a".into(), Value::array(states.clone())));
            }
            State::Counted => (),
            State::Groups(after, count) => {
                entries.extend(after.as_deref().map(|it| ("o".into(), written_keys(it))));
                entries.push(("g".into(), text(&count.to_string())));
            }
            State::Behind(keys, place, count) => {
                if 0 < *count {
                    entries.push(("c".into(), text(&count.to_string())));
                }
                entries.push(("o".into(), written_keys(keys)));
                let (partition, id) = &*place.document;
                let place = [&place.number.to_string(), partition, id, &place.row.to_string()];
                let place = place.map(|it| Value::string(&**it)).to_vec();
                entries.push(("p".into(), Value::array(place)));
            }
        }
        URL_SAFE_NO_PAD.encode(json::to_string(&Value::object(Object::collect(entries))))
    }

    /// How many rows have passed, and where the others go on, for who sends this resume filter.
    ///
    /// Who resumes a query sends a filter beside a continuation that was given out without it, or
    /// beside another one, and has had rows up to the filter: no fewer than the continuation says.
    /// What had been counted then is left to the filter.
    pub(crate) fn going_on(self, resume: Option<u128>) -> Result<(u64, Option<State>)> {
        if self.resume == resume {
            return Ok((self.passed, Some(self.state)));
        }
        let counted = match &self.state {
            State::Behind(_, _, count) => *count,
            State::Counted => self.passed,
            State::Documents(_) | State::Groups(..) | State::Partial(..) => 0,
        };
        if 0 < counted && resume.is_none() {
            let reason = "the continuation was given out beside a resume filter, which is missing";
            return Err(Error::continuation(reason));
        }
        let state = match self.state {
            State::Counted => None,
            State::Behind(keys, place, _) => Some(State::Behind(keys, place, 0)),
            other @ (State::Documents(_) | State::Groups(..) | State::Partial(..)) => Some(other),
        };
        Ok((self.passed.saturating_sub(counted), state))
    }

    /// Reads a text that was given out for the query with these fingerprints.
    pub(crate) fn read(text: &str, fingerprints: &Fingerprints) -> Result<Self> {
        if TEXT_BYTES_MAX < text.len() {
            return Err(Error::continuation("the continuation is longer than any of ours"));
        }
        let foreign = || Error::continuation("the continuation was not given out by a query");
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| foreign())?;
        let value = json::read_made(&Bytes::from(bytes)).map_err(|_| foreign())?;
        match value.property("v").as_integer() {
            Some(VERSION) => (),
            Some(_) => {
                let reason = "the continuation has a version that is not known here";
                return Err(Error::continuation(reason));
            }
            None => return Err(foreign()),
        }
        let token = parse(&value).ok_or_else(foreign)?;
        let known = [fingerprints.whole, fingerprints.for_state(&token.state)];
        if !known.contains(&token.fingerprint) {
            return Err(Error::continuation(
                "the continuation belongs to another query, other parameters or another container",
            ));
        }
        Ok(token)
    }
}

impl Position {
    fn entries(&self) -> Vec<(Arc<str>, Value)> {
        let mut entries = vec![("i".into(), Value::count(self.access))];
        if let Some(scan) = &self.scan {
            entries.push(("s".into(), Value::string(scan.as_str())));
        }
        if let Some((partition, id)) = &self.done {
            let done = [partition, id].map(|it| Value::string(&**it)).to_vec();
            entries.push(("d".into(), Value::array(done)));
        }
        if let Some((partition, id, rows)) = &self.begun {
            let begun = [partition, id, &rows.to_string()].map(|it| Value::string(&**it)).to_vec();
            entries.push(("b".into(), Value::array(begun)));
        }
        entries
    }

    fn parse(value: &Value) -> Option<Self> {
        let (done, begun) = (value.property("d"), value.property("b"));
        let done = match done.is_undefined() {
            true => None,
            false => Some((string(&done.element(0))?, string(&done.element(1))?)),
        };
        let begun = match begun.is_undefined() {
            true => None,
            false => Some((
                string(&begun.element(0))?,
                string(&begun.element(1))?,
                string(&begun.element(2))?.parse().ok()?,
            )),
        };
        Some(Self {
            access: usize::try_from(value.property("i").as_integer()?).ok()?,
            scan: value.property("s").as_str().map(ScanContinuation::new),
            done,
            begun,
        })
    }
}

fn parse(value: &Value) -> Option<Token> {
    let fingerprint = u128::from_str_radix(value.property("q").as_str()?, 16).ok()?;
    let (key, bounds) = (value.property("k"), value.property("r"));
    let partition = match key.is_undefined() {
        true => None,
        false => Some(key.as_str()?.parse().ok()?),
    };
    let keys = match bounds.is_undefined() {
        true => KeyRange::all(),
        false => {
            let bound = |place| bounds.element(place).as_str()?.parse::<EffectiveKey>().ok();
            KeyRange::new(bound(0)?, bound(1)?).ok()?
        }
    };
    let passed = value.property("n").as_str()?.parse().ok()?;
    let number = |name| match value.property(name).as_str() {
        Some(text) => u128::from_str_radix(text, 16).ok().map(Some),
        None => Some(None),
    };
    let resume = number("f")?;
    let seed = match number("x")? {
        Some(seed) => Some(seed.try_into().ok()?),
        None => None,
    };
    let state = state(value)?;
    Some(Token { fingerprint, scope: Scope { partition, keys }, passed, resume, seed, state })
}

fn state(value: &Value) -> Option<State> {
    if !value.property("i").is_undefined() {
        let position = Position::parse(value)?;
        return Some(match value.property("a").as_array() {
            Some(states) => State::Partial(position, states.to_vec()),
            None => State::Documents(position),
        });
    }
    let (place, count) = (value.property("p"), value.property("g"));
    let key = |it: &Value| it.as_array().map(|_| it.element(0));
    let keys: Option<Vec<Value>> = match value.property("o").as_array() {
        Some(keys) => Some(keys.iter().map(key).collect::<Option<_>>()?),
        None => None,
    };
    if let Some(count) = count.as_str() {
        return Some(State::Groups(keys, count.parse().ok()?));
    }
    let Some(keys) = keys else { return Some(State::Counted) };
    let document = (string(&place.element(1))?, string(&place.element(2))?);
    let place = Place {
        number: string(&place.element(0))?.parse().ok()?,
        document: Arc::new(document),
        row: string(&place.element(3))?.parse().ok()?,
    };
    let count = match value.property("c").as_str() {
        Some(count) => count.parse().ok()?,
        None => 0,
    };
    Some(State::Behind(keys, place, count))
}

/// An array that is empty stands for undefined, which JSON has no word for.
pub(crate) fn written_keys(keys: &[Value]) -> Value {
    let key = |it: &Value| match it.is_undefined() {
        true => Value::array(Vec::new()),
        false => Value::array(vec![it.clone()]),
    };
    Value::array(keys.iter().map(key).collect())
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned)
}
