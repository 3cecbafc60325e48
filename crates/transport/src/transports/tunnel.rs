//! Connecting through a proxy, by HTTP's CONNECT (RFC 9110, 9.3.6).

use std::fmt::Display;
use std::os::fd::OwnedFd;

use nearcall_wire::shown;

use crate::errors::{ConnectError, LinkError};
use crate::link::pace::Pace;
use crate::link::wire::Plain;
use crate::options::proxy::Proxy;

/// The most bytes that are read of a proxy's answer.
const LONGEST_ANSWER: usize = 16 << 10;

/// Asks the proxy at the other end of `socket` for a connection to `authority`, a host and a port. `failed` makes a
/// sentence from a reason.
pub(super) async fn tunnel(
    proxy: &Proxy,
    socket: OwnedFd,
    authority: &str,
    failed: &(dyn Fn(&dyn Display) -> String + Sync),
    pace: &Pace,
) -> Result<OwnedFd, ConnectError> {
    let trouble = |error: Option<LinkError>| match error {
        None => ConnectError::TimedOut(failed(&"it did not answer in time")),
        Some(LinkError::Closed) => ConnectError::Unavailable(failed(&"it hung up; is that a proxy?")),
        Some(error) => ConnectError::Unavailable(failed(&error)),
    };
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(authorization) = &proxy.authorization {
        request.push_str("Proxy-Authorization: ");
        request.push_str(authorization);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    let wire = Plain::new(socket);
    pace.send_all(&wire, request.as_bytes(), &[]).await.map_err(trouble)?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the empty line comes from the server.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == LONGEST_ANSWER {
            return Err(ConnectError::Mismatch(failed(&"its answer has no end; is that a proxy?")));
        }
        let mut byte = [0];
        pace.receive_exactly(&wire, &mut byte).await.map_err(trouble)?;
        answer.extend(byte);
        if answer.len() == 5 && answer != *b"HTTP/" {
            return Err(ConnectError::Mismatch(failed(&"what answers there is no HTTP proxy")));
        }
    }
    let line = answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let said = line.split_once(' ').map_or("", |(_, rest)| rest);
    let text = failed(&format!("it answered {}", shown(said)));
    match said.get(..3).and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=299) => Ok(wire.0.into_socket()),
        Some(407) => Err(ConnectError::Untrusted(format!(
            "{text}; give it a user and a password: http://user:password@host:port"
        ))),
        Some(400..=499) => Err(ConnectError::Refused(text)),
        _ => Err(ConnectError::Unavailable(text)),
    }
}
