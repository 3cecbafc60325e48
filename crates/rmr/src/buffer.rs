//! Messages as programs hold them: a structure whose layout is RMR's, and the bytes that are sent, which it points to.

use std::ffi::{c_int, c_uchar, c_void};

use nearcall_platform::fault::contained;
use nearcall_route::rmr::frame::{
    DATA_1, ENTITY, Fields, Frame, HEADER, SOURCE, TRANSACTION, TRANSPORT, places, write_length,
};

/// States of messages.
pub mod state {
    #![allow(missing_docs, reason = "they are the names that programs use")]
    use std::ffi::c_int;
    pub const OK: c_int = 0;
    pub const BADARG: c_int = 1;
    pub const NOENDPT: c_int = 2;
    pub const NOHDR: c_int = 4;
    pub const SENDFAILED: c_int = 5;
    pub const CALLFAILED: c_int = 6;
    pub const NOWHOPEN: c_int = 7;
    pub const WHID: c_int = 8;
    pub const OVERFLOW: c_int = 9;
    pub const RETRY: c_int = 10;
    pub const TIMEOUT: c_int = 12;
    pub const INITFAILED: c_int = 15;
}

/// What a message has that was not freed yet.
const COOKIE: c_int = 0x4942;
/// The flag of a message whose sender waits for a reply, in the order of this processor.
const CALL: u32 = 4;
/// Bytes of the longest trace data that is made room for, and of the longest payload.
const MAX_ROOM: usize = 1 << 30;

/// `rmr_mbuf_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Mbuf {
    /// What became of the last thing that was done with the message.
    pub state: c_int,
    /// Its type.
    pub mtype: c_int,
    /// Bytes of its payload that are used.
    pub len: c_int,
    /// Its payload.
    pub payload: *mut c_uchar,
    /// Its transaction number: 32 bytes.
    pub xaction: *mut c_uchar,
    /// Its subscription.
    pub sub_id: c_int,
    /// What the system said, if the state is not good.
    pub tp_state: c_int,
    // What follows is not for programs.
    tp_buf: *mut c_void,
    header: *mut c_void,
    id: *mut c_uchar,
    flags: c_int,
    alloc_len: c_int,
    ring: *mut c_void,
    rts_fd: c_int,
    cookie: c_int,
}

/// A message with its bytes. A program's pointer to the first is a pointer to this.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    /// What the program sees.
    pub mbuf: Mbuf,
    /// All that is sent, and room for more payload.
    bytes: Vec<u8>,
    /// Bytes of the header, of the trace data, and of the two other data.
    parts: [usize; 3],
}

