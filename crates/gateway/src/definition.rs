//! The definition of a container: what clients send, what a backend keeps, and what is only given
//! back.

use std::time::Duration;

use millstream_core::{
    ContainerInfo, ContainerSettings, HashKind, PartitionKeyDefinition, TimeToLive, UniqueKey,
};
use millstream_query::ComputedProperties;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::listing;
use crate::refusal::Refusal;
use crate::reply::quoted;
use crate::rid::Rid;

/// Most bytes of what is kept only to be given back.
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// What a backend keeps itself.
const SETTINGS: [&str; 4] = ["id", "partitionKey", "defaultTtl", "changeFeedPolicy"];

/// A backend keeps it as well; without a key it has no effect and is only given back.
const UNIQUE_KEYS: &str = "uniqueKeyPolicy";

/// What is kept if a client wrote version 1 of the partition key, which is the default. Clients
/// cannot use the name: it begins with what is left out of a definition.
const VERSION_SAID: &str = "_partitionKeyVersion";
/// What is kept of `systemKey` of the partition key, by which the SDK for .NET knows containers of
/// the time before partition keys.
const SYSTEM_KEY: &str = "_partitionKeySystem";

/// A definition, read.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) id: String,
    /// What the backend keeps.
    pub(crate) settings: ContainerSettings,
    /// What is only given back: policies that have no effect here.
    pub(crate) kept: Map<String, Value>,
}

impl Definition {
    /// Reads the body of a request. One that replaces may leave out the partition key, which
    /// cannot change.
    pub(crate) fn parse(body: &[u8], old: Option<&ContainerSettings>) -> Result<Self, Refusal> {
        let mut body = listing::object(body)?;
        let id = listing::id(&body)?.to_owned();
        check_supported(&body)?;
        let key = match (body.get("partitionKey"), old) {
            (None | Some(Value::Null), Some(old)) => old.partition_key.clone(),
            (None | Some(Value::Null), None) => {
                let message = "the container needs a partitionKey, such as {\"paths\":[\"/id\"],\
                               \"kind\":\"Hash\",\"version\":2}";
                return Err(Refusal::bad_request(message));
            }
            (Some(value), _) => partition_key(value, old.is_none())?,
        };
        let mut settings = ContainerSettings::new(key);
        if let Some(old) = old {
            settings.event_type.clone_from(&old.event_type);
            settings.ranges = old.ranges;
        }
        settings.default_ttl = body.get("defaultTtl").map(default_ttl).transpose()?;
        settings.all_versions_retention = retention(&body)?;
        settings.unique_keys = match (body.get(UNIQUE_KEYS), old) {
            (None | Some(Value::Null), Some(old)) => old.unique_keys.clone(),
            (policy, _) => unique_keys(policy)?,
        };
        if !settings.unique_keys.is_empty() {
            body.remove(UNIQUE_KEYS);
        }
        let said = |name: &str| body.get("partitionKey").and_then(|it| it.get(name)).cloned();
        let (is_version_said, system_key) = (said("version").is_some(), said("systemKey"));
        body.retain(|name, _| !SETTINGS.contains(&name.as_str()) && !name.starts_with('_'));
        if is_version_said && settings.partition_key.kind() == HashKind::V1 {
            body.insert(VERSION_SAID.to_owned(), json!(1));
        }
        if let Some(value) = system_key.filter(Value::is_boolean) {
            body.insert(SYSTEM_KEY.to_owned(), value);
        }
        if KEPT_BYTES_MAX < Value::Object(body.clone()).to_string().len() {
            let message = "the policies of the container have more than 256 KiB";
            return Err(Refusal::bad_request(message));
        }
        Ok(Self { id, settings, kept: body })
    }
}

/// Adds to a definition that replaces another what was said about the partition key, which cannot
/// change.
pub(crate) fn keep_key(kept: &mut Map<String, Value>, known: &Map<String, Value>) {
    for name in [VERSION_SAID, SYSTEM_KEY] {
        if let (false, Some(value)) = (kept.contains_key(name), known.get(name)) {
            kept.insert(name.to_owned(), value.clone());
        }
    }
}

