//! The functions of the language, by name.
//!
//! A function gets values and returns one; arguments of the wrong kind make it undefined.

mod arrays;
mod dates;
mod math;
mod pattern;
mod strings;
mod types;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use millstream_core::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Limits;
use crate::error::{Error, ErrorKind, Result};
use crate::functions::pattern::Pattern;
use crate::measure::{self, MEASURE_STEP_MEMORY, Measure};
use crate::value::Value;

/// Longest string a function makes.
const STRING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most compiled patterns that are kept.
const PATTERNS_MAX: usize = 64;

/// A function of the language.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    /// How it is written in documentation; calls may use any case.
    pub(crate) name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    pub(crate) run: Run,
}

type Run = fn(&mut Context, &[Value]) -> Result<Value>;

/// What functions know besides their arguments.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) now: Timestamp,
    /// Of the page, or of the conditions of a batch.
    steps_left: u64,
    is_condition: bool,
    /// Where `steps_left` may go down to before the next document.
    steps_floor: u64,
    document_steps_max: u64,
    row_bytes_max: usize,
    /// Bytes of memory that rows may take up while they are kept, and what is made of an item.
    pub(crate) held_bytes_max: usize,
    /// Bytes that there are of the document at hand: the rows of queries within it that JOIN goes
    /// through, and what the row at hand is made of.
    pub(crate) held: usize,
    /// Patterns by their modifiers and text.
    patterns: BTreeMap<String, Arc<Pattern>>,
    /// Pages of a query have the same, so that RAND gives an item the same numbers on each.
    seed: Option<u64>,
    /// Of the item, made from the seed. Its hashes of 1, 2, 3 and so on are the numbers of RAND.
    chance: u64,
    randoms: u64,
}

/// The function of this name, in any case.
pub(crate) fn named(name: &str) -> Option<&'static Function> {
    let lists = [
        strings::FUNCTIONS,
        arrays::FUNCTIONS,
        math::FUNCTIONS,
        types::FUNCTIONS,
        dates::FUNCTIONS,
    ];
    lists.into_iter().flatten().find(|it| it.name.eq_ignore_ascii_case(name))
}

/// What nobody can foresee.
pub(crate) fn new_seed() -> u64 {
    RandomState::new().hash_one(())
}

/// All functions.
#[cfg(test)]
pub(crate) fn functions() -> impl Iterator<Item = &'static Function> {
    [strings::FUNCTIONS, arrays::FUNCTIONS, math::FUNCTIONS, types::FUNCTIONS, dates::FUNCTIONS]
        .into_iter()
        .flatten()
}

/// AND: decided by what is false.
fn all(values: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    any(values.into_iter().map(|it| it.map(|it| !it))).map(|it| !it)
}

/// OR: decided by what is true.
fn any(values: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(false);
    for value in values {
        match value {
            Some(true) => return Some(true),
            Some(false) => (),
            None => result = None,
        }
    }
    result
}

impl Function {
    const fn new(name: &'static str, arguments_min: usize, arguments_max: usize, run: Run) -> Self {
        Self { name, arguments_min, arguments_max, run }
    }

    /// Whether it returns something else whenever it is called.
    pub(crate) fn is_random(&self) -> bool {
        self.name == math::RANDOM
    }

    pub(crate) fn takes(&self, arguments: usize) -> bool {
        (self.arguments_min..=self.arguments_max).contains(&arguments)
    }

    /// How many arguments it takes, in words.
    pub(crate) fn arity(&self) -> String {
        let (min, max) = (self.arguments_min, self.arguments_max);
        match (min, max) {
            (0, 0) => "no arguments".to_owned(),
            (1, 1) => "1 argument".to_owned(),
            (_, usize::MAX) => format!("at least {min} arguments"),
            _ if min == max => format!("{min} arguments"),
            _ => format!("{min} to {max} arguments"),
        }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Context {
    pub(crate) fn new(now: Timestamp, limits: &Limits) -> Self {
        let Limits { steps_max, document_steps_max, row_bytes_max, held_bytes_max, .. } = *limits;
        let mut context = Self {
            now,
            steps_left: steps_max,
            is_condition: false,
            steps_floor: 0,
            document_steps_max,
            row_bytes_max,
            held_bytes_max,
            held: 0,
            patterns: BTreeMap::new(),
            seed: None,
            chance: new_seed(),
            randoms: 0,
        };
        context.begin();
        context
    }

    /// Takes the steps from those that the conditions of a batch share.
    pub(crate) fn share_steps(&mut self, steps_left: u64) {
        (self.steps_left, self.is_condition) = (steps_left, true);
        self.begin();
    }

    /// Begins with what is done once after all documents.
    pub(crate) fn begin(&mut self) {
        self.steps_floor = self.steps_left.saturating_sub(self.document_steps_max);
    }

    /// Begins with the next document.
    pub(crate) fn begin_with(&mut self, partition_key: &str, id: &str) {
        self.begin();
        if let Some(seed) = self.seed {
            let of_partition = xxh3_64_with_seed(partition_key.as_bytes(), seed);
            self.chance = xxh3_64_with_seed(id.as_bytes(), of_partition);
            self.randoms = 0;
        }
    }

    /// Makes RAND give what it gave with the same seed.
    pub(crate) fn seed(&mut self, seed: u64) {
        (self.seed, self.chance) = (Some(seed), seed);
    }

    /// Counts work; what would go on for too long is refused.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<()> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        match self.steps_left.checked_sub(steps) {
            Some(left) if self.steps_floor <= left => {
                self.steps_left = left;
                Ok(())
            }
            _ if self.is_condition => Err(Error::too_large(
                "it takes more steps than the conditions of a batch may take together; join less, \
                 or patch fewer items at a time",
            )),
            _ if 0 < self.steps_floor => Err(Error::too_large(format!(
                "it takes more than {} steps for a single item, or to bring all rows together; \
                 join less, or filter in a query within JOIN",
                self.document_steps_max
            ))),
            Some(_) | None => Err(Error::too_large(
                "a page of it takes more steps than are allowed; filter more, or join less",
            )),
        }
    }

