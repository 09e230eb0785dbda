//! The port of the retention guards.

use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::{
    Continuation, Cursor, Error, ErrorKind, KeyRange, Result, RetentionGuards, check_name,
};

use crate::buffer::Entry;
use crate::catalog;
use crate::engine::{read, write};
use crate::keys;
use crate::state::ContainerState;
use crate::store::Store;
use crate::tables::Table;

#[derive(Debug)]
pub(crate) struct ContainerGuards {
    pub(crate) store: Store,
    pub(crate) container: Arc<ContainerState>,
}

#[async_trait]
impl RetentionGuards for ContainerGuards {
    async fn hold(&self, name: &str, keys: &KeyRange, passed: &Continuation) -> Result<()> {
        check_name(name)?;
        self.container.check_exists()?;
        let cursor = Cursor::parse(passed)?;
        if cursor.container != self.container.info().resource_id.incarnation() {
            return Err(Error::new(
                ErrorKind::ContainerRecreated,
                format!("hold events for {name:?}"),
            )
            .because("the continuation belongs to another container"));
        }
        let guard = self.store.inner.changes.lock_arc().await;
        let (known, is_new) = {
            let guards = read(&self.container.guards);
            let names = guards.names();
            let is_new = !names.iter().any(|it| it == name);
            if is_new && GUARDS_MAX <= names.len() {
                return Err(Error::invalid(
                    format!("hold events for {name:?}"),
                    "16 readers hold events already",
                ));
            }
            (guards.get(name), is_new)
        };
        let mut positions = known.clone();
        positions.pass(keys, cursor.after.as_u64());
        if !is_new && positions == known {
            return Ok(());
        }
        if POSITIONS_MAX < positions.len() {
            let reason = "it has reported too many different key ranges; report whole ranges";
            return Err(Error::invalid(format!("hold events for {name:?}"), reason));
        }
        let entry = catalog::guard_entry(self.container.id, name, &positions);
        let (container, name) = (Arc::clone(&self.container), name.to_owned());
        let apply = move |_: &mut _| write(&container.guards).set(&name, positions);
        self.store.inner.change(guard, vec![entry], Vec::new(), apply, || {}).await
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.container.check_exists()?;
        let guard = self.store.inner.changes.lock_arc().await;
        let entry = Entry::remove(Table::Meta, keys::guard(self.container.id, name));
        let (container, name) = (Arc::clone(&self.container), name.to_owned());
        let apply = move |_: &mut _| write(&container.guards).remove(&name);
        self.store.inner.change(guard, vec![entry], Vec::new(), apply, || {}).await
    }

    async fn holders(&self) -> Result<Vec<String>> {
        self.container.check_exists()?;
        Ok(read(&self.container.guards).names())
    }
}

/// Readers that may hold the events of a container.
const GUARDS_MAX: usize = 16;
/// Key ranges a reader may report apart from one another.
const POSITIONS_MAX: usize = 4096;
