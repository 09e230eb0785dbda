use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::domain::validation::Check;

/// Longest first or last name.
pub(crate) const NAME_CHARS_MAX: usize = 100;
/// Longest description.
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 500;
/// Longest name of a company, street, city or country.
pub(crate) const COMPANY_CHARS_MAX: usize = 250;
/// Longest house number.
pub(crate) const HOUSE_NUMBER_CHARS_MAX: usize = 10;
/// Longest postal code.
pub(crate) const POSTAL_CODE_CHARS_MAX: usize = 25;

/// How a contact is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
}

/// Where a contact works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Company {
    /// Its name.
    pub company_name: String,
    /// Street.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub street: Option<String>,
    /// House number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub house_number: Option<String>,
    /// Postal code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postal_code: Option<String>,
    /// City.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Country.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
}

/// What somebody wants a new contact to be; nothing is checked yet. Fields that are missing in
/// JSON are empty, so that one answer can tell of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Draft {
    /// 1 to 100 characters.
    pub first_name: String,
    /// 1 to 100 characters.
    pub last_name: String,
    /// An address, or none.
    pub email: Option<String>,
    /// At most 500 characters, or none.
    pub description: Option<String>,
    /// 1 to 250 characters.
    pub company_name: String,
}

/// What somebody wants the company of a contact to be; nothing is checked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CompanyDraft {
    /// 1 to 250 characters.
    pub company_name: String,
    /// At most 250 characters, or none.
    pub street: Option<String>,
    /// At most 10 characters, or none.
    pub house_number: Option<String>,
    /// At most 25 characters, or none.
    pub postal_code: Option<String>,
    /// At most 250 characters, or none.
    pub city: Option<String>,
    /// At most 250 characters, or none.
    pub country: Option<String>,
}

impl Draft {
    /// A draft with a name and nothing else.
    #[must_use]
    pub fn named(first_name: &str, last_name: &str) -> Self {
        Self {
            first_name: first_name.to_owned(),
            last_name: last_name.to_owned(),
            ..Self::default()
        }
    }
}

impl Name {
    /// A name, if both parts have 1 to 100 characters.
    ///
    /// # Errors
    ///
    /// The parts that are wrong.
    pub fn new(first_name: &str, last_name: &str) -> Result<Self, Invalid> {
        let mut check = Check::default();
        let name = Self::checked(&mut check, first_name, last_name);
        check.finish(name)
    }

    pub(crate) fn checked(check: &mut Check, first_name: &str, last_name: &str) -> Self {
        Self {
            first_name: check.required("firstName", first_name, NAME_CHARS_MAX),
            last_name: check.required("lastName", last_name, NAME_CHARS_MAX),
        }
    }

    /// First and last name.
    #[must_use]
    pub fn full(&self) -> String {
        format!("{} {}", self.first_name, self.last_name)
    }
}

impl Company {
    /// A company, if its name is there and no part is too long.
    ///
    /// # Errors
    ///
    /// The parts that are wrong.
    pub fn new(draft: &CompanyDraft) -> Result<Self, Invalid> {
        let mut check = Check::default();
        let company = Self::checked(&mut check, draft);
        check.finish(company)
    }

    pub(crate) fn checked(check: &mut Check, draft: &CompanyDraft) -> Self {
        let mut optional = |field, text: &Option<String>, chars_max| {
            check.optional(field, text.as_deref(), chars_max)
        };
        Self {
            street: optional("street", &draft.street, COMPANY_CHARS_MAX),
            house_number: optional("houseNumber", &draft.house_number, HOUSE_NUMBER_CHARS_MAX),
            postal_code: optional("postalCode", &draft.postal_code, POSTAL_CODE_CHARS_MAX),
            city: optional("city", &draft.city, COMPANY_CHARS_MAX),
            country: optional("country", &draft.country, COMPANY_CHARS_MAX),
            company_name: check.required("companyName", &draft.company_name, COMPANY_CHARS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that are refused.
    fn refused<T>(outcome: Result<T, Invalid>) -> Vec<&'static str> {
        let invalid = outcome.err().unwrap_or_default();
        invalid.fields().keys().copied().collect()
    }

    #[test]
    fn a_name_needs_both_parts() {
        assert_eq!(Name::new(" Ada ", "King").unwrap().full(), "Ada King");
        assert_eq!(refused(Name::new("", " ")), ["firstName", "lastName"]);
        let (most, more) = ("x".repeat(100), "x".repeat(101));
        assert!(refused(Name::new(&most, &most)).is_empty());
        assert_eq!(refused(Name::new(&more, &more)), ["firstName", "lastName"]);
    }

    #[test]
    fn every_part_of_a_company_has_its_size() {
        let sized = |extra: usize| CompanyDraft {
            company_name: "x".repeat(250 + extra),
            street: Some("x".repeat(250 + extra)),
            house_number: Some("x".repeat(10 + extra)),
            postal_code: Some("x".repeat(25 + extra)),
            city: Some("x".repeat(250 + extra)),
            country: Some("x".repeat(250 + extra)),
        };
        assert!(refused(Company::new(&sized(0))).is_empty());
        let all = ["city", "companyName", "country", "houseNumber", "postalCode", "street"];
        assert_eq!(refused(Company::new(&sized(1))), all);
        assert_eq!(refused(Company::new(&CompanyDraft::default())), ["companyName"]);
    }
}
