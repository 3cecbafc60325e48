//! Calls of an event loop that wait until the server accepts more calls at a time. A call of a thread is not kept here:
//! its thread waits.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use nearcall_http::Encoding;
use nearcall_wire::{Kind, Metadata};

use super::frames::message;
use crate::errors::LinkError;
use crate::frame::outgoing::{Body, Compress, Outgoing};
use crate::frame::paths::MethodPath;

/// The waiting calls of one connection. A cancelled call is dropped at once, however many wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    calls: HashMap<u32, WaitingCall>,
    /// The order of the calls. May still name calls that were cancelled.
    turns: VecDeque<u32>,
}

/// A call that has not begun, and what to send after its first frame.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) number: u32,
    path: MethodPath,
    deadline: Option<Instant>,
    metadata: Option<Metadata>,
    compress: Compress,
    encoding: Option<Encoding>,
    arguments: Vec<u8>,
    /// Items of the call's stream, and its end.
    pub(super) rest: Vec<(Kind, Compress, Vec<u8>)>,
}

/// `turns` may be longer than twice the calls by this many entries before cancelled calls are removed from it.
const FEW: usize = 64;

impl Waiting {
    /// Keeps a call.
    ///
    /// # Errors
    /// The frame has no path, or has buffers beside its message: HTTP cannot carry it.
    pub(super) fn push(&mut self, number: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let Some(path) = frame.path else { return Err(LinkError::Full) };
        let call = WaitingCall {
            number,
            path: path.clone(),
            deadline: frame.deadline_us.and_then(|us| Instant::now().checked_add(Duration::from_micros(us))),
            metadata: frame.metadata.clone(),
            compress: frame.compress,
            encoding: frame.encoding,
            arguments: message(frame)?.concat(),
            rest: Vec::new(),
        };
        self.calls.insert(number, call);
        self.turns.push_back(number);
        Ok(())
    }

    /// Keeps a frame of a waiting call, or drops the call if the frame cancels it.
    ///
    /// # Errors
    /// The frame has buffers beside its message: HTTP cannot carry it.
    pub(super) fn follow(&mut self, number: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        match frame.kind {
            Kind::Cancel => {
                self.calls.remove(&number);
                if self.turns.len() > 2 * self.calls.len() + FEW {
                    self.turns.retain(|number| self.calls.contains_key(number));
                }
            }
            Kind::Item | Kind::End => {
                if let Some(call) = self.calls.get_mut(&number) {
                    call.rest.push((frame.kind, frame.compress, message(frame)?.concat()));
                }
            }
            // The call has not begun, so nothing has arrived that would earn credit.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<WaitingCall> {
        while let Some(number) = self.turns.pop_front() {
            if let Some(call) = self.calls.remove(&number) {
                return Some(call);
            }
        }
        None
    }

    /// How many calls wait.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The numbers of the waiting calls.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.calls.keys().copied()
    }

    /// Puts a call back to the front: it cannot begin yet.
    pub(super) fn push_first(&mut self, call: WaitingCall) {
        self.turns.push_front(call.number);
        self.calls.insert(call.number, call);
    }
}

impl WaitingCall {
    /// The call's first frame. The time that it has waited is subtracted from its deadline.
    pub(super) fn frame(&self) -> Outgoing<'_> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now()).as_micros();
        Outgoing {
            path: Some(&self.path),
            deadline_us: self.deadline.map(|until| u64::try_from(left(until)).unwrap_or(u64::MAX)),
            metadata: self.metadata.clone(),
            compress: self.compress,
            encoding: self.encoding,
            ..Outgoing::new(Kind::Call, Body::Whole(&self.arguments))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_given_up_leave_nothing_and_others_keep_their_turns() {
        let path = MethodPath { path: "/a.B/C".into(), streams_in: true, streams_out: false, is_safe: false };
        let (compress, encoding) = (Compress::NotThis, Some(Encoding::Zstd));
        let call =
            Outgoing { compress, encoding, path: Some(&path), ..Outgoing::new(Kind::Call, Body::Whole(b"args")) };
        let frame = |kind| Outgoing { compress: Compress::Yes, ..Outgoing::new(kind, Body::Whole(b"item")) };
        let mut waiting = Waiting::default();
        for number in 0..100_000 {
            waiting.push(number, &call).unwrap();
            waiting.follow(number, &frame(Kind::Item)).unwrap();
            if number % 10_000 != 0 {
                waiting.follow(number, &frame(Kind::Cancel)).unwrap();
            }
        }
        assert!(waiting.turns.len() < 200, "{}", waiting.turns.len());
        let first = waiting.pop().unwrap();
        assert_eq!((first.number, &first.rest[..]), (0, &[(Kind::Item, Compress::Yes, b"item".to_vec())][..]));
        assert_eq!((first.frame().compress, first.frame().encoding), (compress, encoding));
        waiting.push_first(first);
        let numbers: Vec<u32> = std::iter::from_fn(|| waiting.pop()).map(|call| call.number).collect();
        assert_eq!(numbers, (0..10).map(|number| number * 10_000).collect::<Vec<_>>());
    }
}
