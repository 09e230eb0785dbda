//! How containers, partition keys and ids are named in NATS.
//!
//! A subject must not hold spaces, dots or wildcards, and its length is limited; a partition key or
//! an id may be nearly anything. So each becomes one token of letters, digits, `-` and `_` whose
//! order is that of the bytes it stands for. One that would be too long is cut and hashed, and the
//! message carries it in full.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use millstream_core::{Claim, EffectiveKey, ItemId, PartitionKey};
use sha2::{Digest, Sha256};

/// What stands in front of a token that was too long.
const HASHED: char = '~';
/// Longest text that stands in a token as it is.
const PLAIN_BYTES_MAX: usize = 90;
/// What is left of a longer one, so that tokens stay nearly in order.
const CUT_BYTES: usize = 45;
/// Digits of the effective key that are tokens of their own, so that a scan can ask for part of a
/// range.
pub(crate) const BUCKET_DIGITS: usize = 4;

/// Names what belongs to one range of one container.
#[derive(Clone, Debug)]
pub(crate) struct RangeNames {
    pub(crate) stream: String,
    subject: String,
    /// Where commits are announced. Nothing is stored there.
    pub(crate) wake: String,
}

impl RangeNames {
    pub(crate) fn new(prefix: &str, container: u32, range: u32) -> Self {
        Self {
            stream: format!("{prefix}_{container}_{range}"),
            subject: format!("{prefix}.{container}.{range}"),
            wake: format!("{prefix}.wake.{container}.{range}"),
        }
    }

    /// Everything the stream takes.
    pub(crate) fn all(&self) -> String {
        format!("{}.>", self.subject)
    }

    /// Every item.
    pub(crate) fn items(&self) -> String {
        format!("{}.i.>", self.subject)
    }

    /// Every value of a unique key.
    pub(crate) fn claims(&self) -> String {
        format!("{}.u.>", self.subject)
    }

    /// Every version of the history.
    pub(crate) fn versions(&self) -> String {
        format!("{}.v.>", self.subject)
    }

    /// A message of the history: each has a subject of its own, so that none replaces another.
    pub(crate) fn version(&self, batch: &str, step: usize, part: usize) -> String {
        format!("{}.v.{batch}.{step}.{part}", self.subject)
    }

    /// What carries the expectations about items that a batch only looks at.
    pub(crate) fn looks(&self) -> String {
        format!("{}.r", self.subject)
    }

    /// The items whose effective keys begin with these digits.
    pub(crate) fn bucket(&self, digits: &str) -> String {
        let digits: String = digits.chars().flat_map(|it| ['.', it]).collect();
        format!("{}.i{digits}.>", self.subject)
    }
}

/// Names what belongs to one logical partition.
#[derive(Clone, Debug)]
pub(crate) struct PartitionNames {
    items: String,
    claims: String,
    /// Where the last number of an event is.
    pub(crate) sequence: String,
    /// Whether the partition key does not stand in the subject.
    pub(crate) is_hashed: bool,
}

impl PartitionNames {
    pub(crate) fn new(range: &RangeNames, effective: &EffectiveKey, key: &PartitionKey) -> Self {
        let text = key.to_string();
        let is_hashed = PLAIN_BYTES_MAX < text.len();
        let token = if is_hashed {
            format!("{HASHED}{effective}{HASHED}{}", hash(text.as_bytes()))
        } else {
            ORDERED.encode(&text)
        };
        let bucket: String = bucket(effective).chars().flat_map(|it| [it, '.']).collect();
        let subject = &range.subject;
        Self {
            items: format!("{subject}.i.{bucket}{token}."),
            claims: format!("{subject}.u.{bucket}{token}."),
            sequence: format!("{subject}.s.{bucket}{token}"),
            is_hashed,
        }
    }

    pub(crate) fn item(&self, id: &ItemId) -> String {
        format!("{}{}", self.items, id_token(id))
    }

    /// Where it says which item has the values of a unique key.
    pub(crate) fn claim(&self, claim: &Claim) -> String {
        let bytes = claim.as_bytes();
        let token = if PLAIN_BYTES_MAX < bytes.len() {
            format!("{HASHED}{}", hash(bytes))
        } else {
            ORDERED.encode(bytes)
        };
        format!("{}{token}", self.claims)
    }

    /// Every item of the partition.
    pub(crate) fn all(&self) -> String {
        format!("{}*", self.items)
    }
}

/// Whether the id does not stand in the subject.
pub(crate) fn is_hashed(id: &ItemId) -> bool {
    PLAIN_BYTES_MAX < id.as_str().len()
}

/// The leading digits of an effective key.
pub(crate) fn bucket(effective: &EffectiveKey) -> String {
    let digits: String = effective.to_string().chars().take(BUCKET_DIGITS).collect();
    format!("{digits:0<BUCKET_DIGITS$}")
}

/// What the subject of an item says about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItemPlace {
    /// Present if the partition key was too long to stand in the subject.
    pub(crate) effective: Option<EffectiveKey>,
    pub(crate) partition_key: Option<PartitionKey>,
    /// The id, or what it begins with.
    pub(crate) id_begins: Vec<u8>,
    /// Present if it was not too long.
    pub(crate) id: Option<ItemId>,
    /// The last tokens of the subject.
    pub(crate) tokens: String,
}

