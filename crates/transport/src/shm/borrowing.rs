//! Buffers that the peer has lent: which it has shown, where they are mapped, and when they go back.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::peer_socket::PeerSocket;
use nearcall_ring::{Mapping, Segment};
use smallvec::SmallVec;

use super::reference::Reference;
use super::socket::{Announced, Inbox};
use crate::errors::LinkError;
use crate::limits::budget::{Account, KeptBytes};
use crate::link::PART;
use crate::memory::{Debt, Lease, Window};

/// Bytes of buffers that stay mapped for one connection, in addition to two of the longest messages. Of other buffers,
/// only the part that a message needs is mapped, for that message.
const KEPT_BYTES: u64 = 32 << 20;
const PAGE: u64 = 4096;

/// A buffer that the peer has shown.
#[derive(Debug)]
struct Known {
    debt: Arc<Debt>,
    size: u64,
    /// For mapping the buffer; `None` once all of it stays mapped.
    fd: Option<OwnedFd>,
    window: Option<Arc<Window>>,
    /// Which parts of the window the system was already asked to make present.
    present: Vec<bool>,
}

/// The peer's buffers on one connection.
#[derive(Debug)]
pub(super) struct Borrowed {
    segment: Segment,
    link: u64,
    /// The buffers, by their numbers modulo [`Segment::BUFFERS`].
    known: HashMap<usize, Known>,
    /// How many of them are mapped in part, for the message that is being read.
    parts: usize,
    kept_bytes: u64,
    account: Arc<Account>,
}

impl Borrowed {
    pub(super) fn new(segment: Segment, link: u64, account: Arc<Account>) -> Self {
        Self { segment, link, known: HashMap::new(), parts: 0, kept_bytes: 0, account }
    }

    /// Forgets all buffers.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        (self.parts, self.kept_bytes) = (0, 0);
    }

    /// Makes the parts of buffers that a note names ready to be read, a part at a time. Whether all are ready; if not,
    /// call again. `limit` is the longest message that this side accepts.
    pub(super) fn prepare(
        &mut self,
        references: &[Reference],
        limit: u64,
        inbox: &mut Inbox,
        socket: &PeerSocket,
    ) -> Result<bool, LinkError> {
        if self.parts > 0 {
            // A peer that changes its note in between does not get more parts filled.
            self.forget_parts(|number| !references.iter().any(|reference| reference.number == number));
        }
        let mut ready = true;
        for reference in references {
            ready &= self.prepare_one(reference, limit, inbox, socket)?;
        }
        Ok(ready)
    }

    fn prepare_one(
        &mut self,
        reference: &Reference,
        limit: u64,
        inbox: &mut Inbox,
        socket: &PeerSocket,
    ) -> Result<bool, LinkError> {
        let Reference { number, offset, len, .. } = *reference;
        if self.known.get(&index_of(number)).is_none_or(|known| known.debt.number() != number) {
            let shown = inbox.shown(socket, number)?;
            self.learn(shown)?;
        }
        let known = self.known.get_mut(&index_of(number)).expect("learnt above, if not before");
        if offset.checked_add(len).is_none_or(|end| end > known.size) {
            return Err(LinkError::Broken("the peer speaks of more of a buffer than there is".into()));
        }
        let window = match &known.window {
            Some(window) if window.shows(offset, len) => window,
            before => {
                let fd = known.fd.as_ref().expect("a window of all of it shows everything");
                let most = limit.saturating_mul(2).saturating_add(KEPT_BYTES);
                let whole = usize::try_from(known.size).ok().filter(|_| self.kept_bytes + known.size <= most);
                let kept = whole.and_then(|whole| Some((whole, KeptBytes::of(&self.account, whole)?)));
                let window = if let Some((whole, kept)) = kept {
                    let window = Window::open(fd, 0, whole, &known.debt, Some(kept))?;
                    known.fd = None;
                    self.kept_bytes += known.size;
                    window
                } else {
                    // A message may name several parts.
                    let (mut from, mut end) = (offset & !(PAGE - 1), offset + len);
                    if let Some(before) = before {
                        from = from.min(before.from());
                        end = end.max(before.from() + before.mapping().len() as u64);
                    }
                    self.parts += usize::from(before.is_none());
                    let len = usize::try_from(end - from).unwrap_or(usize::MAX);
                    Window::open(fd, from, len, &known.debt, None)?
                };
                known.present.clear();
                known.window = Some(window);
                return Ok(false);
            }
        };
        // Fits in `usize`, because it lies inside the mapping.
        let inside = (offset - window.from()) as usize;
        let parts = inside / PART..=(inside + len as usize - 1) / PART;
        if known.present.len() <= *parts.end() {
            known.present.resize(parts.end() + 1, false);
        }
        let Some(missing) = parts.clone().find(|&part| !known.present[part]) else { return Ok(true) };
        let asked = window.mapping().populate(missing * PART, (missing + 1) * PART);
        asked.map_err(|error| LinkError::no_memory(len as usize, error))?;
        known.present[missing] = true;
        Ok(missing == *parts.end())
    }

    /// Leases of the parts that were made [ready](Borrowed::prepare) for these references.
    pub(super) fn take(&mut self, references: &[Reference]) -> SmallVec<[Lease; 2]> {
        let leases = references.iter().map(|reference| {
            let known = &self.known[&index_of(reference.number)];
            let window = Arc::clone(known.window.as_ref().expect("made ready"));
            let inside = (reference.offset - window.from()) as usize;
            Lease::lent(window, known.debt.borrow(), inside, reference.len as usize)
        });
        let leases = leases.collect();
        if self.parts > 0 {
            self.forget_parts(|_| true);
        }
        leases
    }

    /// Drops windows of parts of buffers. Leases keep theirs.
    fn forget_parts(&mut self, which: impl Fn(u32) -> bool) {
        for known in self.known.values_mut().filter(|known| known.fd.is_some()) {
            if known.window.is_some() && which(known.debt.number()) {
                known.window = None;
                self.parts -= 1;
            }
        }
    }

    /// The peer has shown a buffer. It replaces the buffer with the same number modulo [`Segment::BUFFERS`].
    fn learn(&mut self, shown: Announced) -> Result<(), LinkError> {
        let Announced { id: number, size, fd, .. } = shown;
        Mapping::check_shown(fd.as_fd(), size)?;
        let debt = Debt::new(self.segment.clone(), self.link, number);
        let known = Known { debt, size, fd: Some(fd), window: None, present: Vec::new() };
        if let Some(before) = self.known.insert(index_of(number), known) {
            match before.fd {
                None => self.kept_bytes -= before.size,
                Some(_) => self.parts -= usize::from(before.window.is_some()),
            }
        }
        Ok(())
    }
}

/// The place of the buffer with this number.
fn index_of(number: u32) -> usize {
    number as usize % Segment::BUFFERS
}
