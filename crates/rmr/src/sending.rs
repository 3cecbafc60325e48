//! The functions that send.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::Passed;
use nearcall_route::rmr::Link;
use nearcall_route::rmr::frame::places;
use nearcall_route::table::Group;

use crate::buffer::{Buffer, Mbuf, at_border, given, named, set_errno, state, taken};
use crate::context::{self, Context};
use crate::sync::Ordering;

/// The number of the calls of `rmr_call`, and how long it waits.
const PLAIN_CALL: u8 = 1;
const PLAIN_PATIENCE: c_int = 1000;

/// Sends over one way. Says in the message what became of it.
pub(crate) fn send_over(context: &Context, link: &Link, buffer: &mut Buffer) -> bool {
    // Relaxed: a number that a program sets before it sends.
    let patience = context.patience.load(Ordering::Relaxed).max(0);
    let until = Instant::now() + Duration::from_millis(patience as u64);
    // A connection that the other side has closed is found out only now: once more, with a new one.
    for attempt in 0..2 {
        let outlet = match link.connect() {
            Ok(outlet) => outlet,
            Err(_) if attempt == 0 => {
                buffer.set_state(state::NOENDPT, libc::ENXIO);
                return false;
            }
            Err(_) => break,
        };
        let mut go_on = || patience > 0 && Instant::now() < until;
        match outlet.send(&[buffer.outgoing(), &[]], Some(&mut go_on)) {
            Ok(Passed::Sent | Passed::Begun) => {
                buffer.set_state(state::OK, 0);
                return true;
            }
            Ok(Passed::NoRoom) => {
                buffer.set_state(state::RETRY, libc::EAGAIN);
                return false;
            }
            Err(_) => {}
        }
    }
    buffer.set_state(state::SENDFAILED, libc::ENOTCONN);
    false
}

/// Sends where the table says: to one of each group.
fn send_by_table(context: &Context, buffer: &mut Buffer) -> bool {
    let in_force = context.table.load();
    let route = in_force.as_ref().and_then(|in_force| in_force.table.lookup(buffer.mbuf.mtype, buffer.mbuf.sub_id));
    let (Some(in_force), Some(route)) = (in_force.as_ref(), route) else {
        buffer.set_state(state::NOENDPT, libc::ENXIO);
        return false;
    };
    if route.by_entity {
        let owner = in_force.table.owner(&buffer.text(places::ENTITY));
        let Some(owner) = owner else {
            buffer.set_state(state::NOENDPT, libc::ENXIO);
            return false;
        };
        return send_over(context, &in_force.links[owner.0 as usize], buffer);
    }
    let mut sent = 0;
    for group in &route.groups {
        sent += usize::from(send_to_group(context, &in_force.links, group, buffer));
    }
    if sent > 0 {
        buffer.set_state(state::OK, 0);
    } else if route.groups.is_empty() {
        buffer.set_state(state::NOENDPT, libc::ENXIO);
    }
    sent > 0
}

/// Sends to the member whose turn it is; to the next if that is not there.
fn send_to_group(context: &Context, links: &[Arc<Link>], group: &Group, buffer: &mut Buffer) -> bool {
    let first = group.next();
    for number in 0..group.members.len() {
        let member = group.members[(first + number) % group.members.len()];
        if send_over(context, &links[member.0 as usize], buffer) {
            return true;
        }
        if buffer.mbuf.state == state::RETRY {
            return false;
        }
    }
    false
}

/// Sends a message back to where it came from: to its sender by name, and if that is not there, by address.
pub(crate) fn return_to_sender(context: &Context, buffer: &mut Buffer) -> bool {
    let _ = buffer.set_call(None, false);
    let sender = buffer.set_source(&context.source);
    let mut sent = false;
    for place in [&sender.name, &sender.address] {
        if !sent && !place.is_empty() && buffer.mbuf.state != state::RETRY {
            sent = send_over(context, &context.link(place), buffer);
        } else if place.is_empty() && !sent && buffer.mbuf.state == state::OK {
            buffer.set_state(state::NOENDPT, libc::ENXIO);
        }
    }
    if sent {
        buffer.clear(&context.source);
    }
    // Whoever sends it back once more sends it to the same.
    buffer.set_source(&sender);
    sent
}

/// Does something with a context and a message, both of which must be there. Returns the message.
fn with(context: *mut c_void, message: *mut Mbuf, run: impl FnOnce(&Arc<Context>, &mut Buffer)) -> *mut Mbuf {
    at_border(message, || {
        let Some(buffer) = named(message) else {
            set_errno(libc::EINVAL);
            return std::ptr::null_mut();
        };
        match context::named(context) {
            Some(context) => {
                // What was said of the message before is over.
                buffer.set_state(state::OK, 0);
                run(context, buffer);
            }
            None => buffer.set_state(state::BADARG, libc::EINVAL),
        }
        message
    })
}

/// Sends as no call, and gives the message back for the next.
fn send_plain(context: &Context, buffer: &mut Buffer, send: impl FnOnce(&Context, &mut Buffer) -> bool) {
    let _ = buffer.set_call(Some(0), false);
    buffer.set_source(&context.source);
    if send(context, buffer) {
        buffer.clear(&context.source);
    }
}

