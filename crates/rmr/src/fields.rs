//! The functions that read and change messages. They need no context.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use nearcall_route::rmr::frame::{ENTITY, SOURCE, TRANSACTION, places};

use crate::buffer::{Buffer, Mbuf, at_border, given, named, set_errno, state, taken};

/// Bytes that a program names; `None` for a null pointer or a negative length.
///
/// # Safety
/// There are so many bytes.
unsafe fn bytes<'a>(from: *const u8, len: c_int) -> Option<&'a [u8]> {
    let len = usize::try_from(len).ok().filter(|_| !from.is_null())?;
    // SAFETY: the caller promises it.
    Some(unsafe { std::slice::from_raw_parts(from, len) })
}

/// The bytes of a text, with the zero at its end.
///
/// # Safety
/// It is null or a text that ends with a zero.
unsafe fn text<'a>(from: *const u8) -> Option<&'a [u8]> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller promises it.
    Some(unsafe { CStr::from_ptr(from.cast()) }.to_bytes_with_nul())
}

/// Copies bytes to a program, which has room for them. With a null pointer into memory that the program frees.
///
/// # Safety
/// `into` is null or has room.
unsafe fn give_bytes(bytes: &[u8], into: *mut u8) -> *mut u8 {
    let into = if into.is_null() {
        // SAFETY: any size may be asked for.
        unsafe { libc::malloc(bytes.len()) }.cast::<u8>()
    } else {
        into
    };
    if into.is_null() {
        set_errno(libc::ENOMEM);
        return into;
    }
    // SAFETY: there is room, and fresh or foreign memory is no part of a message.
    unsafe { std::ptr::copy(bytes.as_ptr(), into, bytes.len()) };
    into
}

/// Runs something with a message; without one the program is told, and gets `otherwise`.
fn with<R: Copy>(message: *mut Mbuf, otherwise: R, run: impl FnOnce(&mut Buffer) -> R) -> R {
    at_border(otherwise, || {
        let Some(buffer) = named(message) else {
            set_errno(libc::EINVAL);
            return otherwise;
        };
        set_errno(0);
        run(buffer)
    })
}

fn invalid<R>(otherwise: R) -> R {
    set_errno(libc::EINVAL);
    otherwise
}

/// `rmr_free_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_free_msg(message: *mut Mbuf) {
    at_border((), || drop(taken(message)));
}

/// `rmr_payload_size`: bytes of payload that there is room for.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_payload_size(message: *mut Mbuf) -> c_int {
    with(message, -1, |buffer| buffer.room() as c_int)
}

/// `rmr_realloc_payload`: room for a payload of so many bytes; in a copy, or in the message itself.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_realloc_payload(message: *mut Mbuf, len: c_int, copy: c_int, clone: c_int) -> *mut Mbuf {
    at_border(std::ptr::null_mut(), || {
        let (Some(buffer), Ok(len @ 1..)) = (named(message), usize::try_from(len)) else {
            return invalid(std::ptr::null_mut());
        };
        set_errno(0);
        if clone == 0 && len <= buffer.room() {
            return message;
        }
        let (room, trace) = (buffer.room().max(len), buffer.trace().len());
        let mut made = if clone == 0 { None } else { Some(buffer.copied()) };
        let changed = made.as_deref_mut().unwrap_or(buffer);
        if !changed.resize(trace, room) {
            set_errno(libc::ENOMEM);
            return std::ptr::null_mut();
        }
        if copy == 0 {
            changed.mbuf.mtype = -1;
            changed.mbuf.sub_id = -1;
            changed.mbuf.len = 0;
        }
        made.map_or(message, |made| given(Some(made)))
    })
}

/// `rmr_realloc_msg`: a copy with room for so many bytes of trace data.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_realloc_msg(message: *mut Mbuf, trace: c_int) -> *mut Mbuf {
    with(message, std::ptr::null_mut(), |buffer| {
        let mut made = buffer.copied();
        let room = made.room();
        let changed = usize::try_from(trace).is_ok_and(|trace| made.resize(trace, room));
        if changed { given(Some(made)) } else { invalid(std::ptr::null_mut()) }
    })
}

fn put_bytes(buffer: &mut Buffer, place: usize, len: usize, from: &[u8]) -> c_int {
    let taken = from.len().min(len);
    buffer.field(place, len)[..taken].copy_from_slice(&from[..taken]);
    if from.len() > len {
        set_errno(libc::EOVERFLOW);
    }
    taken as c_int
}

