use crate::{Error, Result};

/// Who asked for what an event tells: the W3C trace context and baggage of that moment.
///
/// It is captured when an event is raised, stored with the event, and travels on with its message.
///
/// ```
/// use millstream_outbox::TraceContext;
///
/// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace = TraceContext::new(parent)?.with_baggage("tenant=blue")?;
/// assert_eq!(trace.traceparent(), Some(parent));
/// assert!(TraceContext::new("00-0-0-01").is_err());
/// # Ok::<(), millstream_outbox::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceContext {
    traceparent: Option<String>,
    tracestate: Option<String>,
    baggage: Option<String>,
}

/// Says which trace the program is in. Asked for every event at the moment it is raised.
///
/// Any function without arguments is one. There is none by default, and never a global one.
pub trait TraceSource: Send + Sync {
    /// The trace of the caller, empty if there is none.
    fn current(&self) -> TraceContext;
}

impl<F: Fn() -> TraceContext + Send + Sync> TraceSource for F {
    fn current(&self) -> TraceContext {
        self()
    }
}

impl TraceContext {
    /// Longest `traceparent`; version 00 has 55 bytes, later ones may append.
    pub const TRACEPARENT_BYTES_MAX: usize = 256;
    /// Longest `tracestate`, as the recommendation guarantees it.
    pub const TRACESTATE_BYTES_MAX: usize = 512;
    /// Most members of a `tracestate`.
    pub const TRACESTATE_MEMBERS_MAX: usize = 32;
    /// Longest `baggage`.
    pub const BAGGAGE_BYTES_MAX: usize = 8192;
    /// Most members of a `baggage`.
    pub const BAGGAGE_MEMBERS_MAX: usize = 180;

    /// A trace with this `traceparent`.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not one by the W3C recommendation.
    pub fn new(traceparent: &str) -> Result<Self> {
        let checked = checked("traceparent", traceparent, check_traceparent)?;
        Ok(Self { traceparent: Some(checked), ..Self::default() })
    }

    /// Whatever of three headers is valid. What is not is left out: a bad header of a caller must
    /// not stop the work it asks for. Without a `traceparent` a `tracestate` means nothing.
    #[must_use]
    pub fn from_headers(
        traceparent: Option<&str>,
        tracestate: Option<&str>,
        baggage: Option<&str>,
    ) -> Self {
        let mut trace = traceparent.and_then(|it| Self::new(it).ok()).unwrap_or_default();
        if let Some(state) = tracestate.filter(|_| trace.traceparent.is_some()) {
            trace.tracestate = checked("tracestate", state, check_tracestate).ok();
        }
        trace.baggage = baggage.and_then(|it| checked("baggage", it, check_baggage).ok());
        trace
    }

    /// Adds the `tracestate`.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not one, is too long, or there is no `traceparent` it could belong to.
    pub fn with_tracestate(mut self, tracestate: &str) -> Result<Self> {
        if self.traceparent.is_none() {
            let reason = "it means nothing without a traceparent";
            return Err(Error::invalid("use a tracestate", reason));
        }
        self.tracestate = Some(checked("tracestate", tracestate, check_tracestate)?);
        Ok(self)
    }

    /// Adds the `baggage`.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not one or is too long.
    pub fn with_baggage(mut self, baggage: &str) -> Result<Self> {
        self.baggage = Some(checked("baggage", baggage, check_baggage)?);
        Ok(self)
    }

    /// Version, trace id, span id and flags.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// What vendors of tracing add.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// What the application adds.
    #[must_use]
    pub fn baggage(&self) -> Option<&str> {
        self.baggage.as_deref()
    }

    /// Whether there is nothing to carry on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traceparent.is_none() && self.baggage.is_none()
    }
}

fn checked(
    name: &str,
    text: &str,
    check: impl FnOnce(&str) -> Result<(), &'static str>,
) -> Result<String> {
    let text = text.trim_matches([' ', '\t']);
    check(text).map_err(|reason| Error::invalid(format!("use a {name}"), reason))?;
    Ok(text.to_owned())
}

