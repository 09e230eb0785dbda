//! Session tokens: what a client has seen of each range, `0:-1#42`, several joined by commas.

use std::collections::BTreeMap;
use std::fmt;

use millstream_core::{Lsn, RangeId};

use crate::refusal::Refusal;

/// Longest token that is looked at; a thousand ranges fit.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Between range and commit: no version is told apart from others.
const MARK: &str = ":-1#";

/// The token of one range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionToken(pub(crate) RangeId, pub(crate) Lsn);

impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{MARK}{}", self.0.0, self.1)
    }
}

/// The token of one range, from the digits of its numbers.
pub(crate) fn parts<'a>(range: &'a [u8], lsn: &'a [u8]) -> [&'a [u8]; 3] {
    [range, MARK.as_bytes(), lsn]
}

/// The token of several ranges.
pub(crate) fn tokens(ranges: impl IntoIterator<Item = (RangeId, Lsn)>) -> String {
    let tokens = ranges.into_iter().map(|(range, lsn)| SessionToken(range, lsn).to_string());
    tokens.collect::<Vec<String>>().join(",")
}

/// Reads what a client sends: the newest commit it has seen of each range.
///
/// Both forms are known: `0:-1#42` and, with versions and regions, `0:1#42#3=7`.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<RangeId, Lsn>, Refusal> {
    let refused = || Refusal::bad_request("the session token of the request is not one of ours");
    if TOKEN_BYTES_MAX < text.len() {
        return Err(refused());
    }
    let mut seen = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let (range, progress) = part.split_once(':').ok_or_else(refused)?;
        let range = RangeId(range.parse().map_err(|_| refused())?);
        let mut numbers = progress.split('#');
        let first = numbers.next().unwrap_or_default();
        first.parse::<i64>().map_err(|_| refused())?;
        // The oldest form has nothing but the number of the commit.
        let lsn = numbers.next().unwrap_or(first);
        let lsn = Lsn::new(lsn.parse().map_err(|_| refused())?);
        let newest = seen.entry(range).or_insert(lsn);
        *newest = lsn.max(*newest);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(u32, u64)]) {
        let expected = expected.iter().map(|(range, lsn)| (RangeId(*range), Lsn::new(*lsn)));
        assert_eq!(parse(text).unwrap(), expected.collect());
    }

    #[test]
    fn both_forms_are_read() {
        check("0:-1#42", &[(0, 42)]);
        check("0:1#42#3=7,2:-1#5", &[(0, 42), (2, 5)]);
        check("0:17", &[(0, 17)]);
        check("0:-1#4,0:-1#9", &[(0, 9)]);
        check("", &[]);
        check(&tokens([(RangeId(1), Lsn::new(2)), (RangeId(3), Lsn::new(4))]), &[(1, 2), (3, 4)]);
    }

    #[test]
    fn garbage_is_refused() {
        for text in ["x", "0", "0:", "0:x#1", "a:-1#2", "0:-1#-4", "0:-1#99999999999999999999"] {
            assert_eq!(parse(text).unwrap_err().status.as_u16(), 400, "{text}");
        }
    }
}
