//! A message that is on its way out: it is written once for each form that its receivers read.

use std::cell::OnceCell;

use crate::message::{Envelope, Prefix, Sender, TooLong, check, write};
use crate::rmr::frame::Fields;

/// Bytes of a payload that is copied behind the head: one piece is sent faster than two.
const SHORT: usize = 1024;

/// How messages are written for a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As one-way calls.
    Call,
    /// As RMR has them.
    Rmr,
}

/// What RMR's receivers are told of the sender: where it takes messages, by name and by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RmrSender {
    /// `name:port`, or the node's name if it takes no messages of RMR.
    pub source: String,
    /// `address:port`.
    pub address: String,
}

/// A message that is sent.
pub(crate) struct Letter<'a> {
    envelope: &'a Envelope<'a>,
    sender: &'a Sender<'a>,
    rmr_sender: &'a RmrSender,
    payload: &'a [u8],
    call: OnceCell<Prefix>,
    rmr: OnceCell<Prefix>,
}

impl<'a> Letter<'a> {
    /// # Errors
    /// A part of it is too long.
    pub(crate) fn new(
        envelope: &'a Envelope<'a>,
        sender: &'a Sender<'a>,
        rmr_sender: &'a RmrSender,
        payload: &'a [u8],
    ) -> Result<Self, TooLong> {
        check(envelope, sender, payload.len())?;
        Ok(Self { envelope, sender, rmr_sender, payload, call: OnceCell::new(), rmr: OnceCell::new() })
    }

    /// What is sent, in two pieces. The second is empty if the payload is short.
    pub(crate) fn pieces(&self, form: Form) -> [&[u8]; 2] {
        let prefix = match form {
            Form::Call => {
                self.call.get_or_init(|| self.written(|out| write(out, self.envelope, self.sender, self.payload.len())))
            }
            Form::Rmr => self.rmr.get_or_init(|| {
                self.written(|out| self.fields().write(self.payload.len(), &mut |bytes| out.extend_from_slice(bytes)))
            }),
        };
        [prefix, if self.is_short() { &[] } else { self.payload }]
    }

    fn written(&self, head: impl FnOnce(&mut Prefix)) -> Prefix {
        let mut prefix = Prefix::new();
        head(&mut prefix);
        if self.is_short() {
            prefix.extend_from_slice(self.payload);
        }
        prefix
    }

    fn is_short(&self) -> bool {
        self.payload.len() <= SHORT
    }

    fn fields(&self) -> Fields<'_> {
        let Envelope { kind, subscription, transaction, entity, trace, call } = *self.envelope;
        let (source, source_address) = (self.rmr_sender.source.as_bytes(), self.rmr_sender.address.as_bytes());
        Fields { kind, subscription, transaction, entity: entity.as_bytes(), trace, call, source, source_address }
    }
}
