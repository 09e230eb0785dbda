//! Times as text, such as `2026-02-09T11:07:37.302Z`.

use crate::{Date, Timestamp};

const MILLIS_PER_DAY: u64 = 24 * 3600 * 1000;
/// 9999-12-31T23:59:59.999Z; the format has four digits for the year.
const MILLIS_MAX: u64 = 253_402_300_799_999;

impl Timestamp {
    /// The time in UTC as RFC 3339 with milliseconds: `2026-02-09T11:07:37.302Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        format(self)
    }

    /// Reads a time since 1970 as RFC 3339, in any zone; digits beyond milliseconds are dropped.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        parse(text)
    }
}

fn format(time: Timestamp) -> String {
    let millis = time.as_millis().min(MILLIS_MAX);
    let days = i64::try_from(millis / MILLIS_PER_DAY).ok();
    let date = days.and_then(Date::from_days).expect("it is within four digits of a year");
    let (year, month, day) = (date.year(), date.month(), date.day());
    let rest = millis % MILLIS_PER_DAY;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn parse(text: &str) -> Option<Timestamp> {
    let year = number(text.get(0..4)?)?;
    let month = separated(text, 4, "-")?;
    let day = separated(text, 7, "-")?;
    let date = Date::new(year.into(), month.into(), day.into())?;
    let days = u64::try_from(date.days()).ok()?;
    let hour = separated(text, 10, "T")?;
    let minute = separated(text, 13, ":")?;
    let second = separated(text, 16, ":")?;
    // A leap second is the last second of its minute.
    if 23 < hour || 59 < minute || 60 < second {
        return None;
    }
    let (milli, zone) = fraction(text.get(19..)?)?;
    let seconds = u64::from(hour * 3600 + minute * 60 + second.min(59));
    let millis = days * MILLIS_PER_DAY + seconds * 1000 + u64::from(milli);
    let (ahead, offset) = offset(zone)?;
    let millis = if ahead { millis.checked_sub(offset)? } else { millis + offset };
    Some(Timestamp::from_millis(millis))
}

fn separated(text: &str, at: usize, separator: &str) -> Option<u32> {
    if !text.get(at..at + 1)?.eq_ignore_ascii_case(separator) {
        return None;
    }
    number(text.get(at + 1..at + 3)?)
}

fn number(text: &str) -> Option<u32> {
    if !text.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The milliseconds, and what follows them.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = digits.find(|it: char| !it.is_ascii_digit())?;
    if end == 0 {
        return None;
    }
    let three: String = digits[..end].chars().chain("00".chars()).take(3).collect();
    Some((number(&three)?, &digits[end..]))
}

/// Whether the zone is ahead of UTC, and by how many milliseconds it differs.
fn offset(zone: &str) -> Option<(bool, u64)> {
    if zone.eq_ignore_ascii_case("Z") {
        return Some((true, 0));
    }
    let ahead = zone.starts_with('+');
    let hours = separated(zone, 0, if ahead { "+" } else { "-" })?;
    let minutes = separated(zone, 3, ":")?;
    if zone.len() != 6 || 23 < hours || 59 < minutes {
        return None;
    }
    Some((ahead, u64::from(hours * 60 + minutes) * 60_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(millis: u64, text: &str) {
        let time = Timestamp::from_millis(millis);
        assert_eq!(format(time), text);
        assert_eq!(parse(text), Some(time));
    }

    #[test]
    fn a_time_comes_back_from_its_text() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z");
        check(1_770_635_257_302, "2026-02-09T11:07:37.302Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(MILLIS_MAX, "9999-12-31T23:59:59.999Z");
        assert_eq!(format(Timestamp::from_millis(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn other_spellings_of_a_time_are_understood() {
        for text in [
            "2026-02-09T13:07:37.3022907+02:00",
            "2026-02-09t11:07:37.302z",
            "2026-02-09T03:37:37.302-07:30",
        ] {
            assert_eq!(parse(text), Some(Timestamp::from_millis(1_770_635_257_302)), "{text}");
        }
        let whole = Timestamp::from_millis(1_770_635_257_000);
        assert_eq!(parse("2026-02-09T11:07:37Z"), Some(whole));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-02-09",
            "2026-02-09T11:07:37",
            "2026-13-09T11:07:37Z",
            "2026-02-00T11:07:37Z",
            "2026-02-29T11:07:37Z",
            "2026-02-09T24:07:37Z",
            "2026-02-09T11:07:37.Z",
            "2026-02-09T11:07:37+2:00",
            "2026-02-09T11:07:37Zulu",
            "+026-02-09T11:07:37Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2026-02-09T11:07:ä7Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
