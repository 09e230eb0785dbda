//! The first byte of a component, as Cosmos DB numbers the kinds.

use crate::partition_key::PartitionKeyComponent;

pub(crate) const UNDEFINED: u8 = 0x00;
pub(crate) const NULL: u8 = 0x01;
pub(crate) const FALSE: u8 = 0x02;
pub(crate) const TRUE: u8 = 0x03;
pub(crate) const NUMBER: u8 = 0x05;
pub(crate) const STRING: u8 = 0x08;
/// Ends a string; no byte of UTF-8 has this value.
pub(crate) const STRING_END: u8 = 0xFF;

pub(crate) fn of(component: &PartitionKeyComponent) -> u8 {
    match component {
        PartitionKeyComponent::Undefined => UNDEFINED,
        PartitionKeyComponent::Null => NULL,
        PartitionKeyComponent::Bool(false) => FALSE,
        PartitionKeyComponent::Bool(true) => TRUE,
        PartitionKeyComponent::Number(_) => NUMBER,
        PartitionKeyComponent::String(_) => STRING,
    }
}
