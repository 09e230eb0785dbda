//! Which resource a path names.

use percent_encoding::percent_decode_str;

use crate::refusal::Refusal;

/// Longest path. Two names, an id and what encoding adds fit.
pub(crate) const PATH_BYTES_MAX: usize = 8 * 1024;
/// Most segments any path has.
const SEGMENTS_MAX: usize = 8;

/// A path, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The segments, decoded, without empty ones at either end.
    pub(crate) segments: Vec<String>,
    /// What they name.
    pub(crate) target: Target,
}

/// What a path names. Names may be resource ids instead; only a look at what exists can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/`
    Account,
    /// `/dbs`
    Databases,
    /// `/dbs/{d}`
    Database(String),
    /// `/dbs/{d}/colls`
    Containers(String),
    /// Something of a container.
    Container(ContainerPath, Below),
    /// `/offers`
    Offers,
    /// `/offers/{rid}`
    Offer(String),
    /// `/databases/{d}/containers/{c}/partitions/{range}/split`
    Split(ContainerPath, String),
    /// `/databases/{d}/containers/{c}/partitions/merge`
    Merge(ContainerPath),
    /// `/operations/{id}`: a split or merge.
    Operation(String),
    /// A kind of resource of Cosmos DB that is not served.
    Unsupported(&'static str),
}

/// A container as a path names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContainerPath {
    /// Name or resource id of the database.
    pub(crate) database: String,
    /// Name or resource id of the container.
    pub(crate) container: String,
}

/// What of a container a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// The container.
    Itself,
    /// `…/pkranges`
    Ranges,
    /// `…/docs`
    Items,
    /// `…/docs/{id}`
    Item(String),
    /// `…/operations/partitionkeydelete`
    DeleteByKey,
    /// `…/conflicts`
    Conflicts,
    /// `…/conflicts/{id}`
    Conflict,
}

impl Path {
    /// Takes a path apart, by position: a database may be called `colls`.
    ///
    /// What stands behind a question mark is no query where an item is named, but the rest of its
    /// id: no request for an item has a query, and the SDK for .NET does not encode question marks.
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        if PATH_BYTES_MAX < path.len() {
            let message = format!("the path of the request is longer than {PATH_BYTES_MAX} bytes");
            return Err(Refusal::new(http::StatusCode::URI_TOO_LONG, message));
        }
        let (path, rest) = path.split_once('?').map_or((path, None), |(it, rest)| (it, Some(rest)));
        let begins_id = path.ends_with('/') && rest.is_some();
        let inner = path.trim_matches('/');
        let mut segments = Vec::new();
        if !inner.is_empty() {
            for segment in inner.split('/') {
                if segment.is_empty() || segments.len() == SEGMENTS_MAX {
                    return Err(unknown());
                }
                segments.push(decoded(segment)?);
            }
        }
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let mut target = Target::parse(&parts)?;
        match (&mut target, rest) {
            (Target::Container(_, Below::Item(_)), Some(_)) if begins_id => return Err(unknown()),
            (Target::Container(_, Below::Item(id)), Some(rest)) => {
                *id += &format!("?{}", decoded(rest)?);
                segments.pop();
                segments.push(id.clone());
            }
            (Target::Container(_, below @ Below::Items), Some(rest)) if begins_id => {
                let id = format!("?{}", decoded(rest)?);
                segments.push(id.clone());
                *below = Below::Item(id);
            }
            _ => {}
        }
        Ok(Self { segments, target })
    }
}

