use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use millstream_core::{Error, Result, Timestamp};
use sha2::Sha256;

/// Signs posts with HMAC-SHA256, in the form of the Standard Webhooks specification.
///
/// The signature covers `<id>.<seconds>.<body>`. A receiver computes the same from the headers
/// `webhook-id` and `webhook-timestamp` and the body, compares it with `webhook-signature`, and
/// refuses times that are too far from its own.
///
/// ```
/// use millstream_core::Timestamp;
/// use millstream_webhook::Signer;
///
/// let signer = Signer::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let time = Timestamp::from_millis(1_614_265_330_000);
/// let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time, br#"{"test": 2432232314}"#);
/// assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Signer {
    key: Hmac<Sha256>,
}

impl Signer {
    /// Shortest key: less would be easy to guess.
    pub const KEY_BYTES_MIN: usize = 16;

    /// A signer with the secret `whsec_` followed by the key in base64.
    ///
    /// # Errors
    ///
    /// `Invalid` if the secret is not of that form or shorter than 16 bytes. The secret is not
    /// repeated in the error.
    pub fn new(secret: &str) -> Result<Self> {
        let refused = |reason: &'static str| Error::invalid("use the webhook secret", reason);
        let text = secret.strip_prefix("whsec_").unwrap_or(secret);
        let key = STANDARD.decode(text).map_err(|_| refused("it is not base64"))?;
        if key.len() < Self::KEY_BYTES_MIN {
            return Err(refused("it is shorter than 16 bytes"));
        }
        let key = Hmac::new_from_slice(&key).map_err(|_| refused("it cannot be a key"))?;
        Ok(Self { key })
    }

    /// The value of `webhook-signature`.
    #[must_use]
    pub fn sign(&self, id: &str, time: Timestamp, body: &[u8]) -> String {
        let mut signed = self.key.clone();
        signed.update(format!("{id}.{}.", time.as_millis() / 1000).as_bytes());
        signed.update(body);
        format!("v1,{}", STANDARD.encode(signed.finalize().into_bytes()))
    }

    /// Whether one of the signatures in `header` is right, compared in constant time.
    #[must_use]
    pub fn verify(&self, header: &str, id: &str, time: Timestamp, body: &[u8]) -> bool {
        header.split(' ').filter_map(|it| it.strip_prefix("v1,")).any(|signature| {
            let mut signed = self.key.clone();
            signed.update(format!("{id}.{}.", time.as_millis() / 1000).as_bytes());
            signed.update(body);
            STANDARD.decode(signature).is_ok_and(|it| signed.verify_slice(&it).is_ok())
        })
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_signature_is_verified_and_a_changed_body_is_not() {
        let signer = Signer::new(SECRET).unwrap();
        let time = Timestamp::from_millis(5_000);
        let header = format!("v2,other {}", signer.sign("1", time, b"body"));
        assert!(signer.verify(&header, "1", time, b"body"));
        assert!(!signer.verify(&header, "1", time, b"bodY"));
        assert!(!signer.verify(&header, "2", time, b"body"));
        assert!(!signer.verify(&header, "1", Timestamp::from_millis(6_000), b"body"));
        assert!(!signer.verify("", "1", time, b"body"));
    }

    #[test]
    fn a_bad_secret_is_refused_without_being_repeated() {
        for secret in ["", "whsec_", "whsec_!hidden!", "whsec_c2hvcnQ="] {
            let text = Signer::new(secret).unwrap_err().report();
            assert!(text.starts_with("could not use the webhook secret"), "{text}");
            assert!(secret.len() < 8 || !text.contains(&secret[6..]), "{text}");
        }
    }
}