// SAFETY: the pointers point into `bytes`, which goes along.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A message without a payload, but with room for one. `None` if that would be too long.
    pub(crate) fn new(payload: usize, trace: usize, source: &Source) -> Option<Box<Self>> {
        if payload > MAX_ROOM || trace > MAX_ROOM {
            return None;
        }
        let parts = [HEADER, trace, DATA_1];
        let mut made = Self::of(vec![0; TRANSPORT + parts.iter().sum::<usize>() + payload], parts);
        made.clear(source);
        Some(made)
    }

    /// A message that has come.
    pub(crate) fn received(frame: &Frame<'_>) -> Box<Self> {
        let parts = frame.parts();
        let mut made = Self::of(frame.bytes().to_vec(), parts);
        made.mbuf.mtype = frame.kind();
        made.mbuf.sub_id = frame.subscription();
        made.mbuf.len = frame.payload().len() as c_int;
        made
    }

    fn of(bytes: Vec<u8>, parts: [usize; 3]) -> Box<Self> {
        let null = std::ptr::null_mut();
        let mbuf = Mbuf {
            state: state::OK,
            mtype: -1,
            len: 0,
            payload: null,
            xaction: null,
            sub_id: -1,
            tp_state: 0,
            tp_buf: null.cast(),
            header: null.cast(),
            id: null,
            flags: 0,
            alloc_len: 0,
            ring: null.cast(),
            rts_fd: -1,
            cookie: COOKIE,
        };
        let mut made = Box::new(Self { mbuf, bytes, parts });
        made.point();
        made
    }

    /// Lets the structure point to the bytes.
    fn point(&mut self) {
        let payload = self.payload_begins();
        let (mbuf, bytes) = (&mut self.mbuf, &mut self.bytes);
        mbuf.alloc_len = bytes.len() as c_int;
        mbuf.tp_buf = bytes.as_mut_ptr().cast();
        mbuf.payload = bytes[payload..].as_mut_ptr();
        mbuf.header = bytes[TRANSPORT..].as_mut_ptr().cast();
        mbuf.xaction = bytes[TRANSPORT + places::TRANSACTION..].as_mut_ptr();
    }

    /// Makes it a message that was not sent yet, with the same room.
    pub(crate) fn clear(&mut self, source: &Source) {
        let trace = vec![0; self.parts[1]];
        let room = self.room();
        let fields = Fields {
            kind: -1,
            subscription: -1,
            transaction: &[],
            entity: &[],
            trace: &trace,
            call: 0,
            source: source.name.as_bytes(),
            source_address: source.address.as_bytes(),
        };
        let mut head = Vec::new();
        fields.write(room, &mut |bytes| head.extend_from_slice(bytes));
        let payload = self.payload_begins();
        if head.len() == payload {
            self.bytes[..payload].copy_from_slice(&head);
        } else {
            // It came with other parts than are written here.
            head.resize(head.len() + room, 0);
            self.bytes = head;
            self.parts = [HEADER, self.parts[1], DATA_1];
        }
        self.mbuf.mtype = -1;
        self.mbuf.sub_id = -1;
        self.mbuf.len = 0;
        self.mbuf.state = state::OK;
        self.point();
    }

    /// Bytes of payload that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.payload_begins()
    }

    fn payload_begins(&self) -> usize {
        TRANSPORT + self.parts.iter().sum::<usize>()
    }

    /// Bytes of the payload that are used, as far as there is room for them.
    pub(crate) fn used(&self) -> usize {
        usize::try_from(self.mbuf.len).unwrap_or(0).min(self.room())
    }

    /// The room for the payload.
    pub(crate) fn payload(&mut self) -> &mut [u8] {
        let begin = self.payload_begins();
        &mut self.bytes[begin..]
    }

    fn trace_range(&self) -> std::ops::Range<usize> {
        let begin = TRANSPORT + self.parts[0];
        begin..begin + self.parts[1]
    }

    /// The trace data.
    pub(crate) fn trace(&mut self) -> &mut [u8] {
        let range = self.trace_range();
        &mut self.bytes[range]
    }

    /// A field of the header.
    pub(crate) fn field(&mut self, place: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[TRANSPORT + place..][..len]
    }

    /// The transaction number.
    pub(crate) fn transaction(&self) -> [u8; TRANSACTION] {
        let mut number = [0; TRANSACTION];
        number.copy_from_slice(&self.bytes[TRANSPORT + places::TRANSACTION..][..TRANSACTION]);
        number
    }

    /// Where replies go: the text of a field of the header that ends with a zero.
    pub(crate) fn text(&mut self, place: usize) -> String {
        let len = if place == places::ENTITY { ENTITY } else { SOURCE };
        let field = self.field(place, len);
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(len);
        String::from_utf8_lossy(&field[..end]).into_owned()
    }

    /// Whether the header has the sender's address.
    pub(crate) fn has_address(&self) -> bool {
        self.parts[0] >= HEADER
    }

    /// Sets the number of a call, and whether it is one. `false` if there is no room for a number.
    pub(crate) fn set_call(&mut self, number: Option<u8>, is_call: bool) -> bool {
        let flags = self.field(places::FLAGS, 4);
        let before = u32::from_ne_bytes([flags[0], flags[1], flags[2], flags[3]]);
        let after = if is_call { before | CALL } else { before & !CALL };
        flags.copy_from_slice(&after.to_ne_bytes());
        let Some(number) = number else { return true };
        let at = self.trace_range().end;
        let has_room = self.parts[2] > 0;
        if has_room {
            self.bytes[at] = number;
        }
        has_room
    }

    /// Replaces the sender, and returns the one before.
    pub(crate) fn set_source(&mut self, source: &Source) -> Source {
        let before = Source { name: self.text(places::SOURCE), address: String::new() };
        put_text(self.field(places::SOURCE, SOURCE), &source.name);
        if !self.has_address() {
            return before;
        }
        let address = self.text(places::SOURCE_ADDRESS);
        put_text(self.field(places::SOURCE_ADDRESS, SOURCE), &source.address);
        Source { address, ..before }
    }

    /// All that is to be sent.
    pub(crate) fn outgoing(&mut self) -> &[u8] {
        let len = self.payload_begins() + self.used();
        write_length(&mut self.bytes, len);
        let (kind, subscription, used) = (self.mbuf.mtype, self.mbuf.sub_id, self.used() as i32);
        for (place, number) in
            [(places::KIND, kind), (places::SUBSCRIPTION, subscription), (places::PAYLOAD_LENGTH, used)]
        {
            self.field(place, 4).copy_from_slice(&number.to_be_bytes());
        }
        &self.bytes[..len]
    }

    /// Makes other room, for trace data of `trace` bytes and a payload. Everything else is kept, as much as fits.
    /// `false` if that would be too long.
    pub(crate) fn resize(&mut self, trace: usize, payload: usize) -> bool {
        if trace > MAX_ROOM || payload > MAX_ROOM {
            return false;
        }
        let old = self.payload_begins();
        let range = self.trace_range();
        let kept = payload.min(self.bytes.len() - old);
        let mut bytes = self.bytes[..range.start].to_vec();
        bytes.extend_from_slice(&self.bytes[range.start..range.start + trace.min(range.len())]);
        bytes.resize(range.start + trace, 0);
        bytes.extend_from_slice(&self.bytes[range.end..old]);
        bytes.extend_from_slice(&self.bytes[old..old + kept]);
        bytes.resize(bytes.len() + payload - kept, 0);
        self.bytes = bytes;
        self.parts[1] = trace;
        self.field(places::TRACE_LENGTH, 4).copy_from_slice(&(trace as u32).to_be_bytes());
        self.point();
        true
    }

    /// Another one that is the same.
    pub(crate) fn copied(&mut self) -> Box<Self> {
        let mut made = Self::of(self.bytes.clone(), self.parts);
        made.mbuf.mtype = self.mbuf.mtype;
        made.mbuf.sub_id = self.mbuf.sub_id;
        made.mbuf.len = self.mbuf.len;
        made.mbuf.state = self.mbuf.state;
        made
    }

    /// Sets the state and what the system said.
    pub(crate) fn set_state(&mut self, state: c_int, said: c_int) {
        self.mbuf.state = state;
        self.mbuf.tp_state = said;
        set_errno(said);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.mbuf.cookie = 0;
    }
}

