//! What other threads leave for the receiving thread, and what that thread leaves for itself until later: one box, which
//! it empties whenever it is woken.
//!
//! A peer cannot fill it: there is at most one entry of each kind for a connection. Hooks are left for begins and ends of
//! sessions, and for objects that the peer was given; both are limited.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::descriptors::{self, Alarm, EventDescriptor};
use nearcall_platform::lock::Mutex;

/// What there is to do about a connection, a handshake or a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::server) enum News {
    /// There may be something to receive, or room again to send. The poller does not tell of it: there is no descriptor; or
    /// a thread has sent over shared memory what others had queued, and only that thread knows.
    Look,
    /// The hook for the begin of the session has returned: the server may read from the client.
    Admitted,
    /// Calls of the connection wait until memory is freed, by whomever. What comes over the connection lets them go on, too;
    /// but its client may have nothing to say before they do.
    WantsMemory,
    /// Items of streams were kept back long enough.
    KeptBack,
    /// The client has hung up, and what it has left has waited for room for long.
    Left,
    /// A time has come that was set for this.
    Due,
}

/// About what there is news: the poller's token, and the kind.
type About = (u64, News);

/// The box. `H` is a hook that a worker is to run.
#[derive(Debug)]
pub(in crate::server) struct Mailbox<H> {
    mail: Mutex<Mail<H>>,
    /// Wakes the receiving thread out of the system's poller.
    wake: Arc<EventDescriptor>,
    /// Wakes it later. An alarm, because it also wakes an event loop that sleeps at the poller.
    alarm: Alarm,
}

#[derive(Debug)]
struct Mail<H> {
    news: BTreeSet<About>,
    /// What becomes news later, in order, and the same by what it is about.
    later: BTreeSet<(Instant, About)>,
    times: HashMap<About, Instant>,
    /// When the alarm rings, if it is set.
    rings: Option<Instant>,
    /// Clients of this process for which the server is to receive.
    clients: Vec<Box<dyn Any + Send>>,
    hooks: VecDeque<H>,
    /// How many hooks were taken out, and have not returned.
    running: usize,
    /// A hook has stopped the server, which does not wait for that hook.
    spared: usize,
    /// The receiving thread was woken since it last took the mail.
    told: bool,
}

/// What the receiving thread takes out.
pub(in crate::server) struct TakenMail<H> {
    pub(in crate::server) news: BTreeSet<About>,
    pub(in crate::server) clients: Vec<Box<dyn Any + Send>>,
    pub(in crate::server) hooks: Vec<(H, Running<H>)>,
}

/// A hook that was taken out, until it has returned.
#[derive(Debug)]
pub(in crate::server) struct Running<H>(pub(in crate::server) Arc<Mailbox<H>>);

impl<H> Mailbox<H> {
    pub(in crate::server) fn new() -> io::Result<Arc<Self>> {
        let mail = Mail {
            news: BTreeSet::new(),
            later: BTreeSet::new(),
            times: HashMap::new(),
            rings: None,
            clients: Vec::new(),
            hooks: VecDeque::new(),
            running: 0,
            spared: 0,
            told: false,
        };
        let (wake, alarm) = (Arc::new(descriptors::new_event()?), descriptors::new_alarm()?);
        Ok(Arc::new(Self { mail: Mutex::new(mail), wake, alarm }))
    }

    /// Readable when the mail is to be taken.
    pub(in crate::server) fn descriptors(&self) -> [&EventDescriptor; 2] {
        [&self.wake, &self.alarm]
    }

    /// For what wakes the receiving thread without mail.
    pub(in crate::server) fn waker(&self) -> Weak<EventDescriptor> {
        Arc::downgrade(&self.wake)
    }

    /// Puts something in, and wakes the receiving thread, unless it was woken since it last took the mail.
    fn put(&self, put: impl FnOnce(&mut Mail<H>)) {
        let mut mail = self.mail.lock();
        put(&mut mail);
        if !std::mem::replace(&mut mail.told, true) {
            drop(mail);
            descriptors::signal(&self.wake);
        }
    }

    /// Wakes the receiving thread: it is to look at the server's state.
    pub(in crate::server) fn wake(&self) {
        self.put(|_| {});
    }

    /// Tells the receiving thread of something.
    #[cold]
    pub(in crate::server) fn tell(&self, token: u64, news: News) {
        self.put(|mail| _ = mail.news.insert((token, news)));
    }

    /// The same, but only when this time has come; if there is such news later, then at the earlier of both times.
    #[cold]
    pub(in crate::server) fn tell_at(&self, at: Instant, token: u64, news: News) {
        let (about, mut mail) = ((token, news), self.mail.lock());
        if let Some(&before) = mail.times.get(&about) {
            if before <= at {
                return;
            }
            mail.later.remove(&(before, about));
        }
        mail.times.insert(about, at);
        mail.later.insert((at, about));
        self.ring_for_first(&mut mail);
    }

