//! Regular expressions, and what they cost.

mod translation;

use regex_lite::{Error, Regex, RegexBuilder};

use crate::functions::pattern::translation::Refusal;

/// Largest compiled pattern, and longest text of one.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// A compiled pattern has no fewer bytes.
const PATTERN_BYTES_MIN: usize = 128;
/// Bytes of a compiled pattern that are gone through for a character in the time of one step. These
/// are two states; where alternatives are many, and all of them may still match, a state was
/// measured to take 15 ns, in most patterns a fifth of that.
const STEP_BYTES: usize = 64;
/// Steps to compile, several times, what is one step for a character.
const COMPILE_STEPS: usize = 12;

#[derive(Debug)]
pub(super) enum Pattern {
    Compiled {
        regex: Regex,
        /// For each byte of a text, at worst.
        steps: usize,
    },
    Invalid,
    /// It may mean something in Cosmos DB; why it does not here.
    Unsupported(String),
}

impl Pattern {
    pub(super) fn compile(text: &str) -> Self {
        /// In what the library says of patterns that others understand.
        const UNSUPPORTED: [&str; 4] = ["not supported", "unrecognized", "limit", "too m"];
        if PATTERN_BYTES_MAX < text.len() {
            return Self::Unsupported("it is too long".to_owned());
        }
        let text = match translation::translated(text) {
            Ok(translated) => translated,
            Err(Refusal::Invalid) => return Self::Invalid,
            Err(Refusal::Unsupported(reason)) => return Self::Unsupported(reason.to_owned()),
        };
        match build(&text, PATTERN_BYTES_MAX) {
            Ok(regex) => {
                Self::Compiled { regex, steps: compiled_bytes(&text).div_ceil(STEP_BYTES) }
            }
            Err(error) => {
                let reason = error.to_string();
                match UNSUPPORTED.iter().any(|it| reason.contains(it)) {
                    true => Self::Unsupported(reason),
                    false => Self::Invalid,
                }
            }
        }
    }

    /// What compiling it took, besides reading its text.
    pub(super) fn compile_steps(&self) -> usize {
        match self {
            Self::Compiled { steps, .. } => steps * COMPILE_STEPS,
            Self::Invalid | Self::Unsupported(_) => 0,
        }
    }
}

/// What a pattern takes up when it is compiled, or a quarter more: every state of it, those of
/// `a{0,900}` 900 times. The library only says whether that is more than a limit.
fn compiled_bytes(text: &str) -> usize {
    // No character of a pattern stands for less than a range of a class, which has 8 bytes.
    let mut bytes = PATTERN_BYTES_MIN.max(text.len() * 8);
    while bytes < PATTERN_BYTES_MAX && build(text, bytes).is_err() {
        bytes += bytes / 4;
    }
    bytes.min(PATTERN_BYTES_MAX)
}

fn build(text: &str, bytes_max: usize) -> Result<Regex, Error> {
    RegexBuilder::new(text).size_limit(bytes_max).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn steps(text: &str) -> usize {
        let pattern = Pattern::compile(text);
        let Pattern::Compiled { steps, .. } = pattern else { panic!("{text}: {pattern:?}") };
        steps
    }

    #[test]
    fn a_repetition_costs_what_it_is_written_out() {
        assert!(steps("a") <= 3);
        assert!(steps(r"^[a-z]+@[a-z]+\.com$") <= 12);
        for (short, long) in [
            ("a{900}", "a".repeat(900)),
            ("(?:a{30}){30}", "a".repeat(900)),
            ("(?:a?){200}", "a?".repeat(200)),
            ("[a-cx]{100}", "[a-cx]".repeat(100)),
        ] {
            let (short, long) = (steps(short), steps(&long));
            assert!(short <= long && long <= short + short / 4 + 1, "{short} {long}");
        }
        assert!(400 < steps("a{900}"));
        assert!(900 < steps("a{0,900}c"));
    }

    #[test]
    fn what_is_too_large_is_not_supported() {
        for text in ["a{5000}", "(?:a{100}){100}", &"a".repeat(100_000)] {
            let pattern = Pattern::compile(text);
            assert!(matches!(pattern, Pattern::Unsupported(_)), "{pattern:?}");
        }
        assert!(matches!(Pattern::compile("(a"), Pattern::Invalid));
    }
}
