//! Sends parts of a payload without a copy: those that lie in buffers of this side, and those that the peer sent
//! before.

use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_platform::peer_socket::PeerSocket;
use smallvec::SmallVec;

use super::lending::{Lending, Loan};
use super::reference::{self, Reference, References, Whose};
use crate::errors::LinkError;
use crate::memory::{self, Hold, Memory, Pages, RegionHold, Window};

/// Shorter parts are copied, which is cheaper.
const SHORTEST: usize = 4096;
/// When this many lent bytes wait to be read, the sender waits for the reader instead of using more memory.
const MOST_LENT: usize = 32 << 20;

/// Keeps memory of the peer's from going back before the peer has read the message that hands it back.
#[derive(Debug)]
pub(super) enum HeldForPeer {
    Buffer(#[expect(dead_code, reason = "it is there to be dropped")] Hold),
    Region(#[expect(dead_code, reason = "it is there to be dropped")] RegionHold),
}

/// What is kept for a message until the peer has read it, in order.
pub(super) type ForPeer = SmallVec<[HeldForPeer; 1]>;

#[derive(Debug)]
pub(super) struct Handover {
    lending: Arc<Lending>,
    /// The number of this connection.
    link: u64,
    /// Messages that the peer has not read yet, in order.
    under_way: VecDeque<UnderWay>,
    /// Bytes of this side's buffers in those messages.
    lent_bytes: usize,
}

#[derive(Debug)]
struct UnderWay {
    /// Where in the ring the message's note ends.
    position: u64,
    #[expect(dead_code, reason = "it is there to be dropped")]
    kept: ForPeer,
    lent: usize,
}

/// How a payload goes out.
#[derive(Debug)]
pub(super) struct Plan<'a, 'p> {
    pub(super) references: References,
    /// The pieces that are not handed over, and their length.
    pub(super) rest: SmallVec<[&'p [u8]; 4]>,
    pub(super) rest_len: usize,
    loans: SmallVec<[Loan<'a>; 2]>,
    /// Bytes that these loans lend.
    pub(super) lent: usize,
    kept: ForPeer,
}

impl Plan<'_, '_> {
    /// The note is in the ring: the loans stand until the peer gives the buffers back. Returns what to
    /// [keep](Handover::sent) for the message.
    pub(super) fn settle(self) -> ForPeer {
        self.loans.into_iter().for_each(Loan::keep);
        self.kept
    }
}

impl Handover {
    pub(super) fn new(lending: Arc<Lending>, link: u64) -> Self {
        Self { lending, link, under_way: VecDeque::new(), lent_bytes: 0 }
    }

    /// Plans how to send a payload of which some is handed over; `None` if nothing is. `room`: how many bytes of
    /// references the note can have.
    pub(super) fn plan<'p>(
        &self,
        payload: &[&'p [u8]],
        room: usize,
        socket: &PeerSocket,
    ) -> Result<Option<Plan<'_, 'p>>, LinkError> {
        if !self.lending.is_possible() || !memory::any() {
            return Ok(None);
        }
        let mut plan = Plan {
            references: References::new(),
            rest: SmallVec::new(),
            rest_len: 0,
            loans: SmallVec::new(),
            lent: 0,
            kept: SmallVec::new(),
        };
        let mut at = 0;
        for piece in payload {
            let count = plan.references.len();
            let may = piece.len() >= SHORTEST
                && count < reference::MAX_REFERENCES
                && reference::encoded_len(count + 1) <= room;
            if !(may && self.hand_over(piece, at, &mut plan, socket)?) {
                plan.rest.push(piece);
                plan.rest_len += piece.len();
            }
            at += piece.len() as u64;
        }
        Ok((!plan.references.is_empty()).then_some(plan))
    }

    /// Whether [`plan`](Self::plan) may find something to hand over.
    pub(super) fn may_plan(&self, payload: &[&[u8]]) -> bool {
        let may = self.lending.is_possible() && memory::any();
        may && payload.iter().any(|piece| piece.len() >= SHORTEST && find(piece).is_some())
    }

    /// Adds a reference to this part of the payload to the plan. `false` if the part has to be copied.
    fn hand_over<'a>(
        &'a self,
        piece: &[u8],
        at: u64,
        plan: &mut Plan<'a, '_>,
        socket: &PeerSocket,
    ) -> Result<bool, LinkError> {
        let address = piece.as_ptr().addr();
        let (whose, number, offset) = match find(piece) {
            Some(FoundMemory::Own(memory)) => {
                let Some(buffer) = memory.current() else { return Ok(false) };
                let Some(loan) = self.lending.lend(&buffer, socket)? else { return Ok(false) };
                let number = loan.number;
                plan.loans.push(loan);
                plan.lent += piece.len();
                (Whose::Sender, number, memory.offset_of(address) as u64)
            }
            Some(FoundMemory::Lent(window)) => {
                let Some((number, offset)) = window.place_at(self.link, address) else { return Ok(false) };
                let Some(hold) = window.hold() else { return Ok(false) };
                plan.kept.push(HeldForPeer::Buffer(hold));
                (Whose::Reader, number, offset)
            }
            Some(FoundMemory::Region(pages)) => {
                let Some((number, offset)) = pages.place_at(self.link, address) else { return Ok(false) };
                let Some(hold) = pages.hold() else { return Ok(false) };
                // Pages that went back to the system would be zeros for the peer, which may read them for as long as it likes.
                if !pages.keep() {
                    return Ok(false);
                }
                plan.kept.push(HeldForPeer::Region(hold));
                (Whose::ReaderRegion, number, offset)
            }
            None => return Ok(false),
        };
        plan.references.push(Reference { at, whose, number, offset, len: piece.len() as u64 });
        Ok(true)
    }

    /// Whether there are messages that the peer has not read.
    #[inline]
    pub(super) fn awaits_reader(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a message that lends `lent` bytes must wait for the reader.
    pub(super) fn must_wait(&self, lent: usize) -> bool {
        self.lent_bytes > 0 && self.lent_bytes + lent > MOST_LENT
    }

    /// A message is in the ring, up to `position`: keeps what the message needs until the peer has read it.
    pub(super) fn sent(&mut self, position: u64, lent: usize, kept: ForPeer) {
        self.lent_bytes += lent;
        self.under_way.push_back(UnderWay { position, kept, lent });
    }

    /// The peer has read the ring up to `consumed`.
    #[cold]
    pub(super) fn let_go(&mut self, consumed: u64) {
        while self.under_way.front().is_some_and(|message| message.position <= consumed) {
            self.lent_bytes -= self.under_way.pop_front().map_or(0, |message| message.lent);
        }
    }
}

/// Memory in which a part of a payload lies.
enum FoundMemory {
    /// This process's own.
    Own(Arc<Memory>),
    /// A buffer that a peer has lent.
    Lent(Arc<Window>),
    /// A region of the peer.
    Region(Arc<Pages>),
}

/// The memory in which all of `bytes` lie.
fn find(bytes: &[u8]) -> Option<FoundMemory> {
    let found = memory::find(bytes)?;
    let found = found.downcast().map(FoundMemory::Own);
    let found = found.or_else(|other| other.downcast().map(FoundMemory::Lent));
    found.or_else(|other| other.downcast().map(FoundMemory::Region)).ok()
}
