use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;

/// A JSON value, or the absence of one. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) enum Value {
    /// There is no such property; also the result of an operation on the wrong kinds of values.
    #[default]
    Undefined,
    Null,
    Bool(bool),
    Number(Number),
    String(Arc<str>),
    /// Never holds `Undefined`.
    Array(Arc<Vec<Value>>),
    Object(Arc<Object>),
}

/// A number that comes out as it went in.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    /// What is calculated and compared with, as in Cosmos DB. Infinite if no double is so large.
    double: f64,
    /// The spelling, if it is not what the double would be written as.
    text: Option<Arc<str>>,
}

/// The properties of an object in the order in which they were written; no name occurs twice, no
/// value is `Undefined`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    entries: Vec<(Arc<str>, Value)>,
    /// The places of the properties in the order of their names; empty if there are few, which are
    /// quicker gone through.
    by_name: Vec<usize>,
    /// The whole object as it is stored, so that it comes back byte for byte.
    raw: Option<Bytes>,
}

impl Value {
    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn array(items: Vec<Self>) -> Self {
        Self::Array(Arc::new(items))
    }

    pub(crate) fn object(object: Object) -> Self {
        Self::Object(Arc::new(object))
    }

    /// The number, or `Undefined` if JSON has no such number.
    pub(crate) fn number(double: f64) -> Self {
        if double.is_finite() { Self::Number(Number::from(double)) } else { Self::Undefined }
    }

    /// A count or a length.
    pub(crate) fn count(count: usize) -> Self {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Self::Number(Number::from(count))
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&Arc<Vec<Self>>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn as_object(&self) -> Option<&Arc<Object>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    pub(crate) fn as_double(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(number.double) } else { None }
    }

    /// The number if it is whole and a double can count so far, for places and lengths.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        self.as_double().and_then(whole)
    }

    /// The number if it is an integer of 64 bits, with all the digits it was written with.
    pub(crate) fn as_long(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_long() } else { None }
    }

    /// The property of this name; `Undefined` if this is no object or has none.
    pub(crate) fn property(&self, name: &str) -> Self {
        self.as_object().and_then(|object| object.get(name)).cloned().unwrap_or_default()
    }

    /// The element at this place; `Undefined` if this is no array or too short.
    pub(crate) fn element(&self, index: i64) -> Self {
        let Ok(index) = usize::try_from(index) else { return Self::Undefined };
        self.as_array().and_then(|items| items.get(index)).cloned().unwrap_or_default()
    }

    /// A value that nobody looks into any more, but writes: of what has parts the text alone, which
    /// takes up much less memory. `text` makes it where the value is not a document, which has it.
    pub(crate) fn compacted<E>(
        self,
        text: impl FnOnce(&Self) -> Result<String, E>,
    ) -> Result<Self, E> {
        let raw = match &self {
            Self::Undefined | Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => {
                return Ok(self);
            }
            Self::Array(_) => exactly(text(&self)?),
            Self::Object(object) => match &object.raw {
                Some(raw) => raw.clone(),
                None => exactly(text(&self)?),
            },
        };
        Ok(Self::object(Object::default().with_raw(raw)))
    }
}

/// The text with no room for more: a text that was put together may have as much again.
fn exactly(text: String) -> Bytes {
    text.into_boxed_str().into_boxed_bytes().into()
}

/// 2^53, up to which a double holds every integer.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// The double as a whole number, if it is one up to 2^53.
pub(crate) fn whole(double: f64) -> Option<i64> {
    long(double).filter(|_| double.abs() <= WHOLE_MAX)
}

/// The double as an integer of 64 bits, if it is one.
#[expect(clippy::as_conversions, reason = "there is no other way from a double to an integer")]
fn long(double: f64) -> Option<i64> {
    /// 2^63.
    const LONG_END: f64 = 9_223_372_036_854_775_808.0;
    let is_long = double.fract() == 0.0 && (-LONG_END..LONG_END).contains(&double);
    is_long.then_some(double as i64)
}

/// The nearest double.
#[expect(clippy::as_conversions, reason = "Cosmos DB rounds whole numbers to the same doubles")]
pub(crate) fn double(integer: i64) -> f64 {
    integer as f64
}

impl Number {
    /// Takes a number of JSON; none if the text is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Longer integers may have more digits than a double.
        const PLAIN_DIGITS_MAX: usize = 15;
        let double: f64 = text.parse().ok()?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_plain = digits.len() <= PLAIN_DIGITS_MAX
            && digits.bytes().all(|it| it.is_ascii_digit())
            && text != "-0";
        Some(Self { double, text: (!is_plain).then(|| text.into()) })
    }

    pub(crate) fn as_double(&self) -> f64 {
        self.double
    }

    /// The spelling, if it is not what the double would be written as.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn as_long(&self) -> Option<i64> {
        let exact = self.text.as_ref().and_then(|it| it.parse().ok());
        exact.or_else(|| long(self.double))
    }

    /// The number with the other sign; its spelling stays, since a double may not hold it.
    pub(crate) fn negated(&self) -> Self {
        let text = self.text.as_deref().map(|text| match text.strip_prefix('-') {
            Some(rest) => rest.into(),
            None => format!("-{text}").into(),
        });
        Self { double: -self.double, text }
    }

    /// Appends the number as JSON.
    pub(crate) fn write(&self, out: &mut String) {
        match &self.text {
            Some(text) => out.push_str(text),
            None => write_double(self.double, out),
        }
    }
}

