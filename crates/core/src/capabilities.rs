/// What a backend can do. Asked once at start-up; the caller refuses with a sentence what it
/// cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The feed shows every version and deletes, not only the newest.
    pub all_versions: bool,
    /// Ranges can be split.
    pub split: bool,
    /// Ranges can be merged.
    pub merge: bool,
    /// Events that a reader has not passed are kept beyond their TTL.
    pub retention_guard: bool,
    /// Events get a sequence number per partition key.
    pub event_sequence: bool,
    /// Containers can have unique keys.
    pub unique_keys: bool,
    /// Commits survive the end of the process.
    pub durable: bool,
    /// Most operations in a batch.
    pub batch_operations_max: usize,
    /// Most bytes of bodies in a batch.
    pub batch_bytes_max: usize,
    /// Largest item.
    pub item_bytes_max: usize,
}
