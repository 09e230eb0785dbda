//! What the owner of a gateway chooses.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millstream_core::{Error, Result, check_name};

/// The key every emulator of Cosmos DB has. It is public: whoever reaches the port knows it.
pub const PUBLIC_EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Longest key that is taken.
const KEY_BYTES_MAX: usize = 512;

/// A key of the account, which signs requests.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey(Vec<u8>);

impl AccountKey {
    /// Takes a key in base64, as connection strings have it.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not base64, empty or longer than 512 bytes.
    pub fn new(text: &str) -> Result<Self> {
        let refused = |reason: &str| Error::invalid("use the account key", reason);
        let bytes = STANDARD.decode(text.trim()).map_err(|_| refused("it is not base64"))?;
        if bytes.is_empty() || KEY_BYTES_MAX < bytes.len() {
            return Err(refused("it must have 1 to 512 bytes"));
        }
        Ok(Self(bytes))
    }

    /// The public key of every emulator, [`PUBLIC_EMULATOR_KEY`].
    ///
    /// # Panics
    ///
    /// Never: the key is well formed.
    #[must_use]
    pub fn public() -> Self {
        Self::new(PUBLIC_EMULATOR_KEY).expect("the public key is base64")
    }

    /// Whether this is the public key.
    #[must_use]
    pub fn is_public(&self) -> bool {
        *self == Self::public()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Never shows the key.
impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_public() { "AccountKey(public)" } else { "AccountKey(secret)" })
    }
}

/// What the owner of a gateway chooses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayOptions {
    /// Keys that may do everything. Default: the public key of the emulators.
    pub keys: Vec<AccountKey>,
    /// Keys that may only read. Default: none.
    pub read_only_keys: Vec<AccountKey>,
    /// How far the time of a signature may be from ours. Default: 15 minutes.
    pub clock_skew_max: Duration,
    /// By which names of the internet requests may call this machine while one of the keys is the
    /// public one. Default: none; localhost, addresses and names without a dot need not be here.
    pub names: Vec<String>,
    /// The database that holds the gateway's own container; clients cannot see it. Default:
    /// `millstream`.
    pub own_database: String,
    /// The `id` of the account. Default: `millstream`.
    pub account: String,
    /// Largest body of a request. Default: 4 MiB, which a batch of 2 MiB fits in however it is
    /// escaped.
    pub body_bytes_max: usize,
    /// Longest time the body of a request may take to arrive. Default: 30 s.
    pub body_timeout: Duration,
    /// Whether requests beyond the throughput of a container are refused with 429. Default: no.
    pub enforce_throughput: bool,
    /// How old what is known of a container may be, so that what other processes do to it is heard
    /// of. The backend is asked twice in this time while the container is in use. Default: 1 s.
    pub container_age_max: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            keys: vec![AccountKey::public()],
            read_only_keys: Vec::new(),
            clock_skew_max: Duration::from_secs(15 * 60),
            names: Vec::new(),
            own_database: "millstream".to_owned(),
            account: "millstream".to_owned(),
            body_bytes_max: 4 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            enforce_throughput: false,
            container_age_max: Duration::from_secs(1),
        }
    }
}

impl GatewayOptions {
    /// Sets the keys that may do everything.
    #[must_use]
    pub fn keys(mut self, value: Vec<AccountKey>) -> Self {
        self.keys = value;
        self
    }

    /// Sets the keys that may only read.
    #[must_use]
    pub fn read_only_keys(mut self, value: Vec<AccountKey>) -> Self {
        self.read_only_keys = value;
        self
    }

    /// Sets by which names of the internet requests may call this machine with the public key.
    #[must_use]
    pub fn names(mut self, value: Vec<String>) -> Self {
        self.names = value;
        self
    }

    /// Sets whether requests beyond the throughput of a container are refused with 429.
    #[must_use]
    pub fn enforce_throughput(mut self, value: bool) -> Self {
        self.enforce_throughput = value;
        self
    }

    /// Sets how old what is known of a container may be.
    #[must_use]
    pub fn container_age_max(mut self, value: Duration) -> Self {
        self.container_age_max = value;
        self
    }

    /// Sets how far the time of a signature may be from ours.
    #[must_use]
    pub fn clock_skew_max(mut self, value: Duration) -> Self {
        self.clock_skew_max = value;
        self
    }

    /// Whether one of the keys is the public one, so that signatures prove nothing.
    #[must_use]
    pub fn has_public_key(&self) -> bool {
        self.keys.iter().chain(&self.read_only_keys).any(AccountKey::is_public)
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// `Invalid` with the option that is out of bounds.
    pub fn check(&self) -> Result<()> {
        let refused = |reason: &str| Err(Error::invalid("use the options of the gateway", reason));
        check_name(&self.own_database)?;
        check_name(&self.account)?;
        if self.account == "localhost" {
            return refused(
                "the account must not be called localhost: the JavaScript SDK would ask \
                for the account before every request",
            );
        }
        if self.keys.is_empty() {
            return refused("there must be a key that may do everything");
        }
        if self.body_bytes_max < millstream_core::BATCH_BYTES_MAX {
            return refused("the largest body must hold a batch of 2 MiB");
        }
        Ok(())
    }
}
