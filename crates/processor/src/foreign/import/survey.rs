use std::collections::BTreeSet;

use millstream_core::FeedMode;

use crate::error::ErrorKind;
use crate::foreign::foreign_store::{Found, FoundLease};
use crate::foreign::form::ForeignForm;
use crate::foreign::import::ImportReport;
use crate::foreign::report::Problem;

/// What the leases of the source say as a whole, before anybody asks where they lie.
pub(super) struct Survey<'a> {
    pub(super) prefix: &'a str,
    pub(super) expected_rid: Option<&'a str>,
    pub(super) asked: Option<FeedMode>,
}

impl Survey<'_> {
    /// Adds what is noticed to the report, and the mode.
    pub(super) fn look(&self, found: &Found, report: &mut ImportReport) {
        warn(found, &mut report.warnings);
        if found.leases.is_empty() {
            if found.problems.is_empty() {
                let text =
                    format!("there are no leases whose ids begin with \"{}..\"", self.prefix);
                report.problems.push(Problem::new(ErrorKind::NotFound, text));
            }
            return;
        }
        let forms: BTreeSet<ForeignForm> = found.leases.iter().map(|it| it.lease.form).collect();
        if forms.contains(&ForeignForm::JavaEpk) && 1 < forms.len() {
            let text = "the leases were written by processors of .NET and of Java, which do not \
                        understand each other";
            report.problems.push(Problem::invalid(text));
        }
        self.check_rid(&forms, report);
        self.check_modes(&found.leases, report);
    }

    fn check_rid(&self, forms: &BTreeSet<ForeignForm>, report: &mut ImportReport) {
        let is_named = forms.iter().all(|it| it.names_the_resource());
        match self.expected_rid {
            Some(rid) if is_named && !self.prefix.ends_with(&format!("_{rid}")) => {
                let text = format!(
                    "the leases \"{}\" were made for another container than the one with the \
                     resource id \"{rid}\"",
                    self.prefix
                );
                report.problems.push(Problem::new(ErrorKind::ContainerRecreated, text));
            }
            Some(_) if is_named => (),
            _ => {
                let text = "it was not verified that the leases were made for this very container \
                            and not for an earlier one of the same name";
                report.warnings.push(text.to_owned());
            }
        }
    }

    fn check_modes(&self, leases: &[FoundLease], report: &mut ImportReport) {
        let mut said: Option<(FeedMode, &str)> = None;
        for found in leases {
            let (id, Some(mode)) = (&found.lease.id, found.lease.mode) else { continue };
            match said {
                Some((other, first)) if other != mode => {
                    let text = format!("the leases \"{first}\" and \"{id}\" differ in their mode");
                    report.problems.push(Problem::new(ErrorKind::ModeMismatch, text));
                    return;
                }
                _ => said = Some((mode, id)),
            }
        }
        match (said.map(|it| it.0), self.asked) {
            (Some(said), Some(asked)) if said != asked => {
                let text = "the leases are of the other mode than was asked for";
                report.problems.push(Problem::new(ErrorKind::ModeMismatch, text));
            }
            (None, None) => {
                let text = "no lease says which mode of the feed it is for; say which";
                report.problems.push(Problem::invalid(text));
            }
            (said, asked) => report.mode = said.or(asked),
        }
    }
}

fn warn(found: &Found, warnings: &mut Vec<String>) {
    if found.is_locked {
        let text = "somebody creates or migrates the leases now, or crashed while doing so";
        warnings.push(text.to_owned());
    }
    if !found.is_initialised {
        warnings.push("the leases were never marked as complete".to_owned());
    }
    if let Some(processor) = &found.imported_by {
        warnings.push(format!("the processor \"{processor}\" has imported these leases"));
    }
    for lease in found.leases.iter().map(|it| &it.lease) {
        if let Some(owner) = &lease.owner {
            warnings.push(format!(
                "the lease \"{}\" is still owned by host {owner:?}; stop it first, or what it \
                 handles from now on is handled twice",
                lease.id
            ));
        }
    }
}
