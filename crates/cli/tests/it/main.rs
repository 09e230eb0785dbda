//! The program as people run it: real processes on directories of their own.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod demonstration;
mod process;
mod settings;
mod tools;
