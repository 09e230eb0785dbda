//! Real `nats-server` processes, which tests, proofs and measurements start, kill and start again.
//!
//! Each has a port that nobody else takes while it lives or is dead, a directory of its own and a
//! name that no other server has; whoever finds another server at its port is told so. They end
//! with the value that stands for them, or with the process that started them, however that ends.
//!
//! Not here: what is stored on them (`millstream-backend-nats`).
//!
//! Read `servers` first, then `node` (one process) and `ports`.

mod error;
mod node;
mod ports;
mod program;
mod servers;

pub use crate::error::Error;
pub use crate::ports::Port;
pub use crate::program::{is_installed, is_installed_for_tests};
pub use crate::servers::{NatsServers, Plan};
