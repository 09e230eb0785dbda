//! What a number of a text is worth, to the last digit.

/// A number as it is spelled, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// How many zeros the digits begin with.
    zeros: usize,
    /// How many digits follow those, up to the last one that is not zero.
    length: usize,
    /// The digits stand behind "0." and the whole is multiplied by ten to this power.
    power: i64,
}

impl<'a> Decimal<'a> {
    /// Takes a number of a checked text; none if its exponent is beyond 18 digits or so.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut number = Self { is_negative, whole, fraction, zeros: 0, length: 0, power: 0 };
        let count = whole.len() + fraction.len();
        let is_zero = |it: &u8| *it == b'0';
        number.zeros = number.all_digits().take_while(is_zero).count();
        if number.zeros == count {
            // All spellings of zero are one number, whatever their sign and exponent.
            number.is_negative = false;
            return Some(number);
        }
        number.length =
            count - number.zeros - number.all_digits().rev().take_while(is_zero).count();
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(number.zeros).ok()?;
        number.power = exponent.parse::<i64>().ok()?.checked_add(point)?;
        Some(number)
    }

    fn all_digits(self) -> impl DoubleEndedIterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    fn digits(self) -> impl Iterator<Item = u8> {
        self.all_digits().skip(self.zeros).take(self.length)
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.is_negative, self.power, self.length)
            == (other.is_negative, other.power, other.length)
            && self.digits().eq(other.digits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &str, other: &str, expected: bool) {
        let is_same = |one, other| Decimal::new(one).unwrap() == Decimal::new(other).unwrap();
        assert_eq!(is_same(one, other), expected, "{one} {other}");
        assert_eq!(is_same(other, one), expected, "{other} {one}");
    }

    #[test]
    fn spellings_of_one_number_are_the_same() {
        for one in ["10", "10.0", "1e1", "1E+1", "100e-1", "0.1e2", "0.010e003"] {
            check(one, "10", true);
            check(one, "-10", false);
            check(one, "11", false);
            check(one, "1", false);
        }
        for zero in ["-0", "0.000", "0e7", "-0.0E-99999999999999999999999"] {
            check(zero, "0", true);
            check(zero, "1", false);
        }
    }

    #[test]
    fn no_digit_is_lost() {
        check("9007199254740993", "9007199254740992", false);
        check("18446744073709551615", "18446744073709551616", false);
        check("18446744073709551615", "1.8446744073709551615e19", true);
        check("0.30000000000000004", "0.3", false);
        check("1e400", "10e399", true);
        check("1e400", "1e401", false);
    }

    #[test]
    fn an_exponent_beyond_all_measure_is_no_decimal() {
        assert!(Decimal::new("1e99999999999999999999").is_none());
        assert!(Decimal::new("12e9223372036854775807").is_none());
    }
}
