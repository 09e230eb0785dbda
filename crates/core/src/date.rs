//! Dates of the Gregorian calendar, as days since 1970-01-01.

/// From 0000-03-01 to 1970-01-01. Years that begin in March have their leap day at the end.
const DAYS_TO_EPOCH: i64 = 719_468;
const DAYS_PER_ERA: i64 = 146_097;

/// A day of the Gregorian calendar between the years 1 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    /// The date, if there is such a day.
    #[must_use]
    pub fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let is_date = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=Self::days_in_month(year, month)).contains(&day);
        is_date.then_some(Self { year, month, day })
    }

    /// The day so many days after 1970-01-01, or before it; none outside of the years 1 to 9999.
    #[must_use]
    pub fn from_days(days: i64) -> Option<Self> {
        let days = days.checked_add(DAYS_TO_EPOCH)?;
        let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
        let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self::new(year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }

    /// Days since 1970-01-01; negative before.
    #[must_use]
    pub fn days(self) -> i64 {
        let Self { year, month, day } = self;
        let year = year - i64::from(month <= 2);
        let from_march = if 2 < month { month - 3 } else { month + 9 };
        let day_of_year = (153 * from_march + 2) / 5 + day - 1;
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
    }

    /// The year.
    #[must_use]
    pub fn year(self) -> i64 {
        self.year
    }

    /// The month, from 1.
    #[must_use]
    pub fn month(self) -> i64 {
        self.month
    }

    /// The day of the month, from 1.
    #[must_use]
    pub fn day(self) -> i64 {
        self.day
    }

    /// How many days a month has; those that are none count as long ones.
    #[must_use]
    pub fn days_in_month(year: i64, month: i64) -> i64 {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        match month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(year: i64, month: i64, day: i64, days: i64) {
        let date = Date::new(year, month, day).unwrap();
        assert_eq!(date.days(), days);
        assert_eq!(Date::from_days(days), Some(date));
    }

    #[test]
    fn a_date_comes_back_from_its_days() {
        check(1970, 1, 1, 0);
        check(1969, 12, 31, -1);
        check(2000, 2, 29, 11_016);
        check(2026, 2, 9, 20_493);
        check(2100, 3, 1, 47_541);
        check(1, 1, 1, -719_162);
        check(9999, 12, 31, 2_932_896);
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = Date::from_days(-719_162).unwrap();
        for days in -719_161..=2_932_896 {
            let date = Date::from_days(days).unwrap();
            assert!(before < date, "{date:?}");
            assert_eq!(date.days(), days);
            before = date;
        }
    }

    #[test]
    fn what_is_no_day_is_none() {
        for (year, month, day) in
            [(0, 1, 1), (10_000, 1, 1), (2026, 0, 1), (2026, 13, 1), (2026, 2, 29), (2100, 2, 29)]
        {
            assert_eq!(Date::new(year, month, day), None, "{year}-{month}-{day}");
        }
        for days in [i64::MIN, -719_163, 2_932_897, i64::MAX] {
            assert_eq!(Date::from_days(days), None, "{days}");
        }
    }
}
