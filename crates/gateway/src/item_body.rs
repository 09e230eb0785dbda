//! Items as clients see them: what they wrote, and the properties the service adds.
//!
//! Bodies are never parsed into a tree and written again; numbers, spaces and the order of
//! properties stay as they were.

use bytes::Bytes;
use millstream_core::{Etag, ITEM_BYTES_MAX, Item, ResourceId, set_properties};

use crate::binary_json;
use crate::digits::Digits;
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::reply::quoted;
use crate::request::Request;
use crate::{headers, rid};

/// What the text of a binary body may grow to; what is too large for an item is refused later, with
/// the same words as if it had been text.
pub(crate) const TEXT_BYTES_MAX: usize = 2 * ITEM_BYTES_MAX;

/// The text of a body that is an item, whichever form it was sent in.
pub(crate) fn text(body: &Bytes) -> Result<Bytes, Refusal> {
    if binary_json::is_binary(body) {
        return Ok(binary_json::decode(body, TEXT_BYTES_MAX)?.into());
    }
    Ok(body.clone())
}

/// Where the items of a container live, as `_rid` and `_self` say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home<'a> {
    pub(crate) container: ResourceId,
    /// `dbs/{database}/colls/{container}/`, by resource id.
    pub(crate) self_link: &'a str,
}

/// Where the items of a container live.
pub(crate) fn home(container: &OpenContainer) -> Home<'_> {
    Home { container: container.info().resource_id, self_link: &container.self_link }
}

impl Home<'_> {
    /// The item with `_rid`, `_self`, `_etag`, `_attachments` and `_ts`.
    pub(crate) fn present(self, item: &Item) -> Bytes {
        self.present_with(item, None)
    }

    /// As [`Home::present`], with the number of the item's commit if the client wants it.
    pub(crate) fn present_for(self, request: &Request, item: &Item) -> Bytes {
        if request.flag(&headers::WITH_LSN) {
            return self.present_with(item, Some(("_lsn", &item.lsn.to_string())));
        }
        self.present(item)
    }

    /// The same with one property more, whose value is JSON.
    pub(crate) fn present_with(self, item: &Item, extra: Option<(&str, &str)>) -> Bytes {
        let rid = rid::item(self.container, &item.partition_key, &item.id);
        let etag = etag_value(&item.etag);
        let written = Digits::of(item.written_at.as_millis() / 1000);
        // One text for both values: this is done for every item that is shown.
        let text = ["\"", self.self_link, "docs/", &rid, "/\"", "\"", &rid, "\""].concat();
        let (link, rid) = text.split_at(text.len() - rid.len() - 2);
        let changes = [
            ("_rid", rid),
            ("_self", link),
            ("_etag", &etag),
            ("_attachments", "\"attachments/\""),
            ("_ts", written.as_str()),
            extra.unwrap_or_default(),
        ];
        let count = changes.len() - usize::from(extra.is_none());
        set_properties(&item.body, &changes[..count]).into()
    }
}

/// A page of a feed: `{"_rid":"…","Documents":[…],"_count":1}`.
pub(crate) fn page(container_rid: &str, documents: &[Bytes]) -> Bytes {
    let bytes: usize = documents.iter().map(|it| it.len() + 1).sum();
    let mut text = Vec::with_capacity(bytes + 64);
    text.extend(format!("{{\"_rid\":\"{container_rid}\",\"Documents\":[").bytes());
    for (index, document) in documents.iter().enumerate() {
        if 0 < index {
            text.push(b',');
        }
        text.extend(document);
    }
    text.extend(format!("],\"_count\":{}}}", documents.len()).bytes());
    text.into()
}

/// The value of `_etag`: the etag in quotes, which are escaped in their turn.
fn etag_value(etag: &Etag) -> String {
    if etag.as_str().bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        return ["\"\\\"", etag.as_str(), "\\\"\""].concat();
    }
    json_string(&quoted(etag))
}

/// The JSON spelling of a string.
pub(crate) fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("every string has a JSON spelling")
}

#[cfg(test)]
mod tests {
    use millstream_core::{ItemId, Lsn, Timestamp};

    use super::*;

    fn our_home() -> Home<'static> {
        let container = ResourceId { database: 1, container: 2 };
        Home { container, self_link: "dbs/AAAAAQ==/colls/AAAAAYAAAAI=/" }
    }

    #[track_caller]
    fn check(body: &'static str, expected: &str) {
        let item = Item {
            id: ItemId::new("1").unwrap(),
            partition_key: "a".into(),
            body: Bytes::from_static(body.as_bytes()),
            etag: Etag::new("7"),
            lsn: Lsn::new(7),
            written_at: Timestamp::from_millis(12_999),
            expires_at: None,
            sequence: None,
        };
        let rid = rid::item(our_home().container, &item.partition_key, &item.id);
        let expected = expected.replace("RID", &rid);
        assert_eq!(String::from_utf8(our_home().present(&item).to_vec()).unwrap(), expected);
    }

    #[test]
    fn what_the_user_wrote_stays_as_it_was() {
        check(
            r#"{ "id": "1", "n": 1.0e+2 }"#,
            concat!(
                r#"{ "id": "1", "n": 1.0e+2,"_rid":"RID","#,
                r#""_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAI=/docs/RID/","#,
                r#""_etag":"\"7\"","_attachments":"attachments/","_ts":12 }"#
            ),
        );
    }

    #[test]
    fn properties_of_an_earlier_version_that_came_back_are_replaced() {
        check(
            r#"{"_ts":1,"_rid":"x","id":"1","_etag":"\"3\"","_self":"y","_attachments":"z"}"#,
            concat!(
                r#"{"_ts":12,"_rid":"RID","id":"1","_etag":"\"7\"","#,
                r#""_self":"dbs/AAAAAQ==/colls/AAAAAYAAAAI=/docs/RID/","#,
                r#""_attachments":"attachments/"}"#
            ),
        );
    }

    #[test]
    fn a_page_has_the_form_of_the_protocol() {
        let documents = [Bytes::from_static(b"{}"), Bytes::from_static(b"{\"a\": 1}")];
        assert_eq!(page("R=", &documents), r#"{"_rid":"R=","Documents":[{},{"a": 1}],"_count":2}"#);
        assert_eq!(page("R=", &[]), r#"{"_rid":"R=","Documents":[],"_count":0}"#);
    }

    #[test]
    fn binary_bodies_become_text() {
        let binary = Bytes::from_static(&[0x80, 0xE9, 0x2C, 0x81, b'x']);
        assert_eq!(text(&binary).unwrap(), r#"{"id":"x"}"#);
        let broken = Bytes::from_static(&[0x80, 0xE9]);
        assert_eq!(text(&broken).unwrap_err().status.as_u16(), 400);
    }
}