fn check_traceparent(text: &str) -> Result<(), &'static str> {
    if TraceContext::TRACEPARENT_BYTES_MAX < text.len() {
        return Err("it is longer than 256 bytes");
    }
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let (fixed, rest) = parts.split_at(parts.len().min(4));
    let [version, trace, span, flags] = fixed else {
        return Err("it does not have four parts");
    };
    let sizes = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
    if !sizes.iter().all(|(part, size)| part.len() == *size && is_lower_hex(part)) {
        return Err("its parts are not 2, 32, 16 and 2 lower-case hexadecimal digits");
    }
    if *version == "ff" {
        return Err("version ff is forbidden");
    }
    if *version == "00" && !rest.is_empty() {
        return Err("version 00 has nothing after the flags");
    }
    if !is_printable(text) {
        return Err("it holds characters that cannot stand in a header");
    }
    if is_zero(trace) || is_zero(span) {
        return Err("its trace id or span id is zero");
    }
    Ok(())
}

fn check_tracestate(text: &str) -> Result<(), &'static str> {
    if TraceContext::TRACESTATE_BYTES_MAX < text.len() {
        return Err("it is longer than 512 bytes");
    }
    check_members(text, TraceContext::TRACESTATE_MEMBERS_MAX)
}

fn check_baggage(text: &str) -> Result<(), &'static str> {
    if TraceContext::BAGGAGE_BYTES_MAX < text.len() {
        return Err("it is longer than 8192 bytes");
    }
    check_members(text, TraceContext::BAGGAGE_MEMBERS_MAX)
}

fn check_members(text: &str, members_max: usize) -> Result<(), &'static str> {
    if !is_printable(text) {
        return Err("it holds characters that cannot stand in a header");
    }
    let members: Vec<&str> = text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    if members.is_empty() {
        return Err("it is empty");
    }
    if members_max < members.len() {
        return Err("it has too many members");
    }
    let has_key = |member: &&str| member.split_once('=').is_some_and(|(key, _)| !key.is_empty());
    if !members.iter().all(has_key) {
        return Err("a member is not a key and a value with = between");
    }
    Ok(())
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|it| it.is_ascii_digit() || matches!(it, b'a'..=b'f'))
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|it| it == b'0')
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|it| matches!(it, b' '..=b'~' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_checked_as_the_recommendation_says() {
        assert_eq!(TraceContext::new(PARENT).unwrap().traceparent(), Some(PARENT));
        assert!(TraceContext::new(&format!("01{}-future", &PARENT[2..])).is_ok());
        for wrong in [
            String::new(),
            PARENT.to_uppercase(),
            format!("{PARENT}-more"),
            format!("ff{}", &PARENT[2..]),
            PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            PARENT[..52].to_owned(),
            format!("01{}-{}", &PARENT[2..], "x".repeat(256)),
        ] {
            assert!(TraceContext::new(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn state_and_baggage_have_limits() {
        let trace = TraceContext::new(PARENT).unwrap();
        assert!(trace.clone().with_tracestate("a=1, b=2").is_ok());
        assert!(trace.clone().with_tracestate(&format!("a={}", "x".repeat(511))).is_err());
        assert!(trace.clone().with_tracestate(&"a=1,".repeat(33)).is_err());
        assert!(trace.clone().with_tracestate("no value").is_err());
        assert!(TraceContext::default().with_tracestate("a=1").is_err());
        assert!(trace.clone().with_baggage("tenant=blue;ttl=3").is_ok());
        assert!(trace.clone().with_baggage("tenant=bl\nue").is_err());
        assert!(trace.clone().with_baggage(&format!("a={}", "x".repeat(8191))).is_err());
        assert!(trace.with_baggage(&"a=1,".repeat(181)).is_err());
    }

    #[test]
    fn headers_that_are_wrong_are_left_out() {
        let trace = TraceContext::from_headers(Some("nonsense"), Some("a=1"), Some("b=2"));
        assert_eq!((trace.traceparent(), trace.tracestate()), (None, None));
        assert_eq!(trace.baggage(), Some("b=2"));
        let trace = TraceContext::from_headers(Some(PARENT), Some("a=1"), Some(""));
        assert_eq!((trace.tracestate(), trace.baggage()), (Some("a=1"), None));
        assert!(TraceContext::from_headers(None, Some("a=1"), None).is_empty());
    }
}
