//! Waiting for the first of several calls, which may be under way on several connections.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::clock::is_past;
use nearcall_platform::descriptors;

use crate::client::connection::{Connection, Inner, NoEvent};
use crate::client::receiving::Leader;
use crate::client::receiving::wait::{For, SIGNAL_CHECK};
use crate::client::table::CallId;

/// How long a thread that waits for several connections sleeps if another thread receives on one of them: then it
/// cannot sleep at all connections at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The awaited calls of one connection.
struct Group<'a> {
    connection: &'a Inner,
    ids: Vec<CallId>,
}

/// Waits until one of the calls, which may be on several connections, [has ended](Connection::has_ended). Takes none of
/// its frames. After a signal, and every 50 ms, it asks `go_on` whether to go on.
///
/// # Errors
/// [`NoEvent::DeadlinePassed`], [`NoEvent::Interrupted`] or [`NoEvent::Inherited`].
pub fn wait_for_first(
    calls: &[(Arc<Connection>, CallId)],
    deadline: Option<Instant>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), NoEvent> {
    let groups = by_connection(calls).ok_or(NoEvent::Inherited)?;
    if let [group] = &groups[..] {
        return group.connection.wait(For::End(&group.ids), deadline, go_on);
    }
    let mut begun = Instant::now();
    loop {
        groups.iter().map(|group| group.connection).for_each(Inner::look);
        if groups.iter().any(Group::has_ended) {
            return Ok(());
        }
        if is_past(deadline) {
            return Err(NoEvent::DeadlinePassed);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let interrupted = sleep(&groups, left.map_or(SIGNAL_CHECK, |left| left.min(SIGNAL_CHECK)));
        if interrupted || begun.elapsed() >= SIGNAL_CHECK {
            if !go_on() {
                return Err(NoEvent::Interrupted);
            }
            begun = Instant::now();
        }
    }
}

/// `None` if one of the calls is that of a process which this one was forked from.
fn by_connection(calls: &[(Arc<Connection>, CallId)]) -> Option<Vec<Group<'_>>> {
    let inner = calls.iter().map(|(connection, id)| Some((connection.inner()?, *id)));
    let mut calls = inner.collect::<Option<Vec<_>>>()?;
    calls.sort_by_key(|(connection, _)| std::ptr::from_ref(*connection).addr());
    let same = |one: &(&Inner, CallId), other: &(&Inner, CallId)| std::ptr::eq(one.0, other.0);
    let group = |calls: &[(&Inner, CallId)]| calls.iter().map(|(_, id)| *id).collect();
    Some(calls.chunk_by(same).map(|chunk| Group { connection: chunk[0].0, ids: group(chunk) }).collect())
}

impl Group<'_> {
    /// Whether one of the calls has ended, by what was received already.
    fn has_ended(&self) -> bool {
        self.connection.table.lock().any_has_ended(&self.ids)
    }
}

/// Sleeps until something may have come on one of the connections. Whether a signal came.
fn sleep(groups: &[Group<'_>], slice: Duration) -> bool {
    let mut leads: Vec<Leader<'_>> = Vec::with_capacity(groups.len());
    for group in groups {
        let Some(lead) = group.connection.try_lead() else {
            // Another thread, or a server, receives on this connection.
            drop(leads);
            let end = Some(Instant::now() + slice.min(LOOK_INTERVAL));
            return group.connection.wait(For::End(&group.ids), end, &mut || false) == Err(NoEvent::Interrupted);
        };
        leads.push(lead);
    }
    // The thread that received until now may have taken in what this thread waits for.
    if groups.iter().any(Group::has_ended) {
        return false;
    }
    let signals: io::Result<Vec<_>> = groups.iter().map(|group| group.connection.signal_fd()).collect();
    // All links are armed, also behind one that is not quiet: then all can be disarmed below.
    let mut quiet = true;
    for group in groups {
        quiet &= group.connection.link.arm();
    }
    let woken = signals.and_then(|fds| if quiet { descriptors::sleep_at(&fds, slice) } else { Ok(Vec::new()) });
    for group in groups {
        group.connection.stay_awake();
    }
    match woken {
        Ok(readable) => {
            for (leader, _) in leads.iter_mut().zip(readable).filter(|(_, readable)| *readable) {
                if let Err(error) = leader.inner.signalled() {
                    // Take in the frames that came before the connection's end.
                    leader.receive(None);
                    leader.inner.mark_lost(&error);
                }
            }
            false
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
        // Sleep for a moment instead: there is no other way to sleep at all links.
        Err(_) => {
            drop(leads);
            std::thread::sleep(slice.min(LOOK_INTERVAL));
            false
        }
    }
}
