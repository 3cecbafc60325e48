//! The functions that begin and end, and those that receive.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::{Buffer, Mbuf, at_border, given, named, set_errno, state, taken};
use crate::context::{self, Context};
use crate::settings::{PORT, port_of, tell};
use crate::sync::Ordering;
use crate::tables::provide;

/// Flags of `rmr_init`: no table is provided; only the name is told.
const NO_TABLES: c_int = 0x01;
const NAME_ONLY: c_int = 0x04;

/// `rmr_init`.
///
/// # Safety
/// `port` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_init(port: *const c_char, payload: c_int, flags: c_int) -> *mut c_void {
    at_border(std::ptr::null_mut(), || {
        let port = if port.is_null() {
            PORT.to_owned()
        } else {
            // SAFETY: the caller promises it.
            unsafe { CStr::from_ptr(port) }.to_string_lossy().into_owned()
        };
        let made = port_of(&port).ok_or_else(|| std::io::Error::from_raw_os_error(libc::EINVAL));
        let made = made.and_then(|port| Context::new(port, payload, flags & NAME_ONLY != 0));
        let context = match made {
            Ok(context) => context,
            Err(error) => {
                tell(1, &format!("rmr_init: messages cannot be taken at {port}: {error}"));
                set_errno(error.raw_os_error().unwrap_or(libc::EINVAL));
                return std::ptr::null_mut();
            }
        };
        if flags & NO_TABLES == 0 {
            let provided = Arc::clone(&context);
            let started = std::thread::Builder::new().name("rmr-tables".to_owned()).spawn(move || provide(&provided));
            if let Err(error) = started {
                tell(1, &format!("rmr_init: there will be no table: {error}"));
            }
        } else {
            // Relaxed: nobody else has the context yet.
            context.tableless.store(true, Ordering::Relaxed);
        }
        set_errno(0);
        context::given(context)
    })
}

/// `rmr_close`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_close(context: *mut c_void) {
    at_border((), || {
        if let Some(context) = context::named(context) {
            context.close();
        }
    });
}

/// `rmr_ready`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_ready(context: *mut c_void) -> c_int {
    at_border(0, || context::named(context).is_some_and(|context| context.is_ready()).into())
}

/// `rmr_get_rcvfd`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_get_rcvfd(context: *mut c_void) -> c_int {
    at_border(-1, || context::named(context).map_or(-1, |context| context.arrivals.descriptor()))
}

/// `rmr_set_stimeout`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_set_stimeout(context: *mut c_void, milliseconds: c_int) -> c_int {
    at_border(-1, || {
        let Some(context) = context::named(context) else { return -1 };
        // Relaxed: the program's own threads order it.
        context.patience.store(milliseconds.max(0), Ordering::Relaxed);
        state::OK
    })
}

/// `rmr_set_rtimeout`: receiving takes its time from its own arguments.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_set_rtimeout(_context: *mut c_void, _milliseconds: c_int) -> c_int {
    0
}

/// `rmr_init_trace`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_init_trace(context: *mut c_void, len: c_int) -> c_int {
    at_border(0, || {
        let Some(context) = context::named(context) else {
            set_errno(libc::EINVAL);
            return 0;
        };
        // Relaxed: as for the patience.
        context.trace.store(len.max(0), Ordering::Relaxed);
        set_errno(0);
        1
    })
}

/// `rmr_set_low_latency`: connections send at once as it is.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_set_low_latency(_context: *mut c_void) {}

/// `rmr_set_fack`: the system acknowledges as it likes.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_set_fack(_context: *mut c_void) {}

/// `rmr_alloc_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_alloc_msg(context: *mut c_void, size: c_int) -> *mut Mbuf {
    at_border(std::ptr::null_mut(), || given(allocated(context, size, 0)))
}

fn allocated(context: *mut c_void, size: c_int, trace: c_int) -> Option<Box<Buffer>> {
    let context = context::named(context)?;
    // Relaxed: as for the patience.
    let trace = if trace > 0 { trace } else { context.trace.load(Ordering::Relaxed) };
    let size = usize::try_from(size).ok().filter(|&size| size > 0).unwrap_or(context.payload);
    Buffer::new(size, usize::try_from(trace).unwrap_or(0), &context.source)
}

