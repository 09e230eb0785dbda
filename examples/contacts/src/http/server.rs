use std::io;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves a router until `shutdown`, then lets requests that have begun finish.
///
/// # Errors
///
/// Those of the listener.
///
/// # Cancel safety
///
/// Dropping the future stops listening; requests that have begun go on by themselves.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}
