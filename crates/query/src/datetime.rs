//! Dates and times as the language writes them: `2026-02-09T11:07:37.3022907Z`.

use millstream_core::Date;

/// Ticks of 100 nanoseconds.
pub(crate) const TICKS_PER_SECOND: i64 = 10_000_000;
pub(crate) const TICKS_PER_MILLISECOND: i64 = 10_000;
const TICKS_PER_DAY: i64 = 24 * 3600 * TICKS_PER_SECOND;
/// 0001-01-01T00:00:00Z.
const TICKS_MIN: i64 = -62_135_596_800 * TICKS_PER_SECOND;
/// 9999-12-31T23:59:59.9999999Z.
const TICKS_MAX: i64 = 253_402_300_800 * TICKS_PER_SECOND - 1;

/// A moment between the years 1 and 9999, in ticks since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i64);

/// A unit that moments are divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    /// Ticks within the second.
    pub(crate) fraction: i64,
}

impl Moment {
    /// Ticks since 1970; none outside of the years 1 to 9999.
    pub(crate) fn from_ticks(ticks: i64) -> Option<Self> {
        (TICKS_MIN..=TICKS_MAX).contains(&ticks).then_some(Self(ticks))
    }

    pub(crate) fn ticks(self) -> i64 {
        self.0
    }

    /// Whether the text is a date, or a date and a time, with nothing left out but the fraction of
    /// the second: what IS_DATETIME asks for.
    pub(crate) fn is_complete(text: &str) -> bool {
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (length, has_fraction) = match text.split_once('.') {
            Some((whole, fraction)) => (whole.len(), !fraction.is_empty()),
            None => (text.len(), false),
        };
        let is_long = match length {
            10 => !text.contains('.'),
            19 => has_fraction || !text.contains('.'),
            _ => false,
        };
        is_long && Self::parse(text).is_some()
    }

    /// Reads a date, or a date and a time in UTC; what is left out is zero.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (date, Some(time.strip_suffix('Z').unwrap_or(time))),
            None => (text.strip_suffix('Z').unwrap_or(text), None),
        };
        let mut parts = date.split('-');
        let year = digits(parts.next()?, 4)?;
        let month = parts.next().map_or(Some(1), |it| digits(it, 2))?;
        let day = parts.next().map_or(Some(1), |it| digits(it, 2))?;
        if parts.next().is_some() {
            return None;
        }
        let (mut hour, mut minute, mut second, mut fraction) = (0, 0, 0, 0);
        if let Some(time) = time {
            let (whole, part) = time.split_once('.').unwrap_or((time, ""));
            let mut parts = whole.split(':');
            hour = digits(parts.next()?, 2)?;
            minute = parts.next().map_or(Some(0), |it| digits(it, 2))?;
            second = parts.next().map_or(Some(0), |it| digits(it, 2))?;
            if parts.next().is_some() || 7 < part.len() {
                return None;
            }
            fraction = digits(&format!("{part:0<7}"), 7)?;
        }
        Self::from_fields(Fields { year, month, day, hour, minute, second, fraction })
    }

    pub(crate) fn from_fields(fields: Fields) -> Option<Self> {
        let Fields { year, month, day, hour, minute, second, fraction } = fields;
        let date = Date::new(year, month, day)?;
        let is_time = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..TICKS_PER_SECOND).contains(&fraction);
        if !is_time {
            return None;
        }
        let seconds = date.days() * 86_400 + hour * 3600 + minute * 60 + second;
        Self::from_ticks(seconds * TICKS_PER_SECOND + fraction)
    }

    pub(crate) fn fields(self) -> Fields {
        let (days, rest) = (self.0.div_euclid(TICKS_PER_DAY), self.0.rem_euclid(TICKS_PER_DAY));
        let date = Date::from_days(days).expect("a moment is between the years 1 and 9999");
        let seconds = rest / TICKS_PER_SECOND;
        Fields {
            year: date.year(),
            month: date.month(),
            day: date.day(),
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            fraction: rest % TICKS_PER_SECOND,
        }
    }

    /// The moment so many units later, or earlier.
    pub(crate) fn plus(self, unit: Unit, count: i64) -> Option<Self> {
        if let Some(ticks) = unit.ticks() {
            let distance = count.checked_mul(ticks)?;
            return Self::from_ticks(self.0.checked_add(distance)?);
        }
        let fields = self.fields();
        if unit == Unit::Nanosecond {
            return Self::from_ticks(self.0.checked_add(count / 100)?);
        }
        let months = if unit == Unit::Year { count.checked_mul(12)? } else { count };
        let month = (fields.year * 12 + fields.month - 1).checked_add(months)?;
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
        if !(1..=9999).contains(&year) {
            return None;
        }
        let day = fields.day.min(Date::days_in_month(year, month));
        Self::from_fields(Fields { year, month, day, ..fields })
    }

    /// How many boundaries of the unit lie between this moment and a later one; none if they are
    /// too many for an integer.
    pub(crate) fn until(self, unit: Unit, later: Self) -> Option<i64> {
        if let Some(ticks) = unit.ticks() {
            return Some(later.0.div_euclid(ticks) - self.0.div_euclid(ticks));
        }
        let (one, two) = (self.fields(), later.fields());
        if unit == Unit::Nanosecond {
            return (later.0 - self.0).checked_mul(100);
        }
        let years = two.year - one.year;
        Some(if unit == Unit::Year { years } else { years * 12 + two.month - one.month })
    }

    /// One field of the moment.
    pub(crate) fn part(self, unit: Unit) -> i64 {
        let fields = self.fields();
        match unit {
            Unit::Year => fields.year,
            Unit::Month => fields.month,
            Unit::Day => fields.day,
            Unit::Hour => fields.hour,
            Unit::Minute => fields.minute,
            Unit::Second => fields.second,
            Unit::Millisecond => fields.fraction / TICKS_PER_MILLISECOND,
            Unit::Microsecond => fields.fraction / 10,
            Unit::Nanosecond => fields.fraction * 100,
        }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fields { year, month, day, hour, minute, second, fraction } = self.fields();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z")
    }
}

impl Unit {
    /// The unit of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Self::Year,
            "month" | "mm" | "m" => Self::Month,
            "day" | "dd" | "d" => Self::Day,
            "hour" | "hh" => Self::Hour,
            "minute" | "mi" | "n" => Self::Minute,
            "second" | "ss" | "s" => Self::Second,
            "millisecond" | "ms" => Self::Millisecond,
            "microsecond" | "mcs" => Self::Microsecond,
            "nanosecond" | "ns" => Self::Nanosecond,
            _ => return None,
        })
    }

    /// How long it is, if always the same number of ticks.
    pub(crate) fn ticks(self) -> Option<i64> {
        match self {
            Self::Year | Self::Month | Self::Nanosecond => None,
            Self::Day => Some(TICKS_PER_DAY),
            Self::Hour => Some(3600 * TICKS_PER_SECOND),
            Self::Minute => Some(60 * TICKS_PER_SECOND),
            Self::Second => Some(TICKS_PER_SECOND),
            Self::Millisecond => Some(TICKS_PER_MILLISECOND),
            Self::Microsecond => Some(10),
        }
    }
}

fn digits(text: &str, length: usize) -> Option<i64> {
    let is_number = text.len() == length && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}
