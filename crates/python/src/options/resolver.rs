//! Lets a function of Python say where the servers of a URL are.

use std::sync::Arc;

use nearcall_core::{BadUrl, ConnectError, Failure, Resolver, Url, resolved};
use pyo3::prelude::*;

use crate::gil::callback::Callback;
use crate::gil::errors::describe;
use crate::gil::interpreter::attach;

/// A function without arguments that returns URLs.
#[derive(Debug)]
struct ByPython(Py<PyAny>);

impl Resolver for ByPython {
    fn resolve(&self) -> Result<Vec<Url>, ConnectError> {
        let said = attach(|py| {
            let urls = self.0.bind(py).run([]).and_then(|urls| urls.extract::<Vec<String>>());
            urls.map_err(|error| describe(py, &error))
        });
        let urls = said.map_err(refusal)?;
        let parsed = urls.iter().map(|url| url.parse());
        let (right, wrong): (Vec<_>, Vec<Result<Url, BadUrl>>) = parsed.partition(Result::is_ok);
        // One wrong entry must not keep clients from the others.
        match wrong.into_iter().find_map(Result::err) {
            Some(bad) if right.is_empty() => Err(ConnectError::Options(bad.to_string())),
            _ => Ok(right.into_iter().flatten().collect()),
        }
    }
}

/// The URL, displayed as `shown`, whose servers `resolve` names.
pub(crate) fn resolved_by(shown: &str, resolve: Py<PyAny>) -> Url {
    resolved(shown, Arc::new(ByPython(resolve)))
}

/// Why there is no list of servers. What is not known to last may pass.
fn refusal(failure: Failure) -> ConnectError {
    let kind = match failure.code {
        Failure::PERMISSION_DENIED => ConnectError::Refused,
        Failure::UNAUTHENTICATED => ConnectError::Untrusted,
        Failure::INVALID_ARGUMENT => ConnectError::Options,
        Failure::FAILED_PRECONDITION => ConnectError::Mismatch,
        Failure::DEADLINE_EXCEEDED => ConnectError::TimedOut,
        _ => ConnectError::Unavailable,
    };
    kind(failure.message)
}
