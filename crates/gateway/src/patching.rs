//! Patches as clients send them, with the condition they may carry.

use std::sync::Arc;

use millstream_core::{Error, Patch, PatchCondition};
use millstream_query::Condition;

use crate::refusal::Refusal;
use crate::state::Call;

/// Reads a patch: `{"operations": […], "condition": "FROM c WHERE …"}` or the bare operations.
pub(crate) fn read(json: &[u8], call: Call<'_>) -> Result<Patch, Refusal> {
    let (patch, condition) = Patch::from_json(json)?;
    let Some(text) = condition.filter(|it| !it.trim().is_empty()) else { return Ok(patch) };
    let condition = Condition::parse(&text)?;
    let clock = Arc::clone(&call.state.clock);
    let holds = move |body: &[u8]| {
        let holds = condition.holds(body, clock.now());
        holds.map_err(|error| Error::invalid("decide the condition of the patch", error))
    };
    Ok(patch.with_condition(PatchCondition::new(text, holds)))
}