impl ItemPlace {
    /// Reads the subject of an item; none if it is not one of ours.
    pub(crate) fn parse(subject: &str) -> Option<Self> {
        let mut tokens = subject.rsplit('.');
        let (id_token, key_token) = (tokens.next()?, tokens.next()?);
        let (effective, partition_key) = match key_token.strip_prefix(HASHED) {
            Some(rest) => (Some(rest.split(HASHED).next()?.parse().ok()?), None),
            None => (None, Some(decoded(key_token)?.parse().ok()?)),
        };
        let (id_begins, id) = match id_token.strip_prefix(HASHED) {
            Some(rest) => (ORDERED.decode(rest.split(HASHED).next()?).ok()?, None),
            None => {
                let text = decoded(id_token)?;
                (text.clone().into_bytes(), Some(ItemId::new(&text).ok()?))
            }
        };
        let tokens = format!("{key_token}.{id_token}");
        Some(Self { effective, partition_key, id_begins, id, tokens })
    }
}

/// A name as one token.
pub(crate) fn name_token(name: &str) -> String {
    if PLAIN_BYTES_MAX < name.len() {
        format!("{HASHED}{}", hash(name.as_bytes()))
    } else {
        ORDERED.encode(name)
    }
}

/// Text that may hold anything, for a header.
pub(crate) fn header_text(text: &str) -> String {
    ORDERED.encode(text)
}

/// Bytes that name something, as one short token.
pub(crate) fn short(bytes: &[u8]) -> String {
    ORDERED.encode(bytes)
}

/// The text of a header.
pub(crate) fn decoded(token: &str) -> Option<String> {
    String::from_utf8(ORDERED.decode(token).ok()?).ok()
}

fn id_token(id: &ItemId) -> String {
    let text = id.as_str();
    if !is_hashed(id) {
        return ORDERED.encode(text);
    }
    let begins = ORDERED.encode(&text.as_bytes()[..CUT_BYTES]);
    format!("{HASHED}{begins}{HASHED}{}", hash(text.as_bytes()))
}

fn hash(bytes: &[u8]) -> String {
    ORDERED.encode(Sha256::digest(bytes))
}

/// Base64 whose digits are in the order of their values, so that tokens sort as what they encode.
static ORDERED: GeneralPurpose = GeneralPurpose::new(&DIGITS, NO_PAD);

const DIGITS: Alphabet =
    match Alphabet::new("-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz") {
        Ok(digits) => digits,
        Err(_) => panic!("64 different digits"),
    };

#[cfg(test)]
mod tests {
    use millstream_core::PartitionKeyDefinition;

    use super::*;

    fn subject(key: &str, id: &str) -> String {
        let range = RangeNames::new("m", 7, 0);
        let key = PartitionKey::from(key);
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        let effective = definition.effective(&key).unwrap();
        PartitionNames::new(&range, &effective, &key).item(&ItemId::new(id).unwrap())
    }

    #[test]
    fn any_key_and_id_make_a_subject_of_bounded_length() {
        let long = "ä".repeat(511);
        for (key, id) in
            [("a", "b"), ("", " "), ("a.b", "*"), (">", "a\tb\n"), (&long, &long), ("A", "a")]
        {
            let subject = subject(key, id);
            assert!(subject.len() < 400, "{subject}");
            assert!(!subject.contains([' ', '*', '>', '\t', '\n']), "{subject}");
            assert_eq!(subject.split('.').count(), 10, "{subject}");
            let place = ItemPlace::parse(&subject).unwrap();
            if key.len() < 80 {
                assert_eq!(place.partition_key, Some(PartitionKey::from(key)));
                assert_eq!(place.id.unwrap().as_str(), id);
            } else {
                assert!(place.effective.is_some() && place.id.is_none());
                assert!(long.as_bytes().starts_with(&place.id_begins));
            }
        }
    }

    #[test]
    fn different_keys_and_ids_have_different_subjects() {
        let long = |end: &str| format!("{}{end}", "x".repeat(200));
        assert_ne!(subject("a", &long("1")), subject("a", &long("2")));
        assert_ne!(subject(&long("1"), "a"), subject(&long("2"), "a"));
        assert_ne!(subject("a", "B"), subject("a", "b"));
    }

    #[test]
    fn tokens_are_in_the_order_of_what_they_encode() {
        let mut ids = ["b", "a", "ä", "aa", "10", "9", " ", "a!", "aZ", "a\u{1}"];
        ids.sort_unstable();
        let tokens: Vec<String> = ids.iter().map(|it| ORDERED.encode(it)).collect();
        assert!(tokens.is_sorted(), "{tokens:?}");
    }

    #[test]
    fn foreign_subjects_are_not_read() {
        for subject in ["", "a", "a.b", "~zz~.~", "a.~!~x", "...."] {
            assert_eq!(ItemPlace::parse(subject), None, "{subject}");
        }
    }
}
