//! Posts messages to an HTTP endpoint.
//!
//! One POST per message: the body is the body of the message, CloudEvents attributes and the trace
//! context are headers. Messages of one session are posted one after the other, sessions beside
//! each other. With a secret every POST is signed, so that the receiver can check where it comes
//! from; see [`Signer`].
//!
//! What the endpoint answers decides: 2xx takes the message; 400, 413 and 422 refuse it for good;
//! everything else means that the endpoint is not there now, and the caller tries again later.

mod signature;
mod webhook;

pub use crate::signature::Signer;
pub use crate::webhook::{Webhook, WebhookOptions};
