//! The server's own service, `nearcall.Introspection`, in Rust: its methods, and its answers in msgpack.

use nearcall_core::Failure;
use nearcall_core::server::{CallContext, CallObserver, MOST_SHOWN, NativeHandler, Request};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// A method of `nearcall.Introspection`, as the handler of a server's method.
#[pyclass(frozen, rename_all = "UPPERCASE", module = "nearcall._core")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntrospectionMethod {
    /// Returns what the server measures, and makes it measure while this client watches.
    Read,
    /// Returns what is known of connections.
    Connections,
    /// The client stops watching.
    Stop,
}

impl IntrospectionMethod {
    /// Answers the client of a call. Returns the encoded result.
    pub(crate) fn answer(self, call: &CallContext, page: &Page) -> Result<Vec<u8>, Failure> {
        let gone = || Failure::new(Failure::CANCELLED, "the client is gone");
        match self {
            Self::Read => encoded(&call.watch().ok_or_else(gone)?),
            Self::Connections => {
                let limit = page.checked_limit()?;
                encoded(&call.connection_rows(page.after, limit).ok_or_else(gone)?)
            }
            Self::Stop => {
                call.stop_watching();
                Ok(Vec::new())
            }
        }
    }

    /// The arguments of a call.
    fn page_of(self, request: &Request) -> Result<Page, Failure> {
        let bad = |text: &str| Failure::new(Failure::INVALID_ARGUMENT, text);
        let payload = || request.payload.inline().unwrap_or_default();
        if self == Self::Connections {
            return rmp_serde::from_slice(payload()).map_err(|_| {
                bad("nearcall.Introspection.read_connections takes 'after' and 'limit', which are whole numbers")
            });
        }
        // Arguments by position have no bytes, so there is nothing to check.
        if request.is_named() && rmp_serde::from_slice::<NoArguments>(payload()).is_err() {
            return Err(bad("read and stop of nearcall.Introspection take no arguments"));
        }
        Ok(Page::default())
    }
}

/// Encodes an answer.
pub(crate) fn encoded<T: Serialize>(answer: &T) -> Result<Vec<u8>, Failure> {
    rmp_serde::to_vec_named(answer).map_err(|error| Failure::new(Failure::INTERNAL, error.to_string()))
}

impl CallObserver for IntrospectionMethod {}

impl NativeHandler for IntrospectionMethod {
    fn handle(&self, request: Box<Request>) {
        let page = self.page_of(&request);
        let answer = page.and_then(|page| (*self).answer(&request.context(), &page));
        request.answer(answer);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// Which connections are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Page {
    /// Those whose numbers are greater than this.
    pub(crate) after: u64,
    /// At most so many.
    pub(crate) limit: i64,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: 0, limit: 100 }
    }
}

impl Page {
    fn checked_limit(&self) -> Result<usize, Failure> {
        usize::try_from(self.limit).ok().filter(|limit| (1..=MOST_SHOWN).contains(limit)).ok_or_else(|| {
            Failure::new(Failure::INVALID_ARGUMENT, format!("limit must be from 1 to {MOST_SHOWN}, not {}", self.limit))
        })
    }
}