/// The container as clients see it.
pub(crate) fn render(info: &ContainerInfo, kept: &Map<String, Value>) -> Value {
    let rid = Rid::Container(info.resource_id).encode();
    let database = Rid::Database(info.resource_id.database).encode();
    let mut body = kept.clone();
    let is_version_said = body.remove(VERSION_SAID).is_some();
    let mut key = key(&info.settings.partition_key, is_version_said);
    if let Some(value) = body.remove(SYSTEM_KEY) {
        key["systemKey"] = value;
    }
    let mut put = |name: &str, value: Value| drop(body.insert(name.to_owned(), value));
    put("id", info.name.container().into());
    put("partitionKey", key);
    put("indexingPolicy", indexing(kept.get("indexingPolicy")));
    match info.settings.default_ttl {
        None => (),
        Some(TimeToLive::Never) => put("defaultTtl", json!(-1)),
        Some(TimeToLive::Seconds(seconds)) => put("defaultTtl", json!(seconds)),
    }
    let minutes = info.settings.all_versions_retention.as_secs() / 60;
    if 0 < minutes {
        put("changeFeedPolicy", json!({ "retentionDuration": minutes }));
    }
    if !info.settings.unique_keys.is_empty() {
        put(UNIQUE_KEYS, json!({ "uniqueKeys": info.settings.unique_keys }));
    }
    put("_self", format!("dbs/{database}/colls/{rid}/").into());
    put("_rid", rid.into());
    put("_etag", quoted(&info.etag).into());
    put("_ts", (info.modified_at.as_millis() / 1000).into());
    for below in ["docs", "sprocs", "triggers", "udfs", "conflicts"] {
        put(&format!("_{below}"), format!("{below}/").into());
    }
    let defaults = [
        (
            "conflictResolutionPolicy",
            json!({
                "mode": "LastWriterWins",
                "conflictResolutionPath": "/_ts",
                "conflictResolutionProcedure": ""
            }),
        ),
        ("geospatialConfig", json!({ "type": "Geography" })),
    ];
    for (name, value) in defaults {
        body.entry(name).or_insert(value);
    }
    Value::Object(body)
}

/// What would have an effect in Cosmos DB that it cannot have here is refused, not ignored.
fn check_supported(body: &Map<String, Value>) -> Result<(), Refusal> {
    let is_filled = |value: Option<&Value>| {
        value.is_some_and(|it| it.as_array().is_some_and(|it| !it.is_empty()))
    };
    computed_properties(body)?;
    if is_filled(body.get("clientEncryptionPolicy").and_then(|it| it.get("includedPaths"))) {
        let message = "client encryption is not supported: items would be stored as they are sent";
        return Err(Refusal::bad_request(message));
    }
    if body.get("materializedViewDefinition").is_some_and(|it| !it.is_null()) {
        return Err(Refusal::bad_request("materialized views are not supported"));
    }
    let expiry = body.get("ttlPropertyPath").filter(|it| !it.is_null());
    if expiry.is_some_and(|it| it != "/_ts" && it != "_ts") {
        let message = "ttlPropertyPath is not supported: items expire a time after _ts, that of \
                       their last write";
        return Err(Refusal::bad_request(message));
    }
    Ok(())
}

fn partition_key(value: &Value, is_new: bool) -> Result<PartitionKeyDefinition, Refusal> {
    let paths_max = if value["kind"] == "MultiHash" { 3 } else { 1 };
    if value["paths"].as_array().is_some_and(|it| paths_max < it.len()) {
        return Err(Refusal::bad_request(format!(
            "Too many partition key paths: this kind takes at most {paths_max}"
        )));
    }
    // Those of an indexing policy have them.
    let is_wildcard = |path: &Value| path.as_str().is_some_and(|it| it.ends_with(['*', '?']));
    if is_new && value["paths"].as_array().is_some_and(|it| it.iter().any(is_wildcard)) {
        let message = "a path of the partitionKey names a property, such as /id: it cannot end \
                       with * or ?";
        return Err(Refusal::bad_request(message));
    }
    let mut value = value.clone();
    // The SDK for Java sends the name of the version that the service has for it.
    let version = match value["version"].as_str() {
        Some("V1") => Some(1),
        Some("V2") => Some(2),
        Some(_) | None => None,
    };
    if let Some(version) = version {
        value["version"] = json!(version);
    }
    serde_json::from_value(value).map_err(|error| {
        Refusal::bad_request(format!("the partitionKey of the container is invalid: {error}"))
    })
}

