//! A call as its handler gets it, from its arrival to its last frame.

use crate::sync::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use nearcall_platform::clock::is_past;
use nearcall_platform::fault::contained;
use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, Charge, Incoming, LinkError, Outgoing, Payload};
use nearcall_wire::{Failure, FrameHead, Kind};

use crate::exports::{Export, HandlerKind, MethodRouting};
use crate::given::given_in;
use crate::server::call::{CallContext, CallObserver, Held, Known, ServerCall};
use crate::server::connection::ServerConnection;
use crate::server::connection::values::ValuesCharge;
use crate::server::inbound::Inbound;
use crate::server::shared::statistics::Measured;

/// The status code of a call that ends well. The other codes are failures.
const OK: u8 = 0;

/// The handler has returned.
const FINISHED: u8 = 1;
/// The references in the arguments were released.
const LET_GO: u8 = 2;
/// The place among the streams is free again.
const LEFT_PLACE: u8 = 4;

/// A call that has arrived. Always in a box, because it passes through many queues and threads.
#[derive(Debug)]
pub struct Request {
    /// The client that called, and its other calls.
    pub(in crate::server) inbound: Arc<Inbound<Self>>,
    /// Method, flags, deadline, metadata.
    pub head: FrameHead,
    /// The arguments.
    pub payload: Payload,
    /// The kind of the method: what runs its handler, whether it streams, whether it carries references.
    pub(in crate::server) routing: MethodRouting,
    /// The object that is called; `None` for a method of a service.
    pub target: Option<Arc<Export>>,
    /// The bytes of the arguments in the client's account, until the call's last frame. `None` if they are not charged.
    pub(in crate::server) charge: Option<Mutex<Option<Charge>>>,
    /// What the arguments take as values, in the client's account, until the call's last frame.
    pub values: ValuesCharge,
    /// Present if more frames may come for the call.
    pub call: Option<Arc<ServerCall>>,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    pub(in crate::server) context: OnceLock<Arc<CallContext>>,
    /// What is done once: [`FINISHED`] and so on.
    pub(in crate::server) done: AtomicU8,
    /// The call has a place among the streams whose handlers run in threads.
    pub(in crate::server) has_place: bool,
    /// Present if the call is measured.
    pub(in crate::server) measured: Option<Arc<Measured>>,
    /// How many calls had arrived over its connection before it.
    pub(in crate::server) ordinal: u64,
}

/// The turn of a one-way request. The client's next one-way request follows it.
#[derive(Debug)]
pub struct OnewayTurn(pub(in crate::server) Arc<Inbound<Request>>);

impl Drop for Request {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Whoever was to handle the call has failed, and the client would wait for ever. If it has had its answer
            // already, it takes no notice of a second one.
            let _ = contained(|| self.fail(&Self::fault()));
        }
        if let Some(under_way) = self.context.get().and_then(|context| context.under_way()) {
            let charge = self.charge.take().and_then(Mutex::into_inner);
            under_way.keep(charge, std::mem::take(&mut self.values));
        }
        self.finish();
    }
}

impl Request {
    /// The connection over which the call has come.
    #[must_use]
    pub fn connection(&self) -> &Arc<ServerConnection> {
        &self.inbound.connection
    }

    /// The turn of a one-way request, for [`Worker::finish`](crate::server::Worker::finish): the client's next one-way
    /// request waits until this one is over.
    #[must_use]
    pub fn oneway_turn(&self) -> Option<OnewayTurn> {
        self.is_oneway().then(|| OnewayTurn(Arc::clone(&self.inbound)))
    }

    /// Whether the call is one-way: the client waits for no reply.
    #[must_use]
    pub fn is_oneway(&self) -> bool {
        self.head.flags & Outgoing::ONEWAY != 0
    }

    /// Whether the client has given the call up, or is gone. Asked before a handler begins. A one-way call is never
    /// given up.
    pub(in crate::server) fn is_given_up(&self) -> bool {
        !self.is_oneway()
            && (self.connection().is_dead()
                || self.call.as_ref().is_some_and(|call| call.is_cancelled())
                || self.connection().past_calls.was_cancelled(self.head.call, self.ordinal))
    }