/// `rmr_tralloc_msg`.
///
/// # Safety
/// `data` is null, or has as many bytes as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_tralloc_msg(
    context: *mut c_void,
    size: c_int,
    trace: c_int,
    data: *const u8,
) -> *mut Mbuf {
    at_border(std::ptr::null_mut(), || {
        let Some(mut buffer) = allocated(context, size, trace) else { return std::ptr::null_mut() };
        if trace <= 0 || data.is_null() {
            buffer.mbuf.state = state::INITFAILED;
        } else {
            // SAFETY: the caller promises it.
            buffer.trace().copy_from_slice(unsafe { std::slice::from_raw_parts(data, trace as usize) });
        }
        given(Some(buffer))
    })
}

/// `rmr_mt_rcv`: the next message in the place of `message`; after so many milliseconds `message` itself, whose state says
/// so. With -1 it waits as long as it takes.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_mt_rcv(context: *mut c_void, message: *mut Mbuf, most: c_int) -> *mut Mbuf {
    at_border(message, || {
        let Some(context) = context::named(context) else {
            if let Some(buffer) = named(message) {
                buffer.set_state(state::BADARG, libc::EINVAL);
            }
            set_errno(libc::EINVAL);
            return message;
        };
        let patience = u64::try_from(most).ok().map(Duration::from_millis);
        if let Some(received) = context.arrivals.take(patience) {
            drop(taken(message));
            set_errno(0);
            return given(Some(received));
        }
        if let Some(buffer) = named(message) {
            buffer.mbuf.len = 0;
            buffer.set_state(state::TIMEOUT, libc::ETIMEDOUT);
        }
        set_errno(libc::ETIMEDOUT);
        message
    })
}

/// `rmr_rcv_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_rcv_msg(context: *mut c_void, message: *mut Mbuf) -> *mut Mbuf {
    rmr_mt_rcv(context, message, -1)
}

/// `rmr_torcv_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_torcv_msg(context: *mut c_void, message: *mut Mbuf, most: c_int) -> *mut Mbuf {
    rmr_mt_rcv(context, message, most)
}

/// `rmr_rcv_specific`: the message with a transaction number that begins so. At most `most` others are put behind those that
/// wait; then null is returned.
///
/// # Safety
/// `expected` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_rcv_specific(
    context: *mut c_void,
    message: *mut Mbuf,
    expected: *const c_char,
    most: c_int,
) -> *mut Mbuf {
    at_border(message, || {
        // SAFETY: the caller promises it.
        let expected = if expected.is_null() { &[] } else { unsafe { CStr::from_ptr(expected) }.to_bytes() };
        let Some(found) = context::named(context).filter(|_| !expected.is_empty()) else {
            return rmr_rcv_msg(context, message);
        };
        let expected = &expected[..expected.len().min(32)];
        let mut others = Vec::new();
        let mut answer = None;
        while (others.len() as c_int) < most {
            match found.arrivals.take(None) {
                Some(received) if received.transaction().starts_with(expected) => {
                    answer = Some(received);
                    break;
                }
                Some(received) => others.push(received),
                None => break,
            }
        }
        for other in others {
            found.arrivals.push(other);
        }
        drop(taken(message));
        set_errno(if answer.is_some() { 0 } else { libc::ETIMEDOUT });
        given(answer)
    })
}

/// `rmr_rx_debug_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Received {
    /// Messages that were dropped: none, since senders wait.
    drop: u64,
    /// Messages that have come.
    enqueue: u64,
}

/// `rmr_get_rx_debug_info`.
///
/// # Safety
/// `into` is null, or there is such a structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_rx_debug_info(context: *mut c_void, into: *mut Received) -> c_int {
    at_border(libc::EINVAL, || {
        // SAFETY: the caller promises it.
        let (Some(context), Some(into)) = (context::named(context), unsafe { into.as_mut() }) else {
            set_errno(libc::EINVAL);
            return libc::EINVAL;
        };
        *into = Received { drop: 0, enqueue: context.arrivals.count() };
        0
    })
}

/// `rmr_reset_rx_debug_count`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_reset_rx_debug_count(context: *mut c_void) -> c_int {
    at_border(libc::EINVAL, || {
        let Some(context) = context::named(context) else {
            set_errno(libc::EINVAL);
            return libc::EINVAL;
        };
        context.arrivals.forget_count();
        0
    })
}
