use std::collections::BTreeMap;

/// Longest address of electronic mail, as SMTP takes it.
const EMAIL_CHARS_MAX: usize = 254;

/// What is wrong with a request, by the names its fields have in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("could not accept the fields {}", self.names())]
pub struct Invalid {
    fields: BTreeMap<&'static str, Vec<String>>,
}

impl Invalid {
    /// One field that is wrong; the sentence says what it must be.
    pub fn field(name: &'static str, sentence: impl Into<String>) -> Self {
        Self { fields: BTreeMap::from([(name, vec![sentence.into()])]) }
    }

    /// The sentences of each field.
    #[must_use]
    pub fn fields(&self) -> &BTreeMap<&'static str, Vec<String>> {
        &self.fields
    }

    fn names(&self) -> String {
        self.fields.keys().copied().collect::<Vec<_>>().join(", ")
    }
}

/// Looks at every field, so that a caller hears of all mistakes at once.
#[derive(Debug, Default)]
pub(crate) struct Check {
    invalid: Invalid,
}

impl Check {
    /// Text that must be there; spaces at its ends are dropped.
    pub(crate) fn required(&mut self, field: &'static str, text: &str, chars_max: usize) -> String {
        let text = text.trim();
        if text.is_empty() {
            self.refuse(field, "must not be empty");
        }
        self.line(field, text, chars_max);
        text.to_owned()
    }

    /// Text that may be missing; blank text is none.
    pub(crate) fn optional(
        &mut self,
        field: &'static str,
        text: Option<&str>,
        chars_max: usize,
    ) -> Option<String> {
        let text = present(text)?;
        self.line(field, text, chars_max);
        Some(text.to_owned())
    }

    /// Text that may be missing and may have several lines.
    pub(crate) fn optional_lines(
        &mut self,
        field: &'static str,
        text: Option<&str>,
        chars_max: usize,
    ) -> Option<String> {
        let text = present(text)?;
        let is_line_break = |it: char| matches!(it, '\n' | '\r' | '\t');
        self.size(field, text, chars_max);
        self.controls(field, text.chars().filter(|it| !is_line_break(*it)));
        Some(text.to_owned())
    }

    /// An address of electronic mail that may be missing.
    ///
    /// Only what no address can do without is asked for: the one test of an address is to write to
    /// it.
    pub(crate) fn email(&mut self, field: &'static str, text: Option<&str>) -> Option<String> {
        let text = present(text)?;
        self.size(field, text, EMAIL_CHARS_MAX);
        let mut parts = text.split('@');
        let is_address = match (parts.next(), parts.next(), parts.next()) {
            (Some(user), Some(host), None) => !user.is_empty() && !host.is_empty(),
            _ => false,
        };
        if !is_address || text.chars().any(|it| it.is_whitespace() || it.is_control()) {
            self.refuse(field, "must be an address such as ada@example.com");
        }
        Some(text.to_owned())
    }

    /// The value, if nothing was wrong.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.invalid.fields.is_empty() { Ok(value) } else { Err(self.invalid) }
    }

    fn line(&mut self, field: &'static str, text: &str, chars_max: usize) {
        self.size(field, text, chars_max);
        self.controls(field, text.chars());
    }

    fn size(&mut self, field: &'static str, text: &str, chars_max: usize) {
        if chars_max < text.chars().count() {
            self.refuse(field, format!("must have at most {chars_max} characters"));
        }
    }

    fn controls(&mut self, field: &'static str, mut chars: impl Iterator<Item = char>) {
        if chars.any(char::is_control) {
            self.refuse(field, "must not have control characters");
        }
    }

    fn refuse(&mut self, field: &'static str, sentence: impl Into<String>) {
        self.invalid.fields.entry(field).or_default().push(sentence.into());
    }
}

fn present(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str], look: impl Fn(&mut Check, &str)) {
        let mut check = Check::default();
        look(&mut check, text);
        let found = check.invalid.fields.remove("field").unwrap_or_default();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn text_that_must_be_there_has_a_size() {
        let look = |check: &mut Check, text: &str| {
            check.required("field", text, 5);
        };
        check("Ada", &[], look);
        check(" äöüßé ", &[], look);
        check("", &["must not be empty"], look);
        check(" \t ", &["must not be empty"], look);
        check("Adelaide", &["must have at most 5 characters"], look);
        check("A\u{7}", &["must not have control characters"], look);
        check("A\nb", &["must not have control characters"], look);
    }

    #[test]
    fn text_that_may_be_missing_is_none_when_blank() {
        let mut check = Check::default();
        assert_eq!(check.optional("field", None, 3), None);
        assert_eq!(check.optional("field", Some("  "), 3), None);
        assert_eq!(check.optional_lines("field", Some(" a\nb "), 3).as_deref(), Some("a\nb"));
        assert!(check.finish(()).is_ok());
    }

    #[test]
    fn lines_may_break_but_not_ring() {
        let look = |check: &mut Check, text: &str| {
            check.optional_lines("field", Some(text), 5);
        };
        check("a\r\n\tb", &[], look);
        check("a\u{7}", &["must not have control characters"], look);
        check("123456", &["must have at most 5 characters"], look);
    }

    #[test]
    fn an_address_has_two_sides() {
        let look = |check: &mut Check, text: &str| {
            check.email("field", Some(text));
        };
        check("ada@example.com", &[], look);
        check("", &[], look);
        for wrong in ["ada", "@example.com", "ada@", "a@b@c", "a da@example.com", "@"] {
            check(wrong, &["must be an address such as ada@example.com"], look);
        }
        let long = format!("{}@example.com", "a".repeat(250));
        check(&long, &["must have at most 254 characters"], look);
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let mut check = Check::default();
        check.required("lastName", "", 5);
        check.required("firstName", "", 5);
        let invalid = check.finish(()).unwrap_err();
        assert_eq!(invalid.to_string(), "could not accept the fields firstName, lastName");
        assert_eq!(Invalid::field("a", "b").fields()["a"], ["b"]);
    }
}