    /// The circumstances of the call, for its handler.
    pub fn context(&self) -> Arc<CallContext> {
        let context = self.context.get_or_init(|| {
            let context = Arc::new(CallContext {
                connection: Arc::downgrade(self.connection()),
                peer: Arc::clone(self.connection().session().peer()),
                id: self.head.call,
                ordinal: self.ordinal,
                call: self.call.as_ref().map_or_else(Weak::new, Arc::downgrade),
                oneway: self.is_oneway(),
                deadline: self.deadline,
                metadata: self.head.extras().and_then(|extras| extras.metadata.clone()).unwrap_or_default(),
                trailing: Mutex::default(),
                charge: OnceLock::new(),
                watched: Arc::default(),
                held: Held::default(),
                known: Mutex::new(Known { was_compressed: Incoming::was_compressed(&self.head), ..Known::default() }),
            });
            // Relaxed: a thread that asks while the handler returns may find it either way.
            if self.done.load(Ordering::Relaxed) & FINISHED != 0 {
                self.note_over(&context);
            }
            context
        });
        Arc::clone(context)
    }

    /// Whether the caller has stopped waiting.
    #[must_use]
    pub fn is_late(&self) -> bool {
        is_past(self.deadline)
    }

    /// Whether the arguments are a map by name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.head.flags & Outgoing::NAMED != 0
    }

    /// Takes the arguments out: the payload, and the lengths of its parts.
    pub fn take_event(&mut self) -> Incoming {
        let mut head = FrameHead::new(Kind::Call, self.head.call);
        if self.head.extras().is_some() {
            head.extras_mut().parts = self.head.extras_mut().parts.take();
        }
        Incoming { head, payload: self.payload.take() }
    }

    /// The handler has returned, and `keeper` sends the rest of the stream: the call goes on without a thread. It
    /// counts as under way until the request is dropped. Returns the call, or `None` if no more frames can come for it.
    pub fn outlive_handler(&self, keeper: Weak<dyn CallObserver>) -> Option<&Arc<ServerCall>> {
        let call = self.call.as_ref()?;
        self.leave_place();
        call.keep(keeper);
        Some(call)
    }

    /// Whether this is done for the first time.
    #[inline]
    fn is_first(&self, what: u8) -> bool {
        // Relaxed: the thread that holds the request gets here, or one that it has handed the call to.
        self.done.fetch_or(what, Ordering::Relaxed) & what == 0
    }

    fn leave_place(&self) {
        if self.has_place && self.is_first(LEFT_PLACE) {
            self.connection().shared.crew.end_stream(self.connection().token());
        }
    }

    /// An item of the call's stream, compressed or not, as the handler has chosen.
    #[must_use]
    pub fn item<'a>(&self, body: Body<'a>) -> Outgoing<'a> {
        let compress = self.context.get().map(|context| context.compress()).unwrap_or_default();
        Outgoing { compress, ..Outgoing::new(Kind::Item, body) }
    }

    /// Ends the call with a result.
    ///
    /// # Errors
    /// One that [spares the connection](LinkError::spares_connection): nothing was sent, and the client still waits. Or
    /// the connection is gone. [`LinkError::Full`] only if an event loop handles the call and the client does not read:
    /// the loop is told when it may try again. The reply of a thread waits in the connection's queue instead.
    pub fn reply(&self, body: Body<'_>) -> Result<(), LinkError> {
        self.end(Outgoing::new(Kind::Reply, body), OK)
    }

    /// Ends the call well after its stream of items.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn end_stream(&self) -> Result<(), LinkError> {
        self.end(Outgoing::new(Kind::End, Body::Whole(&[])), OK)
    }

    /// Ends the call with a failure. If the failure cannot be sent as it is, sends it without details and trailing
    /// metadata.
    pub fn fail(&self, failure: &Failure) {
        let mut failure = failure.clone();
        // An exception's text may have any length. The client must not refuse the frame because of it.
        failure.cut();
        let sent = self.end(Outgoing::new(Kind::Error, Body::Whole(&failure.encode())), failure.code);
        if sent.is_err_and(|error| error.spares_connection()) {
            // The client still waits for the end of the call: send less.
            failure.details.clear();
            if let Some(context) = self.context.get() {
                drop(std::mem::take(&mut *context.trailing.lock()));
            }
            let _ = self.end(Outgoing::new(Kind::Error, Body::Whole(&failure.encode())), failure.code);
        }
    }

    /// Ends a call that has no stream, with its encoded result or a failure.
    pub fn answer(&self, answer: Result<Vec<u8>, Failure>) {
        let answered = answer.and_then(|result| match self.reply(Body::Whole(&result)) {
            Err(error) if error.spares_connection() => {
                Err(Failure::new(Failure::RESOURCE_EXHAUSTED, format!("the reply cannot be sent: {error}")))
            }
            // If the client is gone, nobody waits for the result.
            _ => Ok(()),
        });
        if let Err(failure) = answered {
            self.fail(&failure);
        }
    }

    /// Ends a one-way call well: nothing is sent.
    pub fn end_oneway(&self) {
        self.note_end(OK, 0);
    }

    pub(in crate::server) fn note_end(&self, code: u8, bytes: usize) {
        if let Some(measured) = &self.measured {
            measured.end(code, bytes);
        }
    }

    /// Sends the call's last frame, unless the call is one-way. `code` is the call's status code.
    fn end(&self, mut frame: Outgoing<'_>, code: u8) -> Result<(), LinkError> {
        if self.is_oneway() {
            self.note_end(code, 0);
            return Ok(());
        }
        if let Some(context) = self.context.get() {
            // Before the frame is sent: a client that hangs up once it has its answer has not given the call up.
            context.dismiss_watchers(self.connection());
            frame.compress = context.compress();
            let trailing = context.trailing.lock();
            frame.metadata = (!trailing.is_empty()).then(|| trailing.clone());
        }
        if frame.kind == Kind::Reply
            && self.routing.handler == HandlerKind::EventLoop
            && !self.connection().has_room_or_tells()
        {
            return Err(LinkError::Full);
        }
        self.uncharge();
        if let Err(error) = self.connection().send(self.head.call, &frame) {
            if !error.spares_connection() {
                // The client is gone, and has not got the result.
                self.note_end(Failure::CANCELLED, 0);
                self.forget();
            }
            return Err(error);
        }
        self.note_end(code, frame.len());
        self.forget();
        Ok(())
    }

    /// The arguments are charged no longer, unless callbacks of the handler have yet to run. Before the last frame goes out:
    /// a client that has its reply may send as much again at once, and there must be room for that.
    fn uncharge(&self) {
        let is_charged = self.charge.is_some() || self.values.is_charged();
        if is_charged && self.context.get().and_then(|context| context.under_way()).is_none() {
            let charge = self.charge.as_ref().and_then(|charge| charge.lock().take());
            drop(charge);
            self.values.clear();
        }
    }

    /// How a call ends if not its handler but what runs the handler has failed.
    #[must_use]
    pub fn fault() -> Failure {
        Failure::new(Failure::INTERNAL, "nearcall itself has failed at the server, whose log says more")
    }

    /// Takes the call off its connection: no frame reaches it any more. Releases the references in arguments and items
    /// that the handler has not read.
    pub fn forget(&self) {
        self.let_go_of_arguments();
        if let Some(call) = &self.call {
            if self.routing.item_references {
                // Noted first: an item that no longer finds the call must find this note.
                self.connection().past_calls.note_ended(self.head.call);
            }
            self.inbound.calls.lock().remove(self.head.call);
            if self.routing.streams {
                call.end();
            }
        }
    }

    /// Releases the references in the arguments, if no handler has taken the arguments out. No handler will do so any
    /// more.
    pub(in crate::server) fn let_go_of_arguments(&self) {
        if self.routing.references && !self.payload.is_empty() && self.is_first(LET_GO) {
            self.connection().release_given(&given_in(&self.head, &self.payload));
        }
    }

    /// Whoever keeps the context is told nothing more, and finds there what was known at the end.
    fn note_over(&self, context: &CallContext) {
        context.dismiss_watchers(self.connection());
        context.charge_metadata(|| self.connection().charge_to_all());
        if let Some(call) = &self.call {
            context.note_over(call);
        }
    }

    /// The handler has returned. The call is no longer under way, even if something still holds this request, unless a
    /// callback of the handler has yet to run. Harmless when repeated.
    pub fn finish(&self) {
        if self.is_first(FINISHED) {
            let under_way = self.context.get().and_then(|context| {
                self.note_over(context);
                context.under_way()
            });
            if let Some(measured) = &self.measured {
                measured.finish();
            }
            self.leave_place();
            if self.is_oneway() {
                self.inbound.oneway.one_finished();
            }
            if let Some(ledger) = self.connection().link.ledger() {
                ledger.finished(self.head.call);
            }
            match under_way {
                Some(under_way) => under_way.count_alone(),
                None => self.connection().one_finished(),
            }
        }
    }
}
