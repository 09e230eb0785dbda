//! Posts messages to an HTTP endpoint.
//!
//! One POST per message: the body is the body of the message, CloudEvents attributes and the trace
//! context are headers. Messages of one session are posted one after the other, sessions beside
//! each other. With a secret every POST is signed, so that the receiver can check where it comes
//! from; see [`Signer`].
//!
//! What the endpoint answers decides: 2xx takes the message; 400, 413 and 422 refuse it for good.
//! What every message would be answered (401, 403, 404, 408, 410, 429, 502, 503, 504, redirections
//! and the like) is an outage, and so is no answer at all. Any other answer, such as 409 or 500, is
//! about the message; so is none in time if the endpoint answered others meanwhile.
//!
//! An endpoint fails at one message at a time, so let the relay handle keys beside each other
//! (`Concurrency::Keyed` of its processor): those of other keys then do not wait for its attempts.

mod signature;
mod webhook;

pub use crate::signature::Signer;
pub use crate::webhook::{Webhook, WebhookOptions};
