//! Calls of an event loop that wait until the server takes more of them at a time. Threads wait by themselves.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use nearcall_wire::{Kind, Metadata};

use super::{MethodPath, message};
use crate::link::LinkError;
use crate::outgoing::{Body, Outgoing};

/// Those of one connection, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<WaitingCall>);

/// A call that is not begun, and what is to be sent after that.
#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) number: u32,
    path: MethodPath,
    deadline: Option<Instant>,
    metadata: Option<Metadata>,
    arguments: Vec<u8>,
    /// Items of its stream, and the end.
    pub(super) rest: Vec<(Kind, Vec<u8>)>,
}

impl Waiting {
    /// Keeps a call.
    ///
    /// # Errors
    /// It is none that gRPC can carry.
    pub(super) fn push(&mut self, number: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let Some(path) = frame.path else { return Err(LinkError::Full) };
        self.0.push_back(WaitingCall {
            number,
            path: path.clone(),
            deadline: frame.deadline_us.and_then(|us| Instant::now().checked_add(Duration::from_micros(us))),
            metadata: frame.metadata.clone(),
            arguments: message(frame)?.concat(),
            rest: Vec::new(),
        });
        Ok(())
    }

    /// Keeps a frame of a call that waits, or forgets the call if it is given up.
    ///
    /// # Errors
    /// The frame is none that gRPC can carry.
    pub(super) fn follow(&mut self, number: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let Some(at) = self.0.iter().position(|call| call.number == number) else { return Ok(()) };
        match frame.kind {
            Kind::Cancel => drop(self.0.remove(at)),
            Kind::Item | Kind::End => self.0[at].rest.push((frame.kind, message(frame)?.concat())),
            // Nothing has come that credit could be granted for.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<WaitingCall> {
        self.0.pop_front()
    }

    /// Puts back a call whose turn has not come.
    pub(super) fn push_first(&mut self, call: WaitingCall) {
        self.0.push_front(call);
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
            ..Outgoing::new(Kind::Call, Body::Whole(&self.arguments))
        }
    }
}