/// Where a program takes messages: by name and by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    pub(crate) name: String,
    pub(crate) address: String,
}

/// Writes a text and zeros into a field, which keeps one zero at its end.
fn put_text(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len() - 1);
    field.fill(0);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// The message that a program names; `None` for a null pointer, and for a message that was freed and not yet overwritten.
pub(crate) fn named<'a>(message: *mut Mbuf) -> Option<&'a mut Buffer> {
    // SAFETY: programs pass null, or what a function of this library has returned and they have not freed.
    let buffer = unsafe { message.cast::<Buffer>().as_mut() };
    buffer.filter(|buffer| buffer.mbuf.cookie == COOKIE)
}

/// Takes a message from a program for good.
pub(crate) fn taken(message: *mut Mbuf) -> Option<Box<Buffer>> {
    named(message)?;
    // SAFETY: as in `named`; and it was made by `given`.
    Some(unsafe { Box::from_raw(message.cast::<Buffer>()) })
}

/// Gives a message to a program.
pub(crate) fn given(buffer: Option<Box<Buffer>>) -> *mut Mbuf {
    buffer.map_or(std::ptr::null_mut(), |buffer| Box::into_raw(buffer).cast())
}

/// Sets what the program finds in `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library says where this thread's is.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: nobody else uses it.
    unsafe { *place = number };
}

/// Runs a function of the interface. What it returns after a panic is `otherwise`.
pub(crate) fn at_border<R>(otherwise: R, run: impl FnOnce() -> R) -> R {
    contained(run).unwrap_or_else(|_| {
        set_errno(libc::EFAULT);
        otherwise
    })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_layout_is_that_of_the_header() {
        let offsets = [
            offset_of!(Mbuf, state),
            offset_of!(Mbuf, mtype),
            offset_of!(Mbuf, len),
            offset_of!(Mbuf, payload),
            offset_of!(Mbuf, xaction),
            offset_of!(Mbuf, sub_id),
            offset_of!(Mbuf, tp_state),
            offset_of!(Mbuf, tp_buf),
            offset_of!(Mbuf, header),
            offset_of!(Mbuf, id),
            offset_of!(Mbuf, flags),
            offset_of!(Mbuf, alloc_len),
            offset_of!(Mbuf, ring),
            offset_of!(Mbuf, rts_fd),
            offset_of!(Mbuf, cookie),
            size_of::<Mbuf>(),
        ];
        assert_eq!(offsets, [0, 4, 8, 16, 24, 32, 36, 40, 48, 56, 64, 68, 72, 80, 84, 88]);
    }

    #[test]
    fn a_message_keeps_what_it_has_when_its_room_changes() {
        let source = Source { name: "a:1".to_owned(), address: "b:1".to_owned() };
        let mut buffer = Buffer::new(10, 3, &source).unwrap();
        buffer.trace().copy_from_slice(b"abc");
        buffer.payload().copy_from_slice(b"0123456789");
        buffer.mbuf.len = 99; // more than there is
        buffer.mbuf.mtype = 7;
        assert!(buffer.set_call(Some(5), true));
        assert!(buffer.resize(5, 20));
        let bytes = buffer.outgoing().to_vec();
        let frame = Frame::read(&bytes).unwrap();
        assert_eq!((frame.kind(), frame.trace(), frame.call(), frame.is_call()), (7, &b"abc\0\0"[..], 5, true));
        assert_eq!(frame.payload(), b"0123456789\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(frame.source(), b"a:1");
        let mut again = Buffer::received(&frame);
        assert_eq!((again.used(), again.mbuf.mtype), (20, 7));
        assert_eq!(again.set_source(&Source::default()), source);
        again.clear(&source);
        assert_eq!((again.room(), again.mbuf.len, again.mbuf.mtype), (20, 0, -1));
    }
}