/// The partition key as Cosmos DB shows it: version 1 goes without saying, unless it was said.
fn key(definition: &PartitionKeyDefinition, is_version_said: bool) -> Value {
    let mut value = json!(definition);
    let is_silent = definition.kind() == HashKind::V1 && !is_version_said;
    if let (true, Some(fields)) = (is_silent, value.as_object_mut()) {
        fields.remove("version");
    }
    value
}

fn default_ttl(value: &Value) -> Result<TimeToLive, Refusal> {
    let seconds = value.as_i64().filter(|it| *it != 0).map(TimeToLive::new);
    match seconds {
        Some(Ok(ttl)) => Ok(ttl),
        Some(Err(_)) | None => Err(Refusal::bad_request(format!(
            "the input ttl {value} is invalid: defaultTtl has to be -1 (never) or a positive \
             number of seconds up to {}",
            TimeToLive::SECONDS_MAX
        ))),
    }
}

fn retention(body: &Map<String, Value>) -> Result<Duration, Refusal> {
    let policy = body.get("changeFeedPolicy").filter(|it| !it.is_null());
    let Some(value) = policy.and_then(|it| it.get("retentionDuration")) else {
        return Ok(Duration::ZERO);
    };
    let retention = value.as_u64().map(|minutes| minutes.saturating_mul(60));
    match retention.map(Duration::from_secs) {
        Some(retention) if retention <= ContainerSettings::RETENTION_MAX => Ok(retention),
        Some(_) | None => Err(Refusal::bad_request(
            "changeFeedPolicy.retentionDuration has to be a number of minutes, at most 30 days",
        )),
    }
}

/// The computed properties of a definition. They are only given back, and used by queries.
pub(crate) fn computed_properties(
    definition: &Map<String, Value>,
) -> Result<ComputedProperties, Refusal> {
    let list = match definition.get("computedProperties") {
        None | Some(Value::Null) => return Ok(ComputedProperties::default()),
        Some(value) => value.as_array().map(Vec::as_slice),
    };
    let pairs: Option<Vec<(&str, &str)>> = list.and_then(|list| {
        let pairs = list.iter();
        pairs.map(|it| Some((it.get("name")?.as_str()?, it.get("query")?.as_str()?))).collect()
    });
    let Some(pairs) = pairs else {
        // Clients look for the first words, which are those of Cosmos DB.
        return Err(Refusal::bad_request(
            "One of the specified inputs is invalid: computedProperties has to be like \
             [{\"name\":\"lower\",\"query\":\"SELECT VALUE LOWER(c.name) FROM c\"}]",
        ));
    };
    Ok(ComputedProperties::new(pairs)?)
}

fn unique_keys(policy: Option<&Value>) -> Result<Vec<UniqueKey>, Refusal> {
    let Some(policy) = policy.filter(|it| !it.is_null()) else { return Ok(Vec::new()) };
    let refused = |reason: &str| {
        Refusal::bad_request(format!(
            "the uniqueKeyPolicy is not like {{\"uniqueKeys\":[{{\"paths\":[\"/a\"]}}]}}: {reason}"
        ))
    };
    if !policy.is_object() {
        return Err(refused("it is no object"));
    }
    match policy.get("uniqueKeys").filter(|it| !it.is_null()) {
        None => Ok(Vec::new()),
        Some(keys) => Vec::deserialize(keys).map_err(|error| refused(&error.to_string())),
    }
}

