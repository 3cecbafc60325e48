//! Calls of an event loop that wait until the server takes more of them at a time. Threads wait by themselves.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use nearcall_http::Encoding;
use nearcall_wire::{Kind, Metadata};

use super::frames::message;
use crate::errors::LinkError;
use crate::outgoing::{Body, Compress, Outgoing};
use crate::paths::MethodPath;

/// Those of one connection. However many wait, one that is given up goes at once.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    calls: HashMap<u32, WaitingCall>,
    /// Their turns, and those of some that were given up.
    turns: VecDeque<u32>,
}

/// A call that is not begun, and what is to be sent after that.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) number: u32,
    path: MethodPath,
    deadline: Option<Instant>,
    metadata: Option<Metadata>,
    compress: Compress,
    encoding: Option<Encoding>,
    arguments: Vec<u8>,
    /// Items of its stream, and the end.
    pub(super) rest: Vec<(Kind, Compress, Vec<u8>)>,
}

/// Turns of calls that were given up that are not worth looking for.
const FEW: usize = 64;

impl Waiting {
    /// Keeps a call.
    ///
    /// # Errors
    /// It is none that gRPC can carry.
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

    /// Keeps a frame of a call that waits, or forgets the call if it is given up.
    ///
    /// # Errors
    /// The frame is none that gRPC can carry.
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
            // Nothing has come that credit could be granted for.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Those that wait.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.calls.keys().copied()
    }

    /// Puts back a call whose turn has not come.
    pub(super) fn push_first(&mut self, call: WaitingCall) {
        self.turns.push_front(call.number);
        self.calls.insert(call.number, call);
    }
}

impl WaitingCall {
    /// Its first frame. What it has waited is not left of its time.
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
