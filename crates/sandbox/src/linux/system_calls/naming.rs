//! Says which system call was refused: one line for each call, on the standard error, where the host reads it.
//!
//! The kernel refuses the call, whatever happens here. It sends `SIGSYS` to the thread. The handler writes the line and
//! lets the call end with an error, or ends the process if only an attack makes such a call. The filter lets no code
//! replace the handler, and a thread that blocks the signal dies of it.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;

use super::table::{self, Call};
use crate::sync::{AtomicU64, Ordering};

/// A system call that has had no use since Linux 3.1. The filter answers it with the end of the process.
pub(super) const END: i64 = libc::SYS_nfsservctl;

/// Calls with higher numbers are newer than this list, or not of this processor.
const NUMBERS: usize = 512;
/// The signal's code if a filter sent it, not a process.
const FROM_FILTER: c_int = 1;

/// Which calls were named before.
static NAMED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

/// Sets the handler.
pub(super) fn prepare() -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = refused;
    // SAFETY: all zeros is a valid sigaction: no flags, an empty set.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler only does what a handler may do, and the pointer is to a live local.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The handler. It may run between any two instructions: it allocates nothing, and waits for nothing but the standard
/// error.
extern "C" fn refused(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the handler both pointers, and no other code has them.
    let (Some(info), Some(context)) =
        (unsafe { info.as_ref() }, unsafe { context.cast::<libc::ucontext_t>().as_mut() })
    else {
        return;
    };
    if info.si_code != FROM_FILTER {
        return;
    }
    // SAFETY: the thread's own errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid as long as the thread is.
    let before = unsafe { *errno };
    let number = result_register(context);
    let ends = find(table::KILLED, *number);
    let known = ends.or_else(|| find(table::REFUSED, *number));
    if ends.is_some() || is_first(*number) {
        say(if ends.is_some() { b"killed for " } else { b"refused " }, known, *number);
    }
    if ends.is_some() {
        // SAFETY: the filter ends the process here.
        unsafe { libc::syscall(END) };
    }
    // A call that is on no list is newer than this code. `ENOSYS` lets its caller go on without it.
    *number = -i64::from(if known.is_some() { libc::EPERM } else { libc::ENOSYS });
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Where the number of the refused call is, and where its result is expected.
#[cfg(target_arch = "x86_64")]
fn result_register(context: &mut libc::ucontext_t) -> &mut i64 {
    &mut context.uc_mcontext.gregs[libc::REG_RAX as usize]
}

/// Where the number of the refused call is, and where its result is expected. The number is first moved to the register
/// of the result.
#[cfg(target_arch = "aarch64")]
fn result_register(context: &mut libc::ucontext_t) -> &mut i64 {
    let registers = &mut context.uc_mcontext.regs;
    registers[0] = registers[8];
    // SAFETY: an i64 has the size and the alignment of a u64, and any bits are one.
    unsafe { &mut *(&raw mut registers[0]).cast::<i64>() }
}

fn find(lists: &[&[Call]], number: i64) -> Option<&'static str> {
    lists.iter().copied().flatten().find(|call| call.1 == number).map(|call| call.0)
}

/// Whether a call of that number was not named yet.
fn is_first(number: i64) -> bool {
    let Some(number) = usize::try_from(number).ok().filter(|number| *number < NUMBERS) else { return true };
    let bit = 1 << (number % 64);
    // Relaxed: only the bit itself counts.
    NAMED[number / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
}

/// Writes the line, in one piece.
fn say(what: &[u8], name: Option<&'static str>, number: i64) {
    let mut line = Line { bytes: [0; 96], len: 0 };
    line.add(b"nearcall sandbox: ");
    line.add(what);
    if let Some(name) = name {
        // The names are those of the constants.
        line.add(name.as_bytes().strip_prefix(b"SYS_").unwrap_or(name.as_bytes()));
    } else {
        line.add(b"system call ");
        line.add_number(number.unsigned_abs());
    }
    line.add(b"\n");
    // SAFETY: the bytes are a live local's. If there is no standard error, nobody wants to know.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
}

/// A line of text without an allocation. What is too long is cut off.
struct Line {
    bytes: [u8; 96],
    len: usize,
}

impl Line {
    fn add(&mut self, text: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(self.len).zip(text) {
            *place = *byte;
        }
        self.len = (self.len + text.len()).min(self.bytes.len());
    }

    fn add_number(&mut self, mut number: u64) {
        let mut digits = [b'0'; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.add(&digits[first..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_off_where_it_ends() {
        let mut line = Line { bytes: [0; 96], len: 0 };
        line.add_number(0);
        line.add_number(u64::MAX);
        assert_eq!(&line.bytes[..line.len], b"018446744073709551615");
        line.add(&[b'x'; 200]);
        assert_eq!(line.len, 96);
    }

    #[test]
    fn a_call_is_named_once() {
        assert!(is_first(500));
        assert!(!is_first(500));
        assert!(is_first(-1));
    }
}