/// The indexing policy with everything that clients expect to be there.
fn indexing(sent: Option<&Value>) -> Value {
    let mut policy = sent.and_then(Value::as_object).cloned().unwrap_or_default();
    let mode = policy.get("indexingMode").and_then(Value::as_str).map(str::to_ascii_lowercase);
    let mode = mode.unwrap_or_else(|| "consistent".to_owned());
    let is_off = mode == "none";
    policy.insert("indexingMode".to_owned(), mode.into());
    // Clients that say nothing send false; where there is an index, every item is in it.
    policy.insert("automatic".to_owned(), json!(!is_off));
    let everything = if is_off { json!([]) } else { json!([{ "path": "/*" }]) };
    let included = policy.entry("includedPaths").or_insert(everything);
    let has_included = included.as_array().is_some_and(|it| !it.is_empty());
    for path in included.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        // Kinds of indexes mean nothing to Cosmos DB any more; it leaves them out, too.
        path.remove("indexes");
    }
    let system = json!({ "path": "/\"_etag\"/?" });
    let excluded = policy.entry("excludedPaths").or_insert(json!([]));
    if let Some(paths) = excluded.as_array_mut()
        && has_included
        && !paths.contains(&system)
    {
        paths.push(system);
    }
    Value::Object(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Definition, Refusal> {
        Definition::parse(body.as_bytes(), None)
    }

    #[track_caller]
    fn check_refused(body: &str, expected: &str) {
        let refusal = parse(body).unwrap_err();
        assert_eq!(refusal.status.as_u16(), 400);
        assert!(refusal.message.contains(expected), "{refusal}");
    }

    #[test]
    fn what_has_no_effect_is_kept_and_what_has_is_understood() {
        let body = r#"{"id":"c","partitionKey":{"paths":["/a"],"kind":"Hash"},"defaultTtl":-1,
            "changeFeedPolicy":{"retentionDuration":10},"analyticalStorageTtl":3,"_ts":1}"#;
        let read = parse(body).unwrap();
        assert_eq!(read.settings.default_ttl, Some(TimeToLive::Never));
        assert_eq!(read.settings.all_versions_retention, Duration::from_secs(600));
        assert_eq!(Value::Object(read.kept), json!({ "analyticalStorageTtl": 3 }));
    }

    #[test]
    fn the_version_of_a_partition_key_is_a_number_or_its_name() {
        let check = |version: &str, expected: HashKind| {
            let key = format!(r#"{{"paths":["/a"],"kind":"Hash","version":{version}}}"#);
            let read = parse(&format!(r#"{{"id":"c","partitionKey":{key}}}"#)).unwrap();
            assert_eq!(read.settings.partition_key.kind(), expected, "{version}");
        };
        check("1", HashKind::V1);
        check("\"V1\"", HashKind::V1);
        check("2", HashKind::V2);
        check("\"V2\"", HashKind::V2);
        let unknown = r#"{"id":"c","partitionKey":{"paths":["/a"],"version":"V3"}}"#;
        check_refused(unknown, "partitionKey");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        check_refused("", "JSON");
        check_refused("[]", "object");
        check_refused(r#"{"partitionKey":{"paths":["/a"]}}"#, "id");
        check_refused(r#"{"id":"a/b","partitionKey":{"paths":["/a"]}}"#, "name");
        check_refused(r#"{"id":"c"}"#, "partitionKey");
        for path in ["a", "/a/*", "/a/?", "/*"] {
            let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["{path}"]}}}}"#);
            check_refused(&body, "partitionKey");
        }
        for ttl in ["0", "-2", "null", "\"5\"", "1.5", "99999999999"] {
            let body =
                format!(r#"{{"id":"c","partitionKey":{{"paths":["/a"]}},"defaultTtl":{ttl}}}"#);
            check_refused(&body, "ttl");
        }
        for keys in ["1", "[1]", r#"[{"paths":[]}]"#, r#"[{"paths":["b"]}]"#] {
            let body = format!(
                r#"{{"id":"c","partitionKey":{{"paths":["/a"]}},
                "uniqueKeyPolicy":{{"uniqueKeys":{keys}}}}}"#
            );
            check_refused(&body, "uniqueKeyPolicy");
        }
        let policy = r#"{"id":"c","partitionKey":{"paths":["/a"]},"uniqueKeyPolicy":5}"#;
        check_refused(policy, "uniqueKeyPolicy");
        for computed in ["1", "[1]", r#"[{"name":"x"}]"#, r#"[{"name":1,"query":"SELECT 1"}]"#] {
            let body = format!(
                r#"{{"id":"c","partitionKey":{{"paths":["/a"]}},"computedProperties":{computed}}}"#
            );
            check_refused(&body, "computedProperties");
        }
        let computed = r#"{"id":"c","partitionKey":{"paths":["/a"]},
            "computedProperties":[{"name":"x","query":"SELECT VALUE POWERR(c.a) FROM c"}]}"#;
        check_refused(computed, "POWERR");
        let encrypted = r#"{"id":"c","partitionKey":{"paths":["/a"]},
            "clientEncryptionPolicy":{"includedPaths":[{"path":"/b"}]}}"#;
        check_refused(encrypted, "client encryption");
        let view = r#"{"id":"c","partitionKey":{"paths":["/a"]},
            "materializedViewDefinition":{"definition":"SELECT c.a FROM c"}}"#;
        check_refused(view, "materialized views");
    }

    #[test]
    fn unique_keys_are_understood_and_stay_if_nothing_is_said() {
        let unique = r#"{"id":"c","partitionKey":{"paths":["/a"]},
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/b","/c/d"]}]}}"#;
        let read = parse(unique).unwrap();
        assert_eq!(read.settings.unique_keys, [UniqueKey::new(["/b", "/c/d"]).unwrap()]);
        assert!(read.kept.is_empty());
        let silent = r#"{"id":"c","defaultTtl":5}"#;
        let replaced = Definition::parse(silent.as_bytes(), Some(&read.settings)).unwrap();
        assert_eq!(replaced.settings.unique_keys, read.settings.unique_keys);
        let none = r#"{"id":"c","uniqueKeyPolicy":{"uniqueKeys":[]}}"#;
        let replaced = Definition::parse(none.as_bytes(), Some(&read.settings)).unwrap();
        assert!(replaced.settings.check_replacing(&read.settings).is_err());
    }

    #[test]
    fn the_indexing_policy_is_completed() {
        let default = indexing(None);
        assert_eq!(default["indexingMode"], "consistent");
        assert_eq!(default["includedPaths"], json!([{ "path": "/*" }]));
        assert_eq!(default["excludedPaths"], json!([{ "path": "/\"_etag\"/?" }]));
        let sent = json!({ "indexingMode": "Consistent", "automatic": false });
        assert_eq!(indexing(Some(&sent))["automatic"], true);
        let off = indexing(Some(&json!({ "indexingMode": "None" })));
        assert_eq!(off["automatic"], false);
        assert_eq!(off["includedPaths"], json!([]));
    }

    #[test]
    fn version_1_of_a_partition_key_is_shown_if_it_was_written() {
        let kept = |key: &str| {
            let body = format!(r#"{{"id":"c","partitionKey":{key}}}"#);
            Definition::parse(body.as_bytes(), None).unwrap().kept
        };
        assert!(kept(r#"{"paths":["/a"],"kind":"Hash","version":1}"#).contains_key(VERSION_SAID));
        assert!(kept(r#"{"paths":["/a"],"kind":"Hash"}"#).is_empty());
        assert!(kept(r#"{"paths":["/a"],"kind":"Hash","version":2}"#).is_empty());
        let first = PartitionKeyDefinition::new(["/a"], HashKind::V1).unwrap();
        assert_eq!(key(&first, true)["version"], 1);
        assert_eq!(key(&first, false).get("version"), None);
    }
}
