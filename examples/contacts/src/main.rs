//! Runs the service alone, on a store in a directory:
//! `contacts --data ./contacts-data --port 8080`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use contacts::{ContactContainers, ContactService};
use millstream_core::{RandomIds, SystemClock};
use millstream_store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const USAGE: &str = "\
Runs the contacts service.

Usage: contacts [--data DIRECTORY] [--host ADDRESS] [--port PORT]

  --data DIRECTORY  where the store is kept (default: contacts-data)
  --host ADDRESS    where to listen (default: 127.0.0.1)
  --port PORT       the port to listen on, 0 for a free one (default: 8080)
  --help            shows this text
";

struct Arguments {
    data: PathBuf,
    host: String,
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            say(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            eprintln!("contacts: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contacts: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock::default());
    let store = Store::open(&arguments.data)?;
    let containers = ContactContainers::prepare(&store).await?;
    let ids = Arc::new(RandomIds::new(clock.clone()));
    let service = ContactService::new(&containers.data, clock, ids)?;
    let listener = TcpListener::bind((arguments.host.as_str(), arguments.port)).await?;
    let address = listener.local_addr()?;
    say(&format!("contacts at http://{address}/api/contacts\n"));
    say(&format!("document at http://{address}/openapi.json\n"));
    let shutdown = CancellationToken::new();
    let serving = contacts::serve(listener, contacts::router(service), shutdown.clone());
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        biased;
        outcome = &mut serving => outcome?,
        _ = tokio::signal::ctrl_c() => {
            shutdown.cancel();
            serving.await?;
        }
    }
    Ok(())
}

/// None if the usage is asked for.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let (data, host) = (PathBuf::from("contacts-data"), "127.0.0.1".to_owned());
    let mut arguments = Arguments { data, host, port: 8080 };
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        if !matches!(word.as_str(), "--data" | "--host" | "--port") {
            return Err(format!("there is no option {word:?}"));
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--data" => arguments.data = value.into(),
            "--host" => arguments.host = value,
            _ => {
                let port = value.parse();
                arguments.port = port.map_err(|_| format!("{value:?} is not a port"))?;
            }
        }
    }
    Ok(Some(arguments))
}

fn say(text: &str) {
    // Nobody listens any more: then there is nobody to tell either.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<Option<Arguments>, String> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_have_defaults_and_mistakes_are_told() {
        let arguments = words("--data x --port 0").unwrap().unwrap();
        assert_eq!((arguments.data, arguments.port), (PathBuf::from("x"), 0));
        assert_eq!(words("").unwrap().unwrap().host, "127.0.0.1");
        assert!(words("--help").unwrap().is_none());
        for wrong in ["--what", "--port", "--port x", "--port 70000"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
