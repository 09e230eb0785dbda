//! The patterns of RegexMatch, which are those of PCRE, in the words of the library that runs them.
//!
//! Both read most of a pattern alike. What they read differently is said in another way, or
//! refused; what neither can read goes through, and the library says so.

/// The end of the text, or a line break that ends it. Without look-ahead the line break has to be
/// taken, so that nothing behind this can match it.
const END: &str = r"(?:\n?\z)";
/// What `\v` stands for.
const VERTICAL_SPACE: &str = r"\n\x0B\x0C\r\x{85}\x{2028}\x{2029}";

/// Why there is no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no pattern of PCRE.
    Invalid,
    /// It is one; what of it cannot be said.
    Unsupported(&'static str),
}

/// A pattern that begins with its modifiers, as in `(?i)pattern`.
pub(super) fn translated(pattern: &str) -> Result<String, Refusal> {
    let translation = Translation {
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        flags: Flags::default(),
        outer: Vec::new(),
        last: Last::Nothing,
    };
    translation.run()
}

struct Translation<'p> {
    rest: &'p str,
    out: String,
    flags: Flags,
    /// Those around each group that is open.
    outer: Vec<Flags>,
    last: Last,
}

/// The modifiers that change what is read.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    is_multiline: bool,
    is_case_ignored: bool,
    is_extended: bool,
}

/// What stands before the place at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Nothing that could be repeated.
    Nothing,
    Item,
    Quantifier,
}

/// What a backslash makes of what follows.
enum Escaped {
    Character(char),
    /// Members of a class.
    Members(&'static str),
    /// What it means is left to the library.
    Letter(char),
}

/// Where a range may be within a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    None,
    /// Behind what could be its first character.
    Begun,
    /// Behind its hyphen.
    Open,
}