/// `rmr_bytes2meid`.
///
/// # Safety
/// `from` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_bytes2meid(message: *mut Mbuf, from: *const u8, len: c_int) -> c_int {
    with(message, -1, |buffer| {
        // SAFETY: the caller promises it.
        let Some(from) = (unsafe { bytes(from, len) }) else { return invalid(-1) };
        let taken = put_bytes(buffer, places::ENTITY, ENTITY, from);
        // It is a text: a zero follows, in the place of the last byte if need be.
        let field = buffer.field(places::ENTITY, ENTITY);
        let end = (taken as usize).min(ENTITY - 1);
        if taken as usize == ENTITY && field[end] != 0 {
            set_errno(libc::EOVERFLOW);
        }
        field[end] = 0;
        taken
    })
}

/// `rmr_str2meid`.
///
/// # Safety
/// `from` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_str2meid(message: *mut Mbuf, from: *const u8) -> c_int {
    // SAFETY: the caller promises it.
    with(message, state::BADARG, |buffer| put_string(buffer, places::ENTITY, ENTITY, unsafe { text(from) }))
}

/// `rmr_bytes2xact`.
///
/// # Safety
/// `from` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_bytes2xact(message: *mut Mbuf, from: *const u8, len: c_int) -> c_int {
    with(message, -1, |buffer| {
        // SAFETY: the caller promises it.
        let Some(from) = (unsafe { bytes(from, len) }) else { return invalid(-1) };
        put_bytes(buffer, places::TRANSACTION, TRANSACTION, from)
    })
}

/// `rmr_str2xact`.
///
/// # Safety
/// `from` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_str2xact(message: *mut Mbuf, from: *const u8) -> c_int {
    with(message, state::BADARG, |buffer| {
        // SAFETY: the caller promises it.
        put_string(buffer, places::TRANSACTION, TRANSACTION, unsafe { text(from) })
    })
}

fn put_string(buffer: &mut Buffer, place: usize, len: usize, from: Option<&[u8]>) -> c_int {
    let Some(from) = from else { return invalid(state::BADARG) };
    if from.len() > len {
        set_errno(libc::EOVERFLOW);
        return state::OVERFLOW;
    }
    put_bytes(buffer, place, len, from);
    state::OK
}

/// `rmr_bytes2payload`.
///
/// # Safety
/// `from` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_bytes2payload(message: *mut Mbuf, from: *const u8, len: c_int) {
    with(message, (), |buffer| {
        // SAFETY: the caller promises it.
        let Some(from) = (unsafe { bytes(from, len) }) else { return invalid(()) };
        put_payload(buffer, from);
    });
}

/// `rmr_str2payload`.
///
/// # Safety
/// `from` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_str2payload(message: *mut Mbuf, from: *const u8) {
    with(message, (), |buffer| {
        // SAFETY: the caller promises it.
        let Some(from) = (unsafe { text(from) }) else { return invalid(()) };
        put_payload(buffer, from);
    });
}

fn put_payload(buffer: &mut Buffer, from: &[u8]) {
    let fits = from.len() <= buffer.room();
    let len = from.len().min(buffer.room());
    buffer.payload()[..len].copy_from_slice(&from[..len]);
    buffer.mbuf.len = len as c_int;
    buffer.mbuf.state = if fits { state::OK } else { state::OVERFLOW };
    if !fits {
        set_errno(libc::EMSGSIZE);
    }
}

/// `rmr_get_xact`: the 32 bytes of the transaction number.
///
/// # Safety
/// `into` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_xact(message: *mut Mbuf, into: *mut u8) -> *mut u8 {
    with(message, std::ptr::null_mut(), |buffer| {
        // SAFETY: the caller promises it.
        unsafe { give_bytes(buffer.field(places::TRANSACTION, TRANSACTION), into) }
    })
}

/// `rmr_get_meid`: the 32 bytes of the managed entity.
///
/// # Safety
/// `into` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_meid(message: *mut Mbuf, into: *mut u8) -> *mut u8 {
    with(message, std::ptr::null_mut(), |buffer| {
        // SAFETY: the caller promises it.
        unsafe { give_bytes(buffer.field(places::ENTITY, ENTITY), into) }
    })
}

/// `rmr_get_src`: the 64 bytes with the sender's name.
///
/// # Safety
/// `into` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_src(message: *mut Mbuf, into: *mut u8) -> *mut u8 {
    with(message, std::ptr::null_mut(), |buffer| {
        // SAFETY: the caller promises it.
        unsafe { give_text(buffer, places::SOURCE, into) }
    })
}

/// `rmr_get_srcip`: the 64 bytes with the sender's address; with its name if the sender has told none.
///
/// # Safety
/// `into` is null or has room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_srcip(message: *mut Mbuf, into: *mut u8) -> *mut u8 {
    with(message, std::ptr::null_mut(), |buffer| {
        let place = if buffer.has_address() { places::SOURCE_ADDRESS } else { places::SOURCE };
        // SAFETY: the caller promises it.
        unsafe { give_text(buffer, place, into) }
    })
}

