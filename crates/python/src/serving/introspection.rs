//! The server's own service, `nearcall.Introspection`, in Rust: its methods, and its answers in msgpack.

use nearcall_core::Failure;
use nearcall_core::server::{CallContext, CallObserver, NativeHandler, Request};
use pyo3::prelude::*;
use serde::Deserialize;

/// A method of `nearcall.Introspection`, as the handler of a server's method.
#[pyclass(frozen, rename_all = "UPPERCASE", module = "nearcall._core")]
#[derive(Clone, Copy)]
pub(crate) enum IntrospectionMethod {
    /// Returns what the server measures, and makes it measure while this client watches.
    Read,
    /// The client stops watching.
    Stop,
}

impl IntrospectionMethod {
    /// Answers the client of a call. Returns the encoded result.
    pub(crate) fn answer(self, call: &CallContext) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Read => {
                let gone = || Failure::new(Failure::CANCELLED, "the client is gone");
                let seen = rmp_serde::to_vec_named(&call.watch().ok_or_else(gone)?);
                seen.map_err(|error| Failure::new(Failure::INTERNAL, error.to_string()))
            }
            Self::Stop => {
                call.stop_watching();
                Ok(Vec::new())
            }
        }
    }
}

impl CallObserver for IntrospectionMethod {}

impl NativeHandler for IntrospectionMethod {
    fn handle(&self, request: Box<Request>) {
        // Arguments by position have no bytes, so there is nothing to check.
        let named = request.is_named().then(|| request.payload.inline().unwrap_or_default());
        let answer = if named.is_some_and(|named| rmp_serde::from_slice::<NoArguments>(named).is_err()) {
            Err(Failure::new(Failure::INVALID_ARGUMENT, "the methods of nearcall.Introspection take no arguments"))
        } else {
            (*self).answer(&request.context())
        };
        request.answer(answer);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}
