use std::fmt;

use millstream_core::{Error, Result};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The key that every emulator of Cosmos DB has. It protects nothing, so only loopback gets it.
const PUBLIC_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
/// What the scheme begins with.
const PREFIX: &str = "cosmos+";
/// Longest address; a key has 88 characters.
const BYTES_MAX: usize = 4096;

/// Where an account is, and its key.
///
/// ```
/// use millstream_backend_cosmos::Address;
///
/// // On this machine the public key of the emulators is used if none is given.
/// let local = Address::parse("cosmos+http://localhost:8081", None)?;
/// assert_eq!(local.endpoint(), "http://localhost:8081/");
///
/// // The key may stand in the address, with `/`, `+` and `=` percent-encoded, or beside it.
/// let remote = Address::parse("cosmos+https://:c2VjcmV0@example.com", None)?;
/// assert_eq!(remote, Address::parse("cosmos+https://example.com", Some("c2VjcmV0"))?);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    endpoint: Url,
    key: String,
}

impl Address {
    /// Reads `cosmos+https://…` or `cosmos+http://…`; `key` counts if the address has none.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is no such address, or if no key is given and the host is not this machine.
    /// The message never shows a key.
    pub fn parse(text: &str, key: Option<&str>) -> Result<Self> {
        let refused =
            |reason: String| Error::invalid("use the address of a Cosmos DB account", reason);
        if BYTES_MAX < text.len() {
            return Err(refused(format!("it is longer than {BYTES_MAX} bytes")));
        }
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(refused("it does not begin with cosmos+https:// or cosmos+http://".into()));
        };
        let mut endpoint = Url::parse(rest).map_err(|error| refused(error.to_string()))?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(refused("after cosmos+ only https:// and http:// are possible".into()));
        }
        if !matches!(endpoint.path(), "" | "/") || endpoint.query().is_some() {
            return Err(refused("it goes on after the host; databases are named elsewhere".into()));
        }
        endpoint.set_fragment(None);
        let own = match endpoint.password() {
            Some(encoded) => {
                let decoded = percent_decode_str(encoded).decode_utf8();
                Some(decoded.map_err(|error| refused(error.to_string()))?.into_owned())
            }
            None => None,
        };
        let is_local = is_loopback(&endpoint);
        let fallback = || is_local.then(|| PUBLIC_KEY.to_owned());
        let key = own.or_else(|| key.map(str::to_owned)).or_else(fallback);
        let Some(key) = key.filter(|it| !it.is_empty()) else {
            return Err(refused("it has no account key, and the host is not this machine".into()));
        };
        let cleared = endpoint.set_password(None).and_then(|()| endpoint.set_username(""));
        cleared.map_err(|()| refused("it has no host".into()))?;
        Ok(Self { endpoint, key })
    }

    /// The address of the service, without the key.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_str()
    }

    pub(crate) fn url(&self) -> &Url {
        &self.endpoint
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, key: Option<&str>, endpoint: &str, expected_key: &str) {
        let address = Address::parse(text, key).unwrap();
        assert_eq!((address.endpoint(), address.key()), (endpoint, expected_key));
    }

    #[test]
    fn an_address_says_where_and_with_which_key() {
        check("cosmos+http://localhost:8081", None, "http://localhost:8081/", PUBLIC_KEY);
        check("cosmos+http://127.0.0.1:1/", None, "http://127.0.0.1:1/", PUBLIC_KEY);
        check("cosmos+http://[::1]:1/", None, "http://[::1]:1/", PUBLIC_KEY);
        check("cosmos+https://a.example/", Some("k"), "https://a.example/", "k");
        check("cosmos+https://:k%2F%3D@a.example/", Some("x"), "https://a.example/", "k/=");
        check("cosmos+https://me:k@localhost/", None, "https://localhost/", "k");
    }

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let report = Address::parse(text, None).unwrap_err().report();
        assert!(report.contains(expected), "{report}");
        assert!(!report.contains("secret"), "{report}");
    }

    #[test]
    fn what_is_no_address_is_refused_without_showing_the_key() {
        check_refused("https://:secret@localhost", "cosmos+https://");
        check_refused("cosmos+ftp://:secret@localhost", "only https://");
        check_refused("cosmos+https://a.example", "account key");
        check_refused("cosmos+https://:@a.example", "account key");
        check_refused("cosmos+https://:secret@", "host");
        check_refused("cosmos+https://:secret@localhost/db", "after the host");
        check_refused("cosmos+https://:secret@localhost?x", "after the host");
        check_refused("cosmos+https://:secret%FF@localhost", "utf-8");
        check_refused(&format!("cosmos+https://{}", "a".repeat(BYTES_MAX)), "longer");
    }

    #[test]
    fn a_key_is_never_printed() {
        let address = Address::parse("cosmos+https://:secret@localhost", None).unwrap();
        assert!(!format!("{address:?}").contains("secret"));
    }
}
