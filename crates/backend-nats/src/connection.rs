//! Which servers to talk to, and as whom.

mod url;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::{Client, ConnectOptions};
use millstream_core::{Clock, Error, ErrorKind, IdSource, RandomIds, Result, SystemClock};

/// Which servers to talk to, as whom, and how what is stored there is kept.
///
/// ```
/// use millstream_backend_nats::ConnectionOptions;
///
/// let options = ConnectionOptions::parse("nats://ada:secret@one:4222,two:4222?replicas=3")?;
/// assert_eq!(options.to_string(), "nats://one:4222,two:4222");
/// assert!(ConnectionOptions::parse("nats://one:4222?replicas=6").is_err());
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    pub(crate) servers: Vec<String>,
    pub(crate) credentials: Credentials,
    pub(crate) tls_required: bool,
    pub(crate) tls_authority: Option<PathBuf>,
    pub(crate) tls_identity: Option<(PathBuf, PathBuf)>,
    pub(crate) prefix: String,
    pub(crate) replicas: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
}

/// Who we are. What is secret never shows in debug output.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Credentials {
    /// The server asks for none.
    #[default]
    None,
    /// A user and a password.
    User {
        /// Who.
        name: String,
        /// The secret.
        password: String,
    },
    /// A token that all clients share.
    Token(String),
    /// The seed of an nkey, `SU…`.
    NkeySeed(String),
    /// A file with the seed of an nkey.
    NkeyFile(PathBuf),
    /// A credentials file with a token of the account server and the seed that goes with it.
    File(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::User { name, .. } => write!(f, "User({name:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::NkeySeed(_) => f.write_str("NkeySeed"),
            Self::NkeyFile(path) => write!(f, "NkeyFile({})", path.display()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

impl fmt::Display for ConnectionOptions {
    /// The servers, without anything secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls_required { "tls" } else { "nats" };
        write!(f, "{scheme}://{}", self.servers.join(","))
    }
}

impl ConnectionOptions {
    /// Most copies JetStream keeps of a stream.
    pub const REPLICAS_MAX: usize = 5;
    /// What the names of our streams and subjects begin with, unless another is chosen.
    pub const PREFIX: &'static str = "millstream";

    /// Options from a URL: `nats://[user:password@|token@]host[:port][,host…][?option=value&…]`, or
    /// `tls://…` where TLS is required.
    ///
    /// Options are `replicas`, `prefix`, `timeout` (seconds), `creds`, `nkey` (files), `ca`, `cert`
    /// and `key` (files). User, password and token may be percent-encoded.
    ///
    /// # Errors
    ///
    /// `Invalid` with the part of the URL that is wrong; never with a secret in it.
    pub fn parse(url: &str) -> Result<Self> {
        url::parse(url)
    }

    /// Sets who we are. Default: what the URL says.
    #[must_use]
    pub fn credentials(mut self, value: Credentials) -> Self {
        self.credentials = value;
        self
    }

    /// Sets how many servers keep a copy of what is created. Default: 1; 3 survives the loss of a
    /// server.
    #[must_use]
    pub fn replicas(mut self, value: usize) -> Self {
        self.replicas = value;
        self
    }

    /// Sets what the names of our streams and subjects begin with, so that several systems can
    /// share an account. Default: `millstream`.
    #[must_use]
    pub fn prefix(mut self, value: impl Into<String>) -> Self {
        self.prefix = value.into();
        self
    }

    /// Sets how long one request may take. Default: 5 s; a new leader is found in about as much.
    #[must_use]
    pub fn request_timeout(mut self, value: Duration) -> Self {
        self.request_timeout = value;
        self
    }

    /// Sets the clock. Default: that of the machine.
    #[must_use]
    pub fn clock(mut self, value: Arc<dyn Clock>) -> Self {
        self.ids = Arc::new(RandomIds::new(Arc::clone(&value)));
        self.clock = value;
        self
    }

    /// Sets where the ids of batches come from. Default: random ones with the time of the clock.
    #[must_use]
    pub fn ids(mut self, value: Arc<dyn IdSource>) -> Self {
        self.ids = value;
        self
    }

    fn new(servers: Vec<String>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self {
            servers,
            credentials: Credentials::None,
            tls_required: false,
            tls_authority: None,
            tls_identity: None,
            prefix: Self::PREFIX.to_owned(),
            replicas: 1,
            request_timeout: Duration::from_secs(5),
            ids: Arc::new(RandomIds::new(Arc::clone(&clock))),
            clock,
        }
    }

    fn check(&self) -> Result<()> {
        let refused =
            |reason: &str| Err(Error::invalid(format!("use the NATS servers {self}"), reason));
        if self.servers.is_empty() {
            return refused("no server is named");
        }
        if self.replicas < 1 || Self::REPLICAS_MAX < self.replicas {
            return refused("the number of replicas must be between 1 and 5");
        }
        let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
        if self.prefix.is_empty() || 32 < self.prefix.len() || !self.prefix.chars().all(is_plain) {
            return refused("the prefix must have 1 to 32 letters, digits, '-' or '_'");
        }
        if self.request_timeout < Duration::from_millis(10) {
            return refused("the timeout must be at least 10 ms");
        }
        Ok(())
    }
}

/// A connection that reconnects by itself. Clones share it.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    jetstream: jetstream::Context,
    options: Arc<ConnectionOptions>,
    /// As the first server said; the others of a cluster should say the same.
    message_bytes_max: usize,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, and checks that the server has JetStream.
    ///
    /// # Errors
    ///
    /// `Invalid` if the options are wrong or a file they name cannot be read; `Unavailable` if no
    /// server answers, or refuses us; `Unsupported` if the server is older than 2.12.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(options: ConnectionOptions) -> Result<Self> {
        options.check()?;
        let attempted = format!("connect to {options}");
        let failed = |error: async_nats::ConnectError| {
            Error::new(ErrorKind::Unavailable, attempted.as_str()).because(error)
        };
        let scheme = if options.tls_required { "tls" } else { "nats" };
        let servers: Vec<String> =
            options.servers.iter().map(|it| format!("{scheme}://{it}")).collect();
        let client = connect_options(&options).await?.connect(servers).await.map_err(failed)?;
        if !client.is_server_compatible(2, 12, 0) {
            let reason = "the server is older than 2.12 and has no atomic batches";
            return Err(Error::new(ErrorKind::Unsupported, attempted).because(reason));
        }
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(options.request_timeout);
        let message_bytes_max = client.server_info().max_payload;
        Ok(Self { client, jetstream, options: Arc::new(options), message_bytes_max })
    }

    /// The largest message the server takes, headers included.
    #[must_use]
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// The client of the servers.
    #[must_use]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The API of JetStream; its requests end after the timeout of the options.
    #[must_use]
    pub(crate) fn jetstream(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// What it was opened with.
    #[must_use]
    pub(crate) fn options(&self) -> &ConnectionOptions {
        &self.options
    }
}

async fn connect_options(options: &ConnectionOptions) -> Result<ConnectOptions> {
    let unreadable = |path: &PathBuf, error: std::io::Error| {
        Error::invalid(format!("use the credentials in {}", path.display()), error)
    };
    let mut connect = ConnectOptions::new()
        .name("millstream")
        .connection_timeout(options.request_timeout)
        .request_timeout(Some(options.request_timeout))
        .require_tls(options.tls_required)
        // A server that stops answering without closing the connection must be noticed in less
        // than the time a lease lasts.
        .ping_interval(Duration::from_secs(2))
        .reconnect_delay_callback(|attempts| {
            let exponent = u32::try_from(attempts.min(5)).unwrap_or(5);
            Duration::from_millis(50 << exponent)
        });
    connect = match &options.credentials {
        Credentials::None => connect,
        Credentials::User { name, password } => {
            connect.user_and_password(name.clone(), password.clone())
        }
        Credentials::Token(token) => connect.token(token.clone()),
        Credentials::NkeySeed(seed) => connect.nkey(seed.clone()),
        Credentials::NkeyFile(path) => {
            let seed = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
            connect.nkey(seed.trim().to_owned())
        }
        Credentials::File(path) => {
            connect.credentials_file(path).await.map_err(|error| unreadable(path, error))?
        }
    };
    if let Some(path) = &options.tls_authority {
        connect = connect.add_root_certificates(path.clone());
    }
    if let Some((certificate, key)) = &options.tls_identity {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(connect)
}