/// Sends a message, and waits for the reply to it. Null if none comes.
fn call(
    context: *mut c_void,
    message: *mut Mbuf,
    number: c_int,
    patience: c_int,
    send: impl FnOnce(&Context, &mut Buffer) -> bool,
) -> *mut Mbuf {
    let mut reply = None;
    let message = with(context, message, |context, buffer| {
        let Ok(number) = u8::try_from(number) else { return buffer.set_state(state::BADARG, libc::EINVAL) };
        if !buffer.set_call(Some(number), true) {
            return buffer.set_state(state::CALLFAILED, libc::EINVAL);
        }
        buffer.set_source(&context.source);
        context.arrivals.calls.begin(number, buffer.transaction());
        if !send(context, buffer) {
            return context.arrivals.calls.end(number);
        }
        let patience = u64::try_from(patience).ok().map(Duration::from_millis);
        reply = Some(context.arrivals.calls.wait(number, patience));
    });
    let Some(reply) = reply else { return message };
    at_border(std::ptr::null_mut(), || {
        // The reply takes the message's place.
        drop(taken(message));
        set_errno(if reply.is_some() { 0 } else { libc::ETIMEDOUT });
        given(reply)
    })
}

/// `rmr_send_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_send_msg(context: *mut c_void, message: *mut Mbuf) -> *mut Mbuf {
    with(context, message, |context, buffer| send_plain(context, buffer, send_by_table))
}

/// `rmr_mtosend_msg`: as `rmr_send_msg`; waits as the context is set to.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_mtosend_msg(context: *mut c_void, message: *mut Mbuf, _most: c_int) -> *mut Mbuf {
    rmr_send_msg(context, message)
}

/// `rmr_rts_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_rts_msg(context: *mut c_void, message: *mut Mbuf) -> *mut Mbuf {
    with(context, message, |context, buffer| _ = return_to_sender(context, buffer))
}

/// `rmr_call`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_call(context: *mut c_void, message: *mut Mbuf) -> *mut Mbuf {
    call(context, message, PLAIN_CALL.into(), PLAIN_PATIENCE, send_by_table)
}

/// `rmr_mt_call`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_mt_call(context: *mut c_void, message: *mut Mbuf, number: c_int, most: c_int) -> *mut Mbuf {
    // 0 and 1 are not for programs.
    call(context, message, if number < 2 { -1 } else { number }, most, send_by_table)
}

/// `rmr_wh_open`.
///
/// # Safety
/// `target` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmr_wh_open(context: *mut c_void, target: *const c_char) -> c_int {
    at_border(-1, || {
        let (Some(context), false) = (context::named(context), target.is_null()) else {
            set_errno(libc::EINVAL);
            return -1;
        };
        // SAFETY: the caller promises it.
        let target = unsafe { CStr::from_ptr(target) }.to_string_lossy();
        if target.is_empty() {
            set_errno(libc::EINVAL);
            return -1;
        }
        let link = context.link(&target);
        if link.connect().is_err() {
            set_errno(libc::ECONNREFUSED);
            return -1;
        }
        set_errno(0);
        let mut wormholes = context.wormholes.lock();
        let same = |open: &Option<Arc<Link>>| open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &link));
        let place = wormholes.iter().position(same).or_else(|| wormholes.iter().position(Option::is_none));
        let place = place.unwrap_or_else(|| {
            wormholes.push(None);
            wormholes.len() - 1
        });
        wormholes[place] = Some(link);
        place as c_int
    })
}

/// The way that a number stands for, or the state that says why there is none.
fn wormhole(context: &Context, number: c_int) -> Result<Arc<Link>, c_int> {
    let wormholes = context.wormholes.lock();
    if wormholes.is_empty() {
        return Err(state::NOWHOPEN);
    }
    let found = usize::try_from(number).ok().and_then(|number| wormholes.get(number)?.clone());
    found.ok_or(state::WHID)
}

fn send_through(context: &Context, number: c_int, buffer: &mut Buffer) -> bool {
    match wormhole(context, number) {
        Ok(link) => send_over(context, &link, buffer),
        Err(state) => {
            buffer.set_state(state, libc::EINVAL);
            false
        }
    }
}

/// `rmr_wh_send_msg`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_wh_send_msg(context: *mut c_void, number: c_int, message: *mut Mbuf) -> *mut Mbuf {
    with(context, message, |context, buffer| {
        send_plain(context, buffer, |context, buffer| send_through(context, number, buffer));
    })
}

/// `rmr_wh_call`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_wh_call(
    context: *mut c_void,
    wormhole: c_int,
    message: *mut Mbuf,
    number: c_int,
    most: c_int,
) -> *mut Mbuf {
    call(context, message, number, most, |context, buffer| send_through(context, wormhole, buffer))
}

/// `rmr_wh_state`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_wh_state(context: *mut c_void, number: c_int) -> c_int {
    at_border(state::BADARG, || {
        let Some(context) = context::named(context) else {
            set_errno(libc::EINVAL);
            return state::BADARG;
        };
        match wormhole(context, number) {
            Ok(link) if link.current().is_some() => state::OK,
            Ok(_) => state::NOENDPT,
            Err(state) => state,
        }
    })
}

/// `rmr_wh_close`.
#[unsafe(no_mangle)]
pub extern "C" fn rmr_wh_close(context: *mut c_void, number: c_int) {
    at_border((), || {
        let Some(context) = context::named(context) else { return };
        let mut wormholes = context.wormholes.lock();
        if let Some(open) = usize::try_from(number).ok().and_then(|number| wormholes.get_mut(number)) {
            *open = None;
        }
    });
}