/// Gives a text of at most 63 bytes, and zeros.
///
/// # Safety
/// `into` is null or has room for 64 bytes.
unsafe fn give_text(buffer: &mut Buffer, place: usize, into: *mut u8) -> *mut u8 {
    if into.is_null() {
        return into;
    }
    let mut field = [0; SOURCE];
    field.copy_from_slice(buffer.field(place, SOURCE));
    field[SOURCE - 1] = 0;
    // SAFETY: the caller promises it.
    unsafe { give_bytes(&field, into) }
}

/// `rmr_get_trlen`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_get_trlen(message: *mut Mbuf) -> c_int {
    with(message, 0, |buffer| buffer.trace().len() as c_int)
}

/// `rmr_get_trace`: as much of the trace data as there is room for. Returns how much that was.
///
/// # Safety
/// `into` is null or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_get_trace(message: *mut Mbuf, into: *mut u8, room: c_int) -> c_int {
    with(message, 0, |buffer| {
        let len = usize::try_from(room).unwrap_or(0).min(buffer.trace().len());
        if into.is_null() || len == 0 {
            return 0;
        }
        // SAFETY: the caller promises it.
        unsafe { give_bytes(&buffer.trace()[..len], into) };
        len as c_int
    })
}

/// `rmr_set_trace`: returns how many bytes the message has taken.
///
/// # Safety
/// `from` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_set_trace(message: *mut Mbuf, from: *const u8, len: c_int) -> c_int {
    with(message, 0, |buffer| {
        if len <= 0 {
            return 0;
        }
        // SAFETY: the caller promises it.
        let Some(from) = (unsafe { bytes(from, len) }) else { return invalid(0) };
        let room = buffer.room();
        if buffer.trace().len() != from.len() && !buffer.resize(from.len(), room) {
            return invalid(0);
        }
        buffer.trace().copy_from_slice(from);
        len
    })
}

/// `rmr_trace_ref`: the trace data where they lie, and how many bytes they are. Null if there are none.
///
/// # Safety
/// `len` is null or has room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_trace_ref(message: *mut Mbuf, len: *mut c_int) -> *mut c_void {
    let (found, found_len) = with(message, (std::ptr::null_mut(), 0), |buffer| match buffer.trace() {
        [] => (std::ptr::null_mut(), 0),
        trace => (trace.as_mut_ptr().cast(), trace.len() as c_int),
    });
    // SAFETY: the caller promises it.
    if let Some(len) = unsafe { len.as_mut() } {
        *len = found_len;
    }
    found
}

/// The numbers of the header, for programs in other languages.
const CONSTANTS: &[(&str, i32)] = &[
    ("RMR_MAX_XID", 32),
    ("RMR_MAX_SID", 32),
    ("RMR_MAX_MEID", 32),
    ("RMR_MAX_SRC", 64),
    ("RMR_MAX_RCV_BYTES", 2048),
    ("RMRFL_NONE", 0),
    ("RMRFL_AUTO_ALLOC", 3),
    ("RMRFL_MTCALL", 2),
    ("RMR_DEF_SIZE", 0),
    ("RMR_VOID_MSGTYPE", -1),
    ("RMR_VOID_SUBID", -1),
    ("RMR_OK", 0),
    ("RMR_ERR_BADARG", 1),
    ("RMR_ERR_NOENDPT", 2),
    ("RMR_ERR_EMPTY", 3),
    ("RMR_ERR_NOHDR", 4),
    ("RMR_ERR_SENDFAILED", 5),
    ("RMR_ERR_CALLFAILED", 6),
    ("RMR_ERR_NOWHOPEN", 7),
    ("RMR_ERR_WHID", 8),
    ("RMR_ERR_OVERFLOW", 9),
    ("RMR_ERR_RETRY", 10),
    ("RMR_ERR_RCVFAILED", 11),
    ("RMR_ERR_TIMEOUT", 12),
    ("RMR_ERR_UNSET", 13),
    ("RMR_ERR_TRUNC", 14),
    ("RMR_ERR_INITFAILED", 15),
];

/// `rmr_get_consts`: the numbers of the header as JSON, in memory that `rmr_free_consts` frees.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_get_consts() -> *mut c_char {
    at_border(std::ptr::null_mut(), || {
        let numbers: Vec<String> = CONSTANTS.iter().map(|(name, number)| format!("\"{name}\": {number}")).collect();
        let text = CString::new(format!("{{ {} }}", numbers.join(", "))).unwrap_or_default();
        text.into_raw()
    })
}

/// `rmr_free_consts`.
///
/// # Safety
/// It is null, or comes from `rmr_get_consts`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_free_consts(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller promises it.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// `rmr_set_vlevel`: how much is told on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_set_vlevel(level: c_int) {
    at_border((), || crate::settings::set_level(level));
}