    /// That time need not be waited for any longer.
    pub(in crate::server) fn cancel(&self, token: u64, news: News) {
        let (about, mut mail) = ((token, news), self.mail.lock());
        if let Some(at) = mail.times.remove(&about) {
            mail.later.remove(&(at, about));
        }
    }

    /// Sets the alarm, unless it rings early enough.
    fn ring_for_first(&self, mail: &mut Mail<H>) {
        let Some(&(first, _)) = mail.later.first() else { return };
        if mail.rings.is_none_or(|rings| first < rings) {
            mail.rings = Some(first);
            // An alarm that is set to 0 never rings.
            let left = first.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            descriptors::set_alarm(&self.alarm, left);
        }
    }

    /// Leaves a client of this process.
    pub(in crate::server) fn leave_client(&self, client: Box<dyn Any + Send>) {
        self.put(|mail| mail.clients.push(client));
    }

    /// The client is not to be had yet: it is left without a wake-up, for when the mail is taken next.
    pub(in crate::server) fn put_client_back(&self, client: Box<dyn Any + Send>) {
        self.mail.lock().clients.push(client);
    }

    /// Leaves a hook, to be run by a worker.
    pub(in crate::server) fn leave_hook(&self, hook: H) {
        self.put(|mail| mail.hooks.push_back(hook));
    }

    /// Takes all mail; for the receiving thread. `rang`: it was woken by the alarm.
    pub(in crate::server) fn take(self: &Arc<Self>, rang: bool) -> TakenMail<H> {
        let mut mail = self.mail.lock();
        descriptors::clear(if rang { &self.alarm } else { &self.wake });
        if rang {
            mail.rings = None;
        } else {
            mail.told = false;
        }
        if !mail.later.is_empty() {
            let now = Instant::now();
            while let Some(&(at, about)) = mail.later.first().filter(|(at, _)| *at <= now) {
                mail.later.remove(&(at, about));
                mail.times.remove(&about);
                mail.news.insert(about);
            }
            self.ring_for_first(&mut mail);
        }
        let hooks = std::mem::take(&mut mail.hooks);
        mail.running += hooks.len();
        let hooks = hooks.into_iter().map(|hook| (hook, Running(Arc::clone(self)))).collect();
        TakenMail { news: std::mem::take(&mut mail.news), clients: std::mem::take(&mut mail.clients), hooks }
    }

    /// Takes a hook that nobody runs; for the thread that has stopped the server.
    pub(in crate::server) fn take_hook(self: &Arc<Self>) -> Option<(H, Running<H>)> {
        let mut mail = self.mail.lock();
        let hook = mail.hooks.pop_front()?;
        mail.running += 1;
        Some((hook, Running(Arc::clone(self))))
    }

    /// Whether the thread that stops the server is in a hook, which it does not wait for.
    pub(in crate::server) fn spare_hook(&self, in_hook: bool) {
        self.mail.lock().spared = usize::from(in_hook);
    }

    /// Whether no hook waits or runs.
    pub(in crate::server) fn hooks_are_over(&self) -> bool {
        let mail = self.mail.lock();
        mail.hooks.len() + mail.running <= mail.spared
    }
}

impl<H> Drop for Running<H> {
    fn drop(&mut self) {
        self.0.mail.lock().running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_kind_is_told_once_and_in_time() {
        let mailbox = Mailbox::<()>::new().expect("descriptors");
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        for _ in 0..3 {
            mailbox.tell(7, News::Look);
            mailbox.tell_at(now + hour, 7, News::Due);
            mailbox.tell_at(now, 8, News::Due);
            mailbox.tell_at(now + hour, 9, News::Due);
        }
        mailbox.tell_at(now, 7, News::Due);
        mailbox.cancel(8, News::Due);
        assert_eq!(Vec::from_iter(mailbox.take(true).news), [(7, News::Look), (7, News::Due)]);
        assert!(mailbox.take(false).news.is_empty());
        mailbox.cancel(9, News::Due);
        let mail = mailbox.mail.lock();
        assert!(mail.later.is_empty() && mail.times.is_empty());
    }

    #[test]
    fn hooks_are_over_when_all_have_returned_but_the_one_that_stops() {
        let mailbox = Mailbox::new().expect("descriptors");
        mailbox.leave_hook(1);
        mailbox.leave_hook(2);
        let mut hooks = mailbox.take(false).hooks;
        assert!(!mailbox.hooks_are_over() && mailbox.take_hook().is_none());
        assert_eq!(hooks.pop().map(|(hook, _)| hook), Some(2));
        assert!(!mailbox.hooks_are_over());
        mailbox.spare_hook(true);
        assert!(mailbox.hooks_are_over());
        mailbox.leave_hook(3);
        assert!(!mailbox.hooks_are_over());
        assert_eq!(mailbox.take_hook().map(|(hook, _)| hook), Some(3));
        assert!(mailbox.hooks_are_over());
    }
}
