//! Responses outside of calls: refusals, and answers to browsers that ask for permission before they call.

use std::borrow::Cow;

/// A response outside of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// Names and values of headers.
    pub headers: Vec<(Cow<'static, str>, Vec<u8>)>,
    /// Plain text.
    pub body: String,
}

impl Answer {
    /// A refusal with a text.
    #[must_use]
    pub fn refusal(status: u16, why: &str) -> Self {
        let mut headers = vec![("content-type".into(), b"text/plain".to_vec())];
        match status {
            405 => headers.push(("allow".into(), b"POST".to_vec())),
            415 => headers.push(("accept-post".into(), ACCEPTED.as_bytes().to_vec())),
            _ => {}
        }
        Self { status, headers, body: format!("{why}\n") }
    }

    /// Lets the calling page see the response.
    pub(super) fn allow(&mut self, origin: &[u8]) {
        self.headers.push(("access-control-allow-origin".into(), origin.to_vec()));
        self.headers.push(("vary".into(), b"origin".to_vec()));
    }

    /// The headers as they are sent.
    #[must_use]
    pub fn fields(&self) -> Vec<(&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (&**name, &value[..])).collect()
    }
}

/// The content types that may be posted, to tell a client that posts another one.
pub(super) const ACCEPTED: &str = "application/json, application/proto, application/connect+json, application/connect+proto, \
     application/grpc-web+proto, application/grpc-web+json";
