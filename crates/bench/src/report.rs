//! The last lines of every benchmark: `figure NAME VALUE`, one number each.

use std::fmt;

/// Named numbers, in the order they were added; a figure that could not be taken is `skipped`.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<(String, Option<f64>)>);

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: Option<f64>) {
        self.0.push((name.into(), value.filter(|it| it.is_finite())));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.0 {
            match value {
                Some(value) => writeln!(formatter, "figure {name} {value:.3}")?,
                None => writeln!(formatter, "figure {name} skipped")?,
            }
        }
        Ok(())
    }
}

/// A number with `decimals` for a table; a dash where there is none.
pub(crate) fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |it| format!("{it:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_number_or_skipped() {
        let mut figures = Figures::default();
        figures.add("a.b", Some(1.25));
        figures.add("c", None);
        figures.add("d", Some(f64::NAN));
        assert_eq!(figures.to_string(), "figure a.b 1.250\nfigure c skipped\nfigure d skipped\n");
    }
}