impl Number {
    /// Appends the number in its shortest form; digits that a double does not hold are kept.
    pub(crate) fn write_plain(&self, out: &mut String) {
        let is_large = WHOLE_MAX <= self.double.abs();
        let is_integer = |text: &str| !text.contains(['.', 'e', 'E']);
        match &self.text {
            Some(text) if is_large && (is_integer(text) || self.double.is_infinite()) => {
                out.push_str(text);
            }
            Some(_) | None => write_double(self.double, out),
        }
    }
}

impl From<f64> for Number {
    fn from(double: f64) -> Self {
        Self { double, text: None }
    }
}

impl From<i64> for Number {
    fn from(integer: i64) -> Self {
        let double = double(integer);
        // 2^53 may stand for its neighbour.
        let is_exact = double.abs() < WHOLE_MAX;
        Self { double, text: (!is_exact).then(|| integer.to_string().into()) }
    }
}

/// Appends a finite double in its shortest form, with an exponent where JavaScript would.
pub(crate) fn write_double(double: f64, out: &mut impl Write) {
    const INFALLIBLE: &str = "what takes numbers takes any text";
    const PLAIN_MAX: f64 = 1e21;
    const PLAIN_MIN: f64 = 1e-6;
    let magnitude = double.abs();
    if double == 0.0 {
        out.write_char('0').expect(INFALLIBLE);
    } else if (PLAIN_MIN..PLAIN_MAX).contains(&magnitude) {
        write!(out, "{double}").expect(INFALLIBLE);
    } else {
        write!(out, "{double:e}").expect(INFALLIBLE);
    }
}

impl Object {
    /// Looking through so many names is quicker than searching an index.
    const FEW: usize = 24;

    /// Takes properties in order. Of a repeated name the last value counts, at the place of the
    /// first; `Undefined` sets nothing.
    pub(crate) fn collect(mut entries: Vec<(Arc<str>, Value)>) -> Self {
        entries.retain(|(_, value)| !value.is_undefined());
        if entries.len() <= Self::FEW {
            let mut kept: Vec<(Arc<str>, Value)> = Vec::with_capacity(entries.len());
            for (name, value) in entries {
                match kept.iter_mut().find(|(it, _)| *it == name) {
                    Some(earlier) => earlier.1 = value,
                    None => kept.push((name, value)),
                }
            }
            return Self { entries: kept, by_name: Vec::new(), raw: None };
        }
        let mut by_name = places_by_name(&entries);
        let is_repeated = |pair: &[usize]| entries[pair[0]].0 == entries[pair[1]].0;
        if by_name.windows(2).any(is_repeated) {
            entries = without_repeated(entries);
            by_name = places_by_name(&entries);
        }
        if entries.len() <= Self::FEW {
            by_name.clear();
        }
        Self { entries, by_name, raw: None }
    }

    /// Remembers how the object is spelled.
    pub(crate) fn with_raw(mut self, raw: Bytes) -> Self {
        self.raw = Some(raw);
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        if self.by_name.is_empty() {
            return self.entries.iter().find(|(it, _)| **it == *name).map(|(_, value)| value);
        }
        let place = self.by_name.binary_search_by(|place| (*self.entries[*place].0).cmp(name));
        place.ok().map(|it| &self.entries[self.by_name[it]].1)
    }

    /// The places of the properties in the order of their names.
    pub(crate) fn places(&self) -> Cow<'_, [usize]> {
        match self.by_name.is_empty() {
            true => places_by_name(&self.entries).into(),
            false => (&self.by_name[..]).into(),
        }
    }

    /// The property at one of its places.
    pub(crate) fn at(&self, place: usize) -> (&Arc<str>, &Value) {
        let (name, value) = &self.entries[place];
        (name, value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.entries.iter().map(|(name, value)| (name, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes it takes up without its text, its names and its values.
    pub(crate) fn memory(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<(Arc<str>, Value)>();
        let values = self.entries.len() * size_of::<Value>();
        size_of::<Self>() + entries - values + self.by_name.capacity() * size_of::<usize>()
    }

    pub(crate) fn raw(&self) -> Option<&Bytes> {
        self.raw.as_ref()
    }
}

fn places_by_name(entries: &[(Arc<str>, Value)]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..entries.len()).collect();
    places.sort_by(|one, two| entries[*one].0.cmp(&entries[*two].0));
    places
}

/// The last value of each name, at the place of the first.
fn without_repeated(entries: Vec<(Arc<str>, Value)>) -> Vec<(Arc<str>, Value)> {
    let mut kept: Vec<(Arc<str>, Value)> = Vec::with_capacity(entries.len());
    let mut places: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (name, value) in entries {
        match places.get(&name) {
            Some(place) => kept[*place].1 = value,
            None => {
                places.insert(name.clone(), kept.len());
                kept.push((name, value));
            }
        }
    }
    kept
}
