use std::collections::BTreeMap;

/// A pattern of `LIKE`, ready to be compared with any number of texts.
///
/// It is an automaton whose state is a set of bits: bit `i` says that the text so far may end
/// before element `i` of the pattern. One step per character moves all of them at once, so the time
/// is that of the text times the words of the set, whatever the pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LikePattern {
    /// How many characters the pattern has besides `%`.
    elements: usize,
    /// Elements that a character passes, for each character that is in the pattern.
    passes: BTreeMap<char, Bits>,
    /// Elements that every character passes: `_`.
    passes_any: Bits,
    /// Places where any text may stand: `%`.
    stays: Bits,
}

type Bits = Vec<u64>;

/// One character of a pattern.
#[derive(Clone, Copy)]
enum Element {
    Is(char),
    Any,
}

const WORD_BITS: usize = 64;

impl LikePattern {
    /// Longest pattern, in characters: as long as an expression.
    pub(crate) const CHARACTERS_MAX: usize = 1024;

    /// Reads a pattern; or says what is wrong with it.
    pub(crate) fn new(pattern: &str, escape: Option<char>) -> Result<Self, &'static str> {
        if pattern.chars().nth(Self::CHARACTERS_MAX).is_some() {
            return Err("a pattern of at most 1024 characters");
        }
        let mut elements = Vec::new();
        let mut any_text_before = Vec::new();
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            if Some(character) == escape {
                let escaped =
                    characters.next().ok_or("a pattern that does not end in its escape")?;
                elements.push(Element::Is(escaped));
            } else if character == '%' {
                any_text_before.push(elements.len());
            } else if character == '_' {
                elements.push(Element::Any);
            } else {
                elements.push(Element::Is(character));
            }
        }
        // One bit more than elements: the end of the pattern.
        let none: Bits = vec![0; elements.len() / WORD_BITS + 1];
        let (mut stays, mut passes_any) = (none.clone(), none);
        any_text_before.into_iter().for_each(|place| set(&mut stays, place));
        for (place, element) in elements.iter().enumerate() {
            if matches!(element, Element::Any) {
                set(&mut passes_any, place);
            }
        }
        let mut passes = BTreeMap::new();
        for (place, element) in elements.iter().enumerate() {
            if let Element::Is(character) = element {
                set(passes.entry(*character).or_insert_with(|| passes_any.clone()), place);
            }
        }
        Ok(Self { elements: elements.len(), passes, passes_any, stays })
    }

    /// Whether the whole text is like the pattern.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut state: Bits = vec![0; self.stays.len()];
        set(&mut state, 0);
        for character in text.chars() {
            // Nothing that follows can change these.
            if has(&state, self.elements) && has(&self.stays, self.elements) {
                return true;
            }
            if state.iter().all(|word| *word == 0) {
                return false;
            }
            self.step(&mut state, character);
        }
        has(&state, self.elements)
    }

    fn step(&self, state: &mut Bits, character: char) {
        let passes = self.passes.get(&character).unwrap_or(&self.passes_any);
        let mut carry = 0;
        for ((word, passes), stays) in state.iter_mut().zip(passes).zip(&self.stays) {
            let passed = *word & passes;
            *word = (passed << 1) | carry | (*word & stays);
            carry = passed >> (WORD_BITS - 1);
        }
    }
}

fn set(bits: &mut Bits, place: usize) {
    if let Some(word) = bits.get_mut(place / WORD_BITS) {
        *word |= 1 << (place % WORD_BITS);
    }
}

fn has(bits: &Bits, place: usize) -> bool {
    bits.get(place / WORD_BITS).is_some_and(|word| word >> (place % WORD_BITS) & 1 == 1)
}
