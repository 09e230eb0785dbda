//! Times as text, such as `2026-02-09T11:07:37.302Z`.

use crate::Timestamp;

const MILLIS_PER_DAY: u64 = 24 * 3600 * 1000;
/// 9999-12-31T23:59:59.999Z; the format has four digits for the year.
const MILLIS_MAX: u64 = 253_402_300_799_999;
/// From 0000-03-01 to 1970-01-01. Years that begin in March have their leap day at the end.
const DAYS_TO_EPOCH: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

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
    let (year, month, day) = civil(millis / MILLIS_PER_DAY);
    let rest = millis % MILLIS_PER_DAY;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn parse(text: &str) -> Option<Timestamp> {
    let year = number(text.get(0..4)?)?;
    let month = separated(text, 4, "-")?;
    let day = separated(text, 7, "-")?;
    let hour = separated(text, 10, "T")?;
    let minute = separated(text, 13, ":")?;
    let second = separated(text, 16, ":")?;
    let is_date = 1970 <= year && (1..=12).contains(&month) && (1..=31).contains(&day);
    // A leap second is the last second of its minute.
    if !is_date || 23 < hour || 59 < minute || 60 < second {
        return None;
    }
    let (milli, zone) = fraction(text.get(19..)?)?;
    let seconds = hour * 3600 + minute * 60 + second.min(59);
    let millis = days(year, month, day) * MILLIS_PER_DAY + seconds * 1000 + milli;
    let (ahead, offset) = offset(zone)?;
    let millis = if ahead { millis.checked_sub(offset)? } else { millis + offset };
    Some(Timestamp::from_millis(millis))
}

fn separated(text: &str, at: usize, separator: &str) -> Option<u64> {
    if !text.get(at..at + 1)?.eq_ignore_ascii_case(separator) {
        return None;
    }
    number(text.get(at + 1..at + 3)?)
}

fn number(text: &str) -> Option<u64> {
    if !text.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The milliseconds, and what follows them.
fn fraction(text: &str) -> Option<(u64, &str)> {
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
    Some((ahead, (hours * 60 + minutes) * 60_000))
}

/// Year, month and day of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let from_march = if 2 < month { month - 3 } else { month + 9 };
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    let year_of_era = year % 400;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year / 400 * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
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