impl Target {
    fn parse(parts: &[&str]) -> Result<Self, Refusal> {
        Ok(match parts {
            [] => Self::Account,
            ["dbs"] => Self::Databases,
            ["dbs", database] => Self::Database((*database).to_owned()),
            ["dbs", database, "colls"] => Self::Containers((*database).to_owned()),
            ["dbs", database, "colls", container, below @ ..] => {
                let path = ContainerPath::new(database, container);
                match below {
                    [] => Self::Container(path, Below::Itself),
                    ["pkranges"] => Self::Container(path, Below::Ranges),
                    ["docs"] => Self::Container(path, Below::Items),
                    ["docs", id] => Self::Container(path, Below::Item((*id).to_owned())),
                    ["operations", "partitionkeydelete"] => {
                        Self::Container(path, Below::DeleteByKey)
                    }
                    ["sprocs", ..] => Self::Unsupported("stored procedures"),
                    ["triggers", ..] => Self::Unsupported("triggers"),
                    ["udfs", ..] => Self::Unsupported("user-defined functions"),
                    ["conflicts"] => Self::Container(path, Below::Conflicts),
                    ["conflicts", _] => Self::Container(path, Below::Conflict),
                    ["docs", _, "attachments", ..] => Self::Unsupported("attachments"),
                    _ => return Err(unknown()),
                }
            }
            ["dbs", _, "users", ..] => Self::Unsupported("users and permissions"),
            ["dbs", _, "clientencryptionkeys", ..] => Self::Unsupported("client encryption keys"),
            ["dbs", _, "udts", ..] => Self::Unsupported("user-defined types"),
            ["offers"] => Self::Offers,
            ["offers", offer] => Self::Offer((*offer).to_owned()),
            ["databases", database, "containers", container, "partitions", rest @ ..] => {
                let path = ContainerPath::new(database, container);
                match rest {
                    ["merge"] => Self::Merge(path),
                    [range, "split"] => Self::Split(path, (*range).to_owned()),
                    _ => return Err(unknown()),
                }
            }
            ["addresses", ..] => {
                Self::Unsupported("addresses of replicas (direct mode: use gateway mode)")
            }
            ["operations", id] if *id != "dtc" => Self::Operation((*id).to_owned()),
            ["operations", "dtc"] => Self::Unsupported("distributed transactions"),
            ["media", ..] => Self::Unsupported("media"),
            _ => return Err(unknown()),
        })
    }
}

impl ContainerPath {
    fn new(database: &str, container: &str) -> Self {
        Self { database: database.to_owned(), container: container.to_owned() }
    }
}

fn decoded(segment: &str) -> Result<String, Refusal> {
    let text = percent_decode_str(segment).decode_utf8();
    let text = text.map_err(|_| Refusal::bad_request("the path of the request is not UTF-8"))?;
    Ok(text.into_owned())
}

fn unknown() -> Refusal {
    Refusal::bad_request("the path of the request names no resource of this service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &Target) {
        assert_eq!(Path::parse(path).unwrap().target, *expected, "{path}");
    }

    fn container(below: Below) -> Target {
        Target::Container(ContainerPath::new("colls", "docs"), below)
    }

    #[test]
    fn paths_are_read_by_position_with_and_without_a_slash_at_the_end() {
        check("/", &Target::Account);
        check("", &Target::Account);
        check("//", &Target::Account);
        check("/dbs", &Target::Databases);
        check("/dbs/colls/", &Target::Database("colls".to_owned()));
        check("/dbs/colls/colls/docs", &container(Below::Itself));
        check("/dbs/colls/colls/docs/docs/", &container(Below::Items));
        check("/dbs/colls/colls/docs/docs/a%20%C3%A4", &container(Below::Item("a ä".to_owned())));
        check("/dbs/colls/colls/docs/docs/a?b%20c", &container(Below::Item("a?b c".to_owned())));
        check("/dbs/colls/colls/docs/docs/a?", &container(Below::Item("a?".to_owned())));
        check("/dbs/colls/colls/docs/docs/?a", &container(Below::Item("?a".to_owned())));
        check("/dbs/colls/colls/docs/docs/?", &container(Below::Item("?".to_owned())));
        check("/dbs/colls/colls/docs/docs?a", &container(Below::Items));
        check("/dbs?a=b", &Target::Databases);
        check("/dbs/colls/colls/docs/pkranges", &container(Below::Ranges));
        check("/offers/abc=", &Target::Offer("abc=".to_owned()));
        check("/dbs/d/colls/c/sprocs/x", &Target::Unsupported("stored procedures"));
        let path = ContainerPath::new("colls", "docs");
        check(
            "/databases/colls/containers/docs/partitions/3/split",
            &Target::Split(path.clone(), "3".to_owned()),
        );
        check("/databases/colls/containers/docs/partitions/merge", &Target::Merge(path));
    }

    #[test]
    fn other_paths_are_refused() {
        for path in [
            "/nothing",
            "/dbs/a/b",
            "/dbs/%FF",
            "/dbs//colls//docs",
            "/a/a/a/a/a/a/a/a/a",
            "/dbs/d/colls/c/docs/a/?b",
        ] {
            assert_eq!(Path::parse(path).unwrap_err().status.as_u16(), 400, "{path}");
        }
        let long = format!("/dbs/{}", "a".repeat(PATH_BYTES_MAX));
        assert_eq!(Path::parse(&long).unwrap_err().status.as_u16(), 414);
    }
}
