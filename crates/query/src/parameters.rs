use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::ast::{Count, ROWS_MAX, TOO_MANY_ROWS};
use crate::continuation::written_keys;
use crate::error::{Error, Position, Result};
use crate::value::Value;
use crate::{ComputedProperties, Query, json};

/// Most parameters of a query.
const PARAMETERS_MAX: usize = 10_000;

/// The values of `@names` in a query.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: BTreeMap<Arc<str>, Value>,
}

/// Where an ORDER BY query goes on, as SDKs say it beside the query (`resumeFilter`).
#[derive(Clone, Debug)]
pub struct ResumeFilter {
    /// The values of ORDER BY of the last row seen.
    pub(crate) values: Vec<Value>,
    /// The resource id of its item.
    pub(crate) rid: Option<String>,
    /// Whether rows that are equal to it are left out.
    pub(crate) is_exclusive: bool,
}

/// The body of a query request: `{"query": "…", "parameters": [{"name": "@a", "value": 1}]}`.
///
/// ```
/// use millstream_query::Specification;
///
/// let body = br#"{"query": "SELECT * FROM c WHERE c.id = @id",
///                 "parameters": [{"name": "@id", "value": "17"}]}"#;
/// let specification = Specification::from_json(body)?;
/// assert_eq!(specification.query.text(), "SELECT * FROM c WHERE c.id = @id");
/// # Ok::<(), millstream_query::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Specification {
    /// The query.
    pub query: Query,
    /// Its parameters; empty if there are none.
    pub parameters: Parameters,
    /// Where it goes on.
    pub resume: Option<ResumeFilter>,
}

impl Specification {
    /// Reads the body of a query request or of a query plan request.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not of that form; otherwise as for [`Query::parse`].
    pub fn from_json(body: &[u8]) -> Result<Self> {
        Self::from_json_with(body, &ComputedProperties::default())
    }

    /// As [`Specification::from_json`], over a container that has computed properties.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not of that form; otherwise as for [`Query::parse_with`].
    pub fn from_json_with(body: &[u8], computed: &ComputedProperties) -> Result<Self> {
        let value = read(body)?;
        let text = value.property("query");
        let Some(text) = text.as_str() else {
            return Err(refused("it has no string \"query\""));
        };
        let resume = value.property("resumeFilter");
        let resume = match resume.as_object() {
            Some(_) => Some(ResumeFilter::from_value(&resume)?),
            None => None,
        };
        Ok(Self {
            query: Query::parse_with(text, computed)?,
            parameters: Parameters::from_value(&value.property("parameters"))?,
            resume,
        })
    }
}

impl Parameters {
    /// Reads `[{"name": "@city", "value": "Bern"}]`.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not of that form.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        Self::from_value(&read(json)?)
    }

    fn from_value(value: &Value) -> Result<Self> {
        let list = match value {
            Value::Undefined | Value::Null => return Ok(Self::default()),
            Value::Array(list) => list,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                return Err(refused("its \"parameters\" are not an array"));
            }
        };
        if PARAMETERS_MAX < list.len() {
            return Err(refused(&format!("it has more than {PARAMETERS_MAX} parameters")));
        }
        let mut values = BTreeMap::new();
        for entry in list.iter() {
            let name = entry.property("name");
            let Value::String(name) = name else {
                return Err(refused("a parameter has no string \"name\""));
            };
            let reason = format!("parameter {name:?} is given twice");
            if values.insert(name, entry.property("value")).is_some() {
                return Err(refused(&reason));
            }
        }
        Ok(Self { values })
    }

    /// Refuses a query if one of these is missing, whether it would look at it or not.
    pub(crate) fn check(&self, named: &BTreeMap<Arc<str>, Position>) -> Result<()> {
        named.iter().try_for_each(|(name, position)| self.given(name, *position).map(|_| ()))
    }

    /// The value of a parameter. One that is missing is undefined, as in Azure Cosmos DB: Spring
    /// leaves out what is an empty `Optional`, and asks `IS_DEFINED(@city)`.
    pub(crate) fn get(&self, name: &Arc<str>) -> &Value {
        self.values.get(name).unwrap_or(&Value::Undefined)
    }

    fn given(&self, name: &Arc<str>, position: Position) -> Result<&Value> {
        let missing = || Error::meaningless(position, format!("parameter {name:?} has no value;"));
        self.values.get(name).ok_or_else(missing)
    }

    /// The number of rows that TOP, OFFSET or LIMIT asks for.
    pub(crate) fn count(&self, count: &Count) -> Result<u64> {
        match count {
            Count::Literal(count) => Ok(*count),
            Count::Parameter(name, position) => {
                let whole = self.given(name, *position)?.as_integer();
                let rows = whole.and_then(|it| u64::try_from(it).ok()).ok_or_else(|| {
                    let reason = format!("parameter {name:?} is not a number of rows;");
                    Error::meaningless(*position, reason)
                })?;
                if ROWS_MAX < rows {
                    return Err(Error::meaningless(*position, TOO_MANY_ROWS));
                }
                Ok(rows)
            }
        }
    }

    /// A text that is the same exactly for the same parameters.
    pub(crate) fn write(&self, out: &mut String) {
        for (name, value) in &self.values {
            out.push_str(name);
            out.push(' ');
            json::write(value, out);
            out.push('\n');
        }
    }
}

impl ResumeFilter {
    fn from_value(filter: &Value) -> Result<Self> {
        let values = filter.property("value");
        let Some(values) = values.as_array() else {
            return Err(refused("its \"resumeFilter\" has no array \"value\""));
        };
        let values = values.iter().map(|value| match value {
            // The SDKs write undefined as an empty array, and arrays and objects as hashes.
            Value::Array(items) if items.is_empty() => Ok(Value::Undefined),
            Value::Array(_) | Value::Object(_) => {
                Err(refused("its \"resumeFilter\" goes on after an array or an object"))
            }
            Value::Undefined
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => Ok(value.clone()),
        });
        Ok(Self {
            values: values.collect::<Result<_>>()?,
            rid: filter.property("rid").as_str().map(ToOwned::to_owned),
            is_exclusive: filter.property("exclude").is_true(),
        })
    }

    /// What tells it from others.
    pub(crate) fn digest(&self) -> u128 {
        let mut text = json::to_string(&written_keys(&self.values));
        text.push_str(if self.is_exclusive { " behind " } else { " at " });
        text.push_str(self.rid.as_deref().unwrap_or_default());
        xxhash_rust::xxh3::xxh3_128(text.as_bytes())
    }
}

fn read(bytes: &[u8]) -> Result<Value> {
    json::read(&Bytes::copy_from_slice(bytes)).map_err(|reason| refused(&reason))
}

fn refused(reason: &str) -> Error {
    Error::invalid("read the query request", reason)
}
