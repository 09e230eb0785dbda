//! Patches as clients send them, with the condition they may carry.

use std::sync::Arc;

use millstream_core::{Error, Item, Patch, PatchCondition};
use millstream_query::Condition;

use crate::item_body::{Home, home};
use crate::refusal::Refusal;
use crate::state::Call;

/// Reads a patch: `{"operations": […], "condition": "FROM c WHERE …"}` or the bare operations.
pub(crate) fn read(json: &[u8], call: Call<'_>) -> Result<Patch, Refusal> {
    let (patch, condition) = Patch::from_json(json)?;
    let Some(text) = condition.filter(|it| !it.trim().is_empty()) else { return Ok(patch) };
    let condition = Condition::parse(&text)?;
    let clock = Arc::clone(&call.state.clock);
    let (container, self_link) = (home(call.container).container, call.container.self_link.clone());
    let holds = move |body: &[u8], stored: Option<&Item>, steps_left: &mut u64| {
        // What an earlier step of a batch wrote has no etag and no time yet.
        let home = Home { container, self_link: &self_link };
        let shown = stored.map(|it| home.present(it));
        let shown = shown.as_deref().unwrap_or(body);
        let holds = condition.holds(shown, clock.now(), steps_left);
        holds.map_err(|error| Error::invalid("decide the condition of the patch", error))
    };
    Ok(patch.with_condition(PatchCondition::with_item(text, holds)))
}
