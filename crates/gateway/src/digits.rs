//! Numbers as text, without the machinery of formatting: every answer has about eight.

/// Digits of a number, most of what an answer's headers are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits {
    text: [u8; DIGITS_MAX],
    begin: usize,
}

/// As many as the largest number has.
const DIGITS_MAX: usize = 20;

impl Digits {
    /// As many digits as it takes.
    pub(crate) fn of(number: u64) -> Self {
        Self::padded(number, 1)
    }

    /// At least `count` digits, zeros first.
    pub(crate) fn padded(mut number: u64, count: usize) -> Self {
        let mut digits = Self { text: [b'0'; DIGITS_MAX], begin: DIGITS_MAX };
        while 0 < number {
            digits.begin -= 1;
            digits.text[digits.begin] +=
                u8::try_from(number % 10).expect("a digit is less than ten");
            number /= 10;
        }
        digits.begin = digits.begin.min(DIGITS_MAX.saturating_sub(count));
        digits
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[self.begin..]
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("digits are text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(Digits::of(number).as_str(), number.to_string());
        }
        assert_eq!(Digits::padded(7, 3).as_str(), "007");
        assert_eq!(Digits::padded(1234, 3).as_str(), "1234");
    }
}