impl Translation<'_> {
    fn run(mut self) -> Result<String, Refusal> {
        while let Some(character) = self.next() {
            match character {
                ' ' | '\t'..='\r' if self.flags.is_extended => (),
                '#' if self.flags.is_extended => {
                    let end = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.rest = &self.rest[end..];
                }
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.open()?,
                ')' => {
                    self.flags = self.outer.pop().unwrap_or_default();
                    self.push(")", Last::Item);
                }
                '|' => self.push("|", Last::Nothing),
                '^' => self.push("^", Last::Nothing),
                '$' if self.flags.is_multiline => self.push("$", Last::Nothing),
                '$' => self.push(END, Last::Nothing),
                '.' => self.push(".", Last::Item),
                '*' => self.quantifier("*")?,
                '+' => self.quantifier("+")?,
                '?' => self.quantifier("?")?,
                '{' => match counts(self.rest) {
                    Some(counts) => {
                        self.rest = &self.rest[counts.len() + 1..];
                        self.quantifier(&format!("{{{counts}}}"))?;
                    }
                    None => self.literal('{')?,
                },
                other => self.literal(other)?,
            }
        }
        Ok(self.out)
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next();
        self.rest = characters.as_str();
        next
    }

    fn eat(&mut self, prefix: char) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn push(&mut self, text: &str, last: Last) {
        self.out.push_str(text);
        self.last = last;
    }

    fn literal(&mut self, character: char) -> Result<(), Refusal> {
        self.character(character)?;
        self.last = Last::Item;
        Ok(())
    }

    /// A character that stands for itself, within a class or not.
    fn character(&mut self, character: char) -> Result<(), Refusal> {
        const SPECIAL: &str = r"\.+*?()|[]{}^$#&-~";
        if self.flags.is_case_ignored && !character.is_ascii() && has_case(character) {
            return Err(Refusal::Unsupported("to ignore case is not supported beyond ASCII"));
        }
        if SPECIAL.contains(character) {
            self.out.push('\\');
        }
        self.out.push(character);
        Ok(())
    }

    fn quantifier(&mut self, text: &str) -> Result<(), Refusal> {
        match self.last {
            Last::Item => (),
            Last::Quantifier if text == "+" => {
                return Err(Refusal::Unsupported("possessive quantifiers are not supported"));
            }
            Last::Nothing | Last::Quantifier => return Err(Refusal::Invalid),
        }
        self.push(text, Last::Quantifier);
        if self.eat('?') {
            self.push("?", Last::Nothing);
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Refusal> {
        match self.escaped()? {
            Escaped::Character(character) => self.literal(character)?,
            Escaped::Members(members) => self.push(&format!("[{members}]"), Last::Item),
            Escaped::Letter('Z') => self.push(END, Last::Nothing),
            Escaped::Letter(letter) => {
                let is_place = matches!(letter, 'A' | 'B' | 'G' | 'b' | 'z');
                let last = if is_place { Last::Nothing } else { Last::Item };
                self.push(&format!("\\{letter}"), last);
            }
        }
        Ok(())
    }

    fn escaped(&mut self) -> Result<Escaped, Refusal> {
        Ok(match self.next() {
            None | Some('L' | 'U' | 'l' | 'u') => return Err(Refusal::Invalid),
            // What follows would not be a pattern.
            Some('Q' | 'E' | 'c') => {
                return Err(Refusal::Unsupported("\\Q, \\E and \\c are not supported"));
            }
            Some('e') => Escaped::Character('\x1b'),
            Some('v') => Escaped::Members(VERTICAL_SPACE),
            Some('x') => Escaped::Character(self.hexadecimal()?),
            Some(letter) if letter.is_ascii_alphanumeric() => Escaped::Letter(letter),
            Some(other) => Escaped::Character(other),
        })
    }

    /// The character of `\x41` or `\x{41}`.
    fn hexadecimal(&mut self) -> Result<char, Refusal> {
        let digits = match self.rest.strip_prefix('{') {
            Some(rest) => {
                let (digits, rest) = rest.split_once('}').ok_or(Refusal::Invalid)?;
                self.rest = rest;
                digits
            }
            None => {
                let count = self.rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
                let (digits, rest) = self.rest.split_at(count);
                self.rest = rest;
                // Without digits it is the first character of all.
                if count == 0 { "0" } else { digits }
            }
        };
        let code = u32::from_str_radix(digits, 16).ok();
        code.and_then(char::from_u32).ok_or(Refusal::Invalid)
    }

    /// What begins a group, or modifiers that hold until the end of the group around them.
    fn open(&mut self) -> Result<(), Refusal> {
        if self.rest.starts_with('*') {
            return Err(Refusal::Unsupported("verbs are not supported"));
        }
        self.outer.push(self.flags);
        let Some(rest) = self.rest.strip_prefix('?') else {
            self.push("(", Last::Nothing);
            return Ok(());
        };
        let is_modifier = |it: char| it.is_ascii_alphabetic() || it == '-';
        let length = rest.find(|it| !is_modifier(it)).unwrap_or(rest.len());
        let (modifiers, rest) = rest.split_at(length);
        let Some(end @ (':' | ')')) = rest.chars().next() else { return self.open_named() };
        self.rest = &rest[1..];
        let kept = self.modified(modifiers)?;
        if end == ')' {
            self.outer.pop();
        }
        match (end, kept.as_str()) {
            (')', "") => self.last = Last::Nothing,
            (_, kept) => self.push(&format!("(?{kept}{end}"), Last::Nothing),
        }
        Ok(())
    }

    /// What begins a group with a name. Of other kinds nothing may be read on, as their text need
    /// not be a pattern.
    fn open_named(&mut self) -> Result<(), Refusal> {
        self.eat('?');
        let begins_with = |it: &&str| self.rest.starts_with(*it);
        if ["=", "!", "<=", "<!"].iter().any(begins_with) {
            return Err(Refusal::Unsupported("look-around is not supported"));
        }
        if !["<", "P<"].iter().any(begins_with) {
            // Modifiers that nothing ends, if there is nothing else.
            return Err(match self.rest.bytes().all(|it| it.is_ascii_alphabetic() || it == b'-') {
                true => Refusal::Invalid,
                false => Refusal::Unsupported("this kind of group is not supported"),
            });
        }
        self.push("(?", Last::Nothing);
        Ok(())
    }

    /// Sets modifiers; those that the library has to know.
    fn modified(&mut self, modifiers: &str) -> Result<String, Refusal> {
        let (mut kept, mut is_set) = (String::new(), true);
        for modifier in modifiers.chars() {
            match modifier {
                '-' if is_set => is_set = false,
                '-' | 'u' => return Err(Refusal::Invalid),
                'R' => return Err(Refusal::Unsupported("recursion is not supported")),
                'i' => self.flags.is_case_ignored = is_set,
                'm' => self.flags.is_multiline = is_set,
                'x' => self.flags.is_extended = is_set,
                _ => (),
            }
            // Space that does not count has been left out already.
            if modifier != 'x' {
                kept.push(modifier);
            }
        }
        let length = kept.trim_end_matches('-').len();
        kept.truncate(length);
        Ok(kept)
    }

    fn class(&mut self) -> Result<(), Refusal> {
        self.push("[", Last::Item);
        if self.eat('^') {
            self.out.push('^');
        }
        let mut range = Range::None;
        let mut is_first = true;
        loop {
            range = match self.next().ok_or(Refusal::Invalid)? {
                ']' if !is_first => break,
                '-' if range == Range::Begun && !self.rest.starts_with(']') => {
                    self.out.push('-');
                    Range::Open
                }
                '[' => self.bracket(range)?,
                '\\' => self.escaped_member(range)?,
                other => {
                    self.character(other)?;
                    range.behind_character()
                }
            };
            is_first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// What an opening bracket within a class begins.
    fn bracket(&mut self, range: Range) -> Result<Range, Refusal> {
        if let Some(name) = posix_name(self.rest) {
            self.out.push_str(&format!("[{name}:]"));
            self.rest = &self.rest[name.len() + 2..];
            return Ok(Range::None);
        }
        self.character('[')?;
        Ok(range.behind_character())
    }

    fn escaped_member(&mut self, range: Range) -> Result<Range, Refusal> {
        match self.escaped()? {
            Escaped::Members(members) => {
                self.out.push_str(members);
                return Ok(Range::None);
            }
            Escaped::Character(character) => self.character(character)?,
            // Among characters it is the backspace.
            Escaped::Letter('b') => self.out.push_str(r"\x08"),
            Escaped::Letter(letter) => {
                self.out.push('\\');
                self.out.push(letter);
            }
        }
        Ok(range.behind_character())
    }
}

impl Range {
    fn behind_character(self) -> Self {
        if self == Self::Open { Self::None } else { Self::Begun }
    }
}

/// What stands in the braces of a quantifier, if the text goes on with that.
fn counts(rest: &str) -> Option<&str> {
    let length = rest.find(|it: char| !it.is_ascii_digit() && it != ',')?;
    let (counts, rest) = rest.split_at(length);
    let is_counts = counts.starts_with(|it: char| it.is_ascii_digit())
        && counts.matches(',').count() <= 1
        && rest.starts_with('}');
    is_counts.then_some(counts)
}

/// The colon and the name of a class such as `[:alpha:]`, if the text goes on with that.
fn posix_name(rest: &str) -> Option<&str> {
    let name = rest.strip_prefix(':')?;
    let end = name.find(|it: char| !it.is_ascii_lowercase() && it != '^')?;
    name[end..].starts_with(":]").then(|| &rest[..=end])
}

fn has_case(character: char) -> bool {
    character.to_lowercase().ne([character]) || character.to_uppercase().ne([character])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, expected: &str) {
        assert_eq!(translated(pattern).as_deref(), Ok(expected), "{pattern}");
    }

    #[test]
    fn any_text_is_translated_or_refused() {
        let text = r"[\\\[\](){}|^$?*+:<>=!xiRPmZb#, 01aé\n-]{0,16}";
        proptest::proptest!(|(pattern in text)| {
            if let Ok(translated) = translated(&pattern) {
                let _ = regex_lite::Regex::new(&translated);
            }
        });
    }

    #[test]
    fn what_both_read_alike_stays() {
        for pattern in [
            "(?m)^[a-z]+(foo|ba.)*?$",
            r"\d{2,3}\s\w\b\.",
            r"[^[:alpha:]\d]",
            "(?<n>a)(?:b){3}",
            "(?i-s:a)",
        ] {
            check(pattern, pattern);
        }
    }

    #[test]
    fn what_they_read_differently_is_said_in_another_way() {
        check("a$", r"a(?:\n?\z)");
        check("(?m:a$)$", r"(?m:a$)(?:\n?\z)");
        check("(?x)a b#c\n[ d]", "ab[ d]");
        check("(?xi-x)a b", r"(?i)a b");
        check("x{a}{2}", r"x\{a\}{2}");
        check("[a-c-e[&&]", r"[a-c\-e\[\&\&]");
        check(r"\<\x41[\b]", r"<A[\x08]");
    }
}
