//! The JSON form of the properties of a correlation filter.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millstream_core::{PropertyValue, Timestamp};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

type Properties = BTreeMap<String, PropertyValue>;

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
enum Form {
    Bool(bool),
    Integer(i64),
    PlainDouble(f64),
    Text(String),
    Named(Named),
}

/// Types that JSON does not have.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum Named {
    Double(String),
    Timestamp(u64),
    Binary(String),
}

pub(crate) fn serialize<S: Serializer>(
    properties: &Properties,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let forms: BTreeMap<&String, Form> =
        properties.iter().map(|(name, value)| (name, form(value))).collect();
    forms.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Properties, D::Error> {
    let forms = BTreeMap::<String, Form>::deserialize(deserializer)?;
    let values = forms.into_iter().map(|(name, form)| {
        let value = value(form).ok_or_else(|| {
            D::Error::custom(format!("could not read the value of the property {name:?}"))
        })?;
        Ok((name, value))
    });
    values.collect()
}

fn form(value: &PropertyValue) -> Form {
    match value {
        PropertyValue::Bool(value) => Form::Bool(*value),
        PropertyValue::Integer(number) => Form::Integer(*number),
        // The shortest text that reads as the same number; also for what JSON numbers cannot say.
        PropertyValue::Double(number) => Form::Named(Named::Double(format!("{number:?}"))),
        PropertyValue::String(text) => Form::Text(text.clone()),
        PropertyValue::Timestamp(time) => Form::Named(Named::Timestamp(time.as_millis())),
        PropertyValue::Binary(bytes) => Form::Named(Named::Binary(STANDARD.encode(bytes))),
    }
}

fn value(form: Form) -> Option<PropertyValue> {
    Some(match form {
        Form::Bool(value) => PropertyValue::Bool(value),
        Form::Integer(number) => PropertyValue::Integer(number),
        Form::PlainDouble(number) => PropertyValue::Double(number),
        Form::Text(text) => PropertyValue::String(text),
        Form::Named(Named::Double(text)) => PropertyValue::Double(text.parse().ok()?),
        Form::Named(Named::Timestamp(millis)) => {
            PropertyValue::Timestamp(Timestamp::from_millis(millis))
        }
        Form::Named(Named::Binary(text)) => {
            PropertyValue::Binary(STANDARD.decode(text).ok()?.into())
        }
    })
}
