use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use millstream_core::{Error, Result};

use crate::{ConnectionOptions, Credentials};

/// Longest URL that is looked at.
const BYTES_MAX: usize = 4096;

/// Reads the form that [`ConnectionOptions::parse`] describes. Errors name parts, never values: any
/// value may be a secret in the wrong place.
pub(super) fn parse(url: &str) -> Result<ConnectionOptions> {
    if BYTES_MAX < url.len() {
        return Err(refused("it is longer than 4096 bytes"));
    }
    let (tls_required, rest) = if let Some(rest) = url.strip_prefix("nats://") {
        (false, rest)
    } else if let Some(rest) = url.strip_prefix("tls://") {
        (true, rest)
    } else {
        return Err(refused("it does not begin with nats:// or tls://"));
    };
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = match address.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, address),
    };
    let mut options = ConnectionOptions::new(servers(hosts.trim_end_matches('/'))?);
    options.tls_required = tls_required;
    if let Some(user) = user {
        options.credentials = match user.split_once(':') {
            Some((name, password)) => {
                Credentials::User { name: decoded(name)?, password: decoded(password)? }
            }
            None => Credentials::Token(decoded(user)?),
        };
    }
    let (mut certificate, mut key) = (None, None);
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| refused("an option has no value"))?;
        let value = decoded(value)?;
        match name {
            "replicas" => options.replicas = number(name, &value)?,
            "prefix" => options.prefix = value,
            "timeout" => options.request_timeout = Duration::from_secs(number(name, &value)?),
            "creds" => options.credentials = Credentials::File(PathBuf::from(value)),
            "nkey" => options.credentials = Credentials::NkeyFile(PathBuf::from(value)),
            "ca" => options.tls_authority = Some(PathBuf::from(value)),
            "cert" => certificate = Some(PathBuf::from(value)),
            "key" => key = Some(PathBuf::from(value)),
            other => {
                let shown: String = other.chars().take(32).collect();
                return Err(refused(&format!("there is no option {shown:?}")));
            }
        }
    }
    options.tls_identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            return Err(refused("a certificate (cert) and its key (key) go together"));
        }
    };
    options.check()?;
    Ok(options)
}

fn servers(hosts: &str) -> Result<Vec<String>> {
    hosts
        .split(',')
        .map(|host| {
            let is_strange = |it: char| it.is_whitespace() || it.is_control() || it == '/';
            if host.is_empty() || host.contains(is_strange) {
                return Err(refused("a server has no name, or a strange one"));
            }
            async_nats::ServerAddr::from_str(&format!("nats://{host}"))
                .map_err(|_| refused("a server is not of the form host or host:port"))?;
            Ok(host.to_owned())
        })
        .collect()
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refused(&format!("the option {name:?} is not a number")))
}

/// Text with its `%xx` replaced.
fn decoded(text: &str) -> Result<String> {
    let wrong = || refused("it holds a % that is not followed by two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|it| std::str::from_utf8(it).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| refused("it holds bytes that are not UTF-8"))
}

fn refused(reason: &str) -> Error {
    Error::invalid("use the URL of the NATS servers", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: &str) {
        let found = match ConnectionOptions::parse(url) {
            Ok(it) => format!("{it} {:?} {} {}", it.credentials, it.replicas, it.prefix),
            Err(error) => error.report(),
        };
        let expected = expected.replace('!', "could not use the URL of the NATS servers:");
        assert_eq!(found, expected, "{url}");
    }

    #[test]
    fn a_url_says_where_and_who() {
        check("nats://localhost", "nats://localhost None 1 millstream");
        check("tls://a:1,b:2/", "tls://a:1,b:2 None 1 millstream");
        check("nats://[::1]:4222", "nats://[::1]:4222 None 1 millstream");
        check("nats://ada:p%40ss@a", "nats://a User(\"ada\") 1 millstream");
        check("nats://t0ken@a", "nats://a Token 1 millstream");
        check("nats://a?creds=/x/y.creds", "nats://a File(/x/y.creds) 1 millstream");
        check("nats://a?nkey=n&replicas=3&prefix=p", "nats://a NkeyFile(n) 3 p");
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_secrets() {
        check("http://a", "! it does not begin with nats:// or tls://");
        check("nats://", "! a server has no name, or a strange one");
        check("nats://a,,b", "! a server has no name, or a strange one");
        check("nats://a?what=1", "! there is no option \"what\"");
        check("nats://a?replicas=x", "! the option \"replicas\" is not a number");
        check("nats://a?replicas", "! an option has no value");
        check("nats://a?cert=x", "! a certificate (cert) and its key (key) go together");
        check("nats://u:%zz@a", "! it holds a % that is not followed by two hexadecimal digits");
        let report = ConnectionOptions::parse("nats://u:hush@a?replicas=9").unwrap_err().report();
        assert!(!report.contains("hush"), "{report}");
    }
}
