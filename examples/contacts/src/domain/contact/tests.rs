use millstream_core::Timestamp;
use millstream_outbox::Entity;
use uuid::Uuid;

use crate::{ChangeError, CompanyDraft, Contact, Draft, Invalid, Time};

const NOW: Timestamp = Timestamp::from_millis(1_770_635_257_302);
const LATER: Timestamp = Timestamp::from_millis(1_770_635_260_000);

fn draft() -> Draft {
    Draft {
        email: Some("ada@example.com".to_owned()),
        description: Some("A friend".to_owned()),
        company_name: "Analytical Engines".to_owned(),
        ..Draft::named("Ada", "King")
    }
}

/// A contact that was stored and read again.
fn stored() -> Contact {
    let contact = Contact::new(Uuid::from_u128(17), &draft(), NOW).unwrap();
    serde_json::from_str(&serde_json::to_string(&contact).unwrap()).unwrap()
}

/// What a stored contact raises.
#[track_caller]
fn check(actions: &[&str], change: impl Fn(&mut Contact) -> Result<(), ChangeError>) {
    let mut contact = stored();
    change(&mut contact).unwrap();
    assert_eq!(contact.events().actions(), actions);
    let changed_at = (!actions.is_empty()).then_some(Time(LATER));
    assert_eq!(contact.modified_at(), changed_at);
}

fn fields(error: &ChangeError) -> Vec<&'static str> {
    let ChangeError::Invalid(invalid) = error else { panic!("{error}") };
    invalid.fields().keys().copied().collect()
}

#[test]
fn each_change_raises_its_event() {
    check(&["ContactNameUpdated"], |it| it.set_name("Augusta", "King", LATER));
    check(&["ContactDescriptionUpdated"], |it| it.set_description(None, LATER));
    check(&["ContactEmailUpdated"], |it| it.set_email(Some("a@b"), LATER));
    check(&["ContactEmailUpdated"], |it| it.set_email(Some(" "), LATER));
    let company = CompanyDraft { company_name: "Looms".to_owned(), ..CompanyDraft::default() };
    check(&["ContactCompanyUpdated"], |it| it.set_company(&company, LATER));
    check(&["ContactDeleted"], |it| it.delete(LATER));
}

#[test]
fn a_change_to_what_it_is_raises_nothing() {
    check(&[], |it| it.set_name(" Ada", "King ", LATER));
    check(&[], |it| it.set_description(Some("A friend"), LATER));
    check(&[], |it| it.set_email(Some("ada@example.com"), LATER));
    let company_name = "Analytical Engines".to_owned();
    let company = CompanyDraft { company_name, ..CompanyDraft::default() };
    check(&[], |it| it.set_company(&company, LATER));
}

#[test]
fn a_new_contact_raises_only_that_it_was_created() {
    let mut contact = Contact::new(Uuid::from_u128(17), &draft(), NOW).unwrap();
    contact.set_name("Augusta", "King", LATER).unwrap();
    contact.set_email(None, LATER).unwrap();
    assert!(contact.events().actions().is_empty());
    assert_eq!(contact.modified_at(), None);
    let created = contact.created_event().unwrap();
    assert_eq!(created.action(), "ContactCreated");
    assert!(format!("{created:?}").contains("Augusta"));
}

#[test]
fn a_draft_is_refused_with_all_its_mistakes() {
    let wrong = Draft {
        email: Some("nowhere".to_owned()),
        description: Some("x".repeat(501)),
        company_name: "x".repeat(251),
        ..Draft::default()
    };
    let invalid: Invalid = Contact::new(Uuid::from_u128(1), &wrong, NOW).unwrap_err();
    let names: Vec<_> = invalid.fields().keys().copied().collect();
    assert_eq!(names, ["companyName", "description", "email", "firstName", "lastName"]);
    let least = Draft { email: None, description: None, ..draft() };
    assert!(Contact::new(Uuid::from_u128(1), &least, NOW).is_ok());
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let mut contact = stored();
    let before = serde_json::to_string(&contact).unwrap();
    assert_eq!(fields(&contact.set_name("", "King", LATER).unwrap_err()), ["firstName"]);
    let long = "x".repeat(501);
    let error = contact.set_description(Some(&long), LATER).unwrap_err();
    assert_eq!(fields(&error), ["description"]);
    assert_eq!(fields(&contact.set_email(Some("@"), LATER).unwrap_err()), ["email"]);
    let error = contact.set_company(&CompanyDraft::default(), LATER).unwrap_err();
    assert_eq!(fields(&error), ["companyName"]);
    assert_eq!(serde_json::to_string(&contact).unwrap(), before);
    assert!(contact.events().actions().is_empty());
}

#[test]
fn a_deleted_contact_stays_as_it_was_and_tells_once() {
    let mut contact = stored();
    contact.delete(LATER).unwrap();
    assert!(contact.is_deleted());
    assert_eq!(contact.deleted_at(), Some(Time(LATER)));
    assert_eq!(contact.delete(LATER), Err(ChangeError::Deleted));
    assert_eq!(contact.set_name("A", "B", LATER), Err(ChangeError::Deleted));
    assert_eq!(contact.set_email(None, LATER), Err(ChangeError::Deleted));
    assert_eq!(contact.set_description(None, LATER), Err(ChangeError::Deleted));
    assert_eq!(contact.set_company(&CompanyDraft::default(), LATER), Err(ChangeError::Deleted));
    assert_eq!(contact.events().actions(), ["ContactDeleted"]);
}

#[test]
fn the_document_looks_as_promised() {
    let mut contact = stored();
    contact.delete(LATER).unwrap();
    let expected = serde_json::json!({
        "id": "00000000-0000-0000-0000-000000000011",
        "name": {"firstName": "Ada", "lastName": "King"},
        "description": "A friend",
        "email": "ada@example.com",
        "company": {"companyName": "Analytical Engines"},
        "createdAt": "2026-02-09T11:07:37.302Z",
        "modifiedAt": "2026-02-09T11:07:40.000Z",
        "deletedAt": "2026-02-09T11:07:40.000Z",
        "deleted": true,
    });
    assert_eq!(serde_json::to_value(&contact).unwrap(), expected);
}