    pub(crate) fn steps_left(&self) -> u64 {
        self.steps_left
    }

    /// Steps that may be spent before the next document.
    pub(crate) fn document_steps_left(&self) -> usize {
        usize::try_from(self.steps_left - self.steps_floor).unwrap_or(usize::MAX)
    }

    /// Measures a value that is to be gone through, and counts that as a step for so many bytes of
    /// its text, or for what it takes of memory if it has many parts that are written with little.
    /// A value of which there is more than any row may have is refused.
    pub(crate) fn measure(&mut self, value: &Value, step_bytes: usize) -> Result<Measure> {
        let Some(measure) = Measure::of(value, self.row_bytes_max) else {
            return Err(Error::too_large(format!(
                "it makes a value that has more than {} bytes as JSON; select less, or repeat it \
                 less often",
                self.row_bytes_max
            )));
        };
        self.spend((measure.text / step_bytes).max(measure.memory / MEASURE_STEP_MEMORY))?;
        Ok(measure)
    }

    /// Counts the memory of what is about to be made, until whoever evaluates takes that back. More
    /// than may be held is refused.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<()> {
        self.held = self.held.saturating_add(bytes);
        self.check_held(self.held)
    }

    /// Takes back what was held for something that is gone.
    fn release(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Refuses to hold more than was allowed.
    pub(crate) fn check_held(&self, bytes: usize) -> Result<()> {
        if self.held_bytes_max < bytes {
            return Err(Error::too_large(format!(
                "what it keeps of rows, and makes of an item, takes up more than {} bytes; filter \
                 more, order and group less, or make shorter arrays and strings",
                self.held_bytes_max
            )));
        }
        Ok(())
    }

    /// At least 0, less than 1, and different at every call.
    fn random(&mut self) -> f64 {
        self.randoms += 1;
        let bits = xxh3_64_with_seed(&self.randoms.to_le_bytes(), self.chance);
        // The 52 bits of the fraction of a number between 1 and 2.
        f64::from_bits(1_f64.to_bits() | bits >> 12) - 1.0
    }

    /// The strings joined; undefined if one is no string.
    pub(crate) fn concatenate(&mut self, values: &[Value]) -> Result<Value> {
        let mut length = 0;
        for value in values {
            let Some(text) = value.as_str() else { return Ok(Value::Undefined) };
            length += text.len();
        }
        self.check_string(length)?;
        let mut joined = String::with_capacity(length);
        values.iter().filter_map(Value::as_str).for_each(|text| joined.push_str(text));
        Ok(Value::string(joined))
    }

    fn check_string(&mut self, bytes: usize) -> Result<()> {
        if STRING_BYTES_MAX < bytes {
            let reason = format!("it makes a string of more than {STRING_BYTES_MAX} bytes");
            return Err(Error::too_large(reason));
        }
        self.spend(bytes / 16)?;
        self.hold(measure::string_memory(bytes))
    }

    /// Whether the text matches a regular expression; none if it is not one.
    fn matches(&mut self, text: &str, pattern: &str, modifiers: &str) -> Result<Option<bool>> {
        // The pattern is copied, and compared with others that are kept.
        self.spend((pattern.len() + modifiers.len()) / 8 + 1)?;
        let whole = match modifiers {
            "" => pattern.to_owned(),
            modifiers => format!("(?{modifiers}){pattern}"),
        };
        match &*self.pattern(whole)? {
            Pattern::Compiled { regex, steps } => {
                self.spend((text.len() + 1).saturating_mul(*steps))?;
                Ok(Some(regex.is_match(text)))
            }
            Pattern::Invalid => Ok(None),
            Pattern::Unsupported(reason) => {
                let reason =
                    format!("the pattern {pattern:?} of RegexMatch cannot be used: {reason}");
                Err(Error::new(ErrorKind::Unsupported, "run the query", reason))
            }
        }
    }

    fn pattern(&mut self, text: String) -> Result<Arc<Pattern>> {
        if let Some(known) = self.patterns.get(&text) {
            return Ok(Arc::clone(known));
        }
        self.spend(text.len() * 16)?;
        let pattern = Arc::new(Pattern::compile(&text));
        self.spend(pattern.compile_steps())?;
        if PATTERNS_MAX <= self.patterns.len() {
            self.patterns.clear();
        }
        self.patterns.insert(text, Arc::clone(&pattern));
        Ok(pattern)
    }
}
