//! How a call with streams is begun.

use nearcall_core::client::Replay;
use pyo3::prelude::*;

use crate::calls::calling::Calling;
use crate::calls::deadline::Surroundings;
use crate::calls::driving::Call;
use crate::calls::stream::Stream;
use crate::gil::greenlets::runner;
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
    let mut call = Call::new(if for_loop {
        Surroundings::look(py, limit)?
    } else {
        Surroundings::look_and_wait(py, limit, || format!("{} at {}", method.get().name, calling.place()))?
    });
    let beside = !for_loop && runner(py)?.is_some();
    let mut core = calling.connection(py, &mut call, for_loop)?;
    loop {
        let method = method.get().successor(py).unwrap_or_else(|| method.clone().unbind());
        let encode = || method.get().encode_bound(arguments);
        let sent = calling.send(py, &core, method.get(), &mut call, for_loop, encode, |request, expected| {
            let is_plain = request.flags == 0 && !method.get().arguments.references();
            // Whether the server says so if it has not begun the call, which may then go over another connection.
            let may_be_refused = calling.may_move() && core.tells_unbegun();
            let kept = if is_plain && may_be_refused { Replay::new(request.body) } else { None };
            // Where other greenlets run, nothing waits for room.
            let begun = if beside { core.begin_ahead(request, expected) } else { core.begin(request, expected) };
            begun.map(|id| (id, kept))
        });
        core = match sent? {
            Ok((id, kept)) => {
                calling.waiting.stirred(py)?;
                return Ok(Stream::new(core, calling.clone(), method, id, call, kept));
            }
            // An event loop connects by itself, and then begins the call again.
            Err(again) if for_loop => return Err(method.get().raise_again(py, &again)),
            Err(again) => calling.renewed(py, method.get(), &mut call, &again)?,
        };
    }
}
