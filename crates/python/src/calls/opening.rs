//! How a call with streams is begun, and begun once more after its server has refused it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, Expected, Kept, Tally};
use nearcall_core::{Body, Failure, Outgoing};
use pyo3::prelude::*;

use crate::calls::calling::{ATTEMPTS, Calling, counted};
use crate::calls::crossing::encoding;
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::name_failure;
use crate::calls::stream::Stream;
use crate::gil::interpreter::detach;
use crate::values::plan::Method;

/// Begins a call with streams. `arguments` is what the plan's `split` returned.
pub(crate) fn begin_stream(
    py: Python<'_>,
    calling: &Calling,
    method: &Bound<'_, Method>,
    arguments: &Bound<'_, PyAny>,
    for_loop: bool,
) -> PyResult<Stream> {
    let limit = calling.limits.of_stream();
    let mut surroundings = if for_loop {
        Surroundings::look(py, limit)?
    } else {
        Surroundings::look_and_wait(py, limit, || format!("{} at {}", method.get().name, calling.place()))?
    };
    let metadata = surroundings.metadata(py)?;
    let compression = surroundings.compression(py)?;
    let mut attempts = 1;
    let (core, method, id, kept) = loop {
        let ready = if for_loop { calling.ready_for_loop(py)? } else { calling.ready() };
        let core = if let Some(core) = ready {
            core
        } else {
            // An event loop has connected before, and must not wait here.
            let core = calling.usable(py, if for_loop { Some(Instant::now()) } else { surroundings.until() })?;
            surroundings.look_again();
            core
        };
        let method = method.get().successor(py).unwrap_or_else(|| method.clone().unbind());
        let references = method.get().arguments.references();
        let mut encoded = match encoding(references, &core, calling, || method.get().encode_bound(arguments)) {
            Ok(encoded) => encoded,
            // An event loop notices by itself that a server is gone.
            Err(refusal) if for_loop || attempts == ATTEMPTS => return Err(refusal),
            Err(refusal) => {
                calling.reconsider(py, &core, refusal)?;
                attempts += 1;
                continue;
            }
        };
        let flags = encoded.flags();
        let is_plain = flags == 0 && !references && may_be_refused(calling, &core);
        let begun = encoded.with(|body| {
            let kept = if is_plain { Kept::new(body) } else { None };
            let mut request = calling.request(method.get(), body, flags, surroundings.micros(), metadata.clone());
            (request.compress, request.encoding) = compression;
            begin(&core, method.get(), &request, for_loop, encoded.given()).map(|id| (id, kept))
        });
        match begun {
            Ok((id, kept)) => {
                encoded.sent();
                break (core, method, id, kept);
            }
            // The connection was lost before the call began.
            Err(failure) if !for_loop && attempts < ATTEMPTS && calling.may_begin_elsewhere(&core, &failure) => {
                attempts += 1;
            }
            Err(failure) => return Err(name_failure(py, &failure, &method.get().name)),
        }
    };
    calling.waiting.stirred(py)?;
    Ok(Stream::new(core, calling.clone(), method, id, surroundings, kept))
}

/// Whether the server says so if it has not begun a call, and the call may then go over another connection.
fn may_be_refused(calling: &Calling, core: &Core) -> bool {
    calling.may_move() && core.tells_unbegun()
}

fn begin(
    core: &Core,
    method: &Method,
    request: &Outgoing<'_>,
    in_loop: bool,
    given: &[NonZeroU64],
) -> Result<CallId, Failure> {
    core.begin(request, Expected { in_loop, references: method.reply.references(), given })
}

/// A call that is begun once more.
pub(crate) struct Anew<'a> {
    pub(crate) calling: &'a Calling,
    pub(crate) method: &'a Method,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) until: Option<Instant>,
    pub(crate) tally: Tally,
    pub(crate) for_loop: bool,
}

impl Anew<'_> {
    /// Begins the call with its encoded arguments. The inner failure is that of a call that could not begin.
    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        core: &Arc<Core>,
        arguments: &[u8],
    ) -> PyResult<Result<CallId, Failure>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()).as_micros());
        let left = left.map(|left| u64::try_from(left).unwrap_or(u64::MAX));
        let metadata = counted(self.surroundings.metadata(py)?, self.tally);
        let mut request = self.calling.request(self.method, Body::Whole(arguments), 0, left, metadata);
        (request.compress, request.encoding) = self.surroundings.compression(py)?;
        // An event loop must not wait.
        let begun = if self.for_loop {
            begin(core, self.method, &request, true, &[])
        } else {
            detach(py, || begin(core, self.method, &request, false, &[]))
        };
        Ok(begun)
    }
}
