//! What becomes of the frames of one client.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, FREE, Incoming, LinkError, Outgoing};
use nearcall_wire::{Failure, FrameHead, Kind};

use crate::exports::{Export, MethodRouting};
use crate::server::call::ServerCall;
use crate::server::connection::values::ValuesCharge;
use crate::server::handlers::directory::Directory;
use crate::server::inbound::request::Request;
use crate::server::inbound::{HUNG_UP, Inbound, PARTED};
use crate::sync::{AtomicU8, Ordering};

/// What became of a frame.
pub(in crate::server) enum Routed {
    /// A call to be handled.
    Request(Box<Request>),
    /// Nothing more is to be done.
    Done,
    /// Nothing is read from the client until the reason is gone.
    Stall(StallReason),
}

/// Why nothing is read from a client for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum StallReason {
    /// A one-way call came when the server had as many requests as it takes. It is deferred.
    Oneway,
    /// The client does not read: the last answer to a frame, or as many deferred calls as may be, wait for that.
    NotReading,
    /// The frame that comes next does not fit into the memory that may be kept of what clients send.
    Budget,
    /// The items that wait for their handlers take as much memory as they may.
    Items,
}

/// What is to become of a call that has just come.
enum Verdict {
    Begin,
    /// It is one-way, and waits until the server takes more of those.
    Wait,
    Refuse(Failure),
}

/// The failure of a call of an object that the caller does not hold.
fn released() -> Failure {
    Failure::new(Failure::NOT_FOUND, "there is no such object on this connection: it was released")
}

/// The longest time left to a deadline; a longer one is cut to this. It overflows no sum, and nobody waits that long.
const LONGEST_DEADLINE: Duration = Duration::from_secs(1_000_000_000);

impl Inbound<Request> {
    /// Takes the frame in a slot in. Makes a request of a new call. In a slot, as in [`Link`](nearcall_transport::Link).
    pub(in crate::server) fn route(
        self: &Arc<Self>,
        directory: &Directory,
        slot: &mut Option<Incoming>,
    ) -> Result<Routed, LinkError> {
        let connection = &*self.connection;
        let Some(event) = slot else { return Ok(Routed::Done) };
        if !connection.is_called_by(event) {
            return self.answered(slot);
        }
        let head = &event.head;
        match head.kind {
            Kind::Call => return self.begin(directory, event),
            Kind::Ping => {
                let payload = event.payload.inline().unwrap_or_default();
                return self.answer(head.call, Kind::Pong, 0, payload);
            }
            Kind::Release if !connection.is_own_clients() => connection.exports.release(event)?,
            Kind::Item | Kind::End | Kind::Cancel | Kind::Credit => {
                let (is_item, cancelled) = (head.kind == Kind::Item, (head.kind == Kind::Cancel).then_some(head.call));
                // `None` for a call that has ended here: the client could not know yet.
                let call = self.calls.lock().get(head.call);
                if let Some(call) = call {
                    if head.kind == Kind::Item && call.routing.item_references {
                        connection.exports.keep_home(event);
                    }
                    slot.take().map_or(Ok(()), |event| call.take_in(event))?;
                } else if head.kind == Kind::Item {
                    connection.let_go_of_item(event);
                } else if head.kind == Kind::Cancel {
                    connection.note_cancelled(head.call);
                }
                if cancelled.is_some() {
                    // Only now that the cancellation is noted: a thread that begins to watch the call finds it
                    // cancelled.
                    connection.watched_calls.tell(cancelled);
                }
                if is_item && !connection.has_room_for_items() {
                    return Ok(Routed::Stall(StallReason::Items));
                }
            }
            Kind::Pong => {}
            Kind::Reply | Kind::Error | Kind::GoAway | Kind::Head | Kind::Release => {
                return Err(LinkError::Broken("the client sent a frame that only servers send".into()));
            }
        }
        Ok(Routed::Done)
    }

    /// Takes in a frame of a call that this side began.
    fn answered(&self, slot: &mut Option<Incoming>) -> Result<Routed, LinkError> {
        if !self.connection.has_called() {
            return Err(LinkError::Broken("the client sent a frame of a call that was never made".into()));
        }
        // If the calling half is gone, nobody waits for the frame.
        if let Some(caller) = self.connection.caller() {
            caller.take_in(slot);
        }
        Ok(Routed::Done)
    }

    /// Makes a request of a call, and decides what becomes of it.
    fn begin(self: &Arc<Self>, directory: &Directory, event: &mut Incoming) -> Result<Routed, LinkError> {
        let connection = &*self.connection;
        let (method, target) = self.called(directory, &event.head);
        if method.is_some_and(|method| method.references) {
            connection.exports.keep_home(event);
        }
        // Relaxed: a bound on memory, exact enough. The count does not publish the request.
        let pending = connection.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let uncharged = event.uncharged();
        let request = self.request(event, uncharged, method.unwrap_or_default(), target);
        let oneway = request.is_oneway();
        let alone = !oneway || self.oneway.count();
        match self.judge(&request, method, pending, uncharged, alone)? {
            Verdict::Wait => {
                self.deferred.push(request, || false);
                Ok(Routed::Stall(StallReason::Oneway))
            }
            _ if !oneway && self.marks.has(HUNG_UP) => {
                // No client waits for a reply, and the calls that it has left may be many.
                request.note_end(Failure::CANCELLED, 0);
                Ok(Routed::Done)
            }
            Verdict::Begin => self.enter(directory, request),
            Verdict::Refuse(refusal) => self.refuse(&request, method.is_some(), &refusal),
        }
    }

    /// The called method, and the called object unless that is a service. No method: there is none of that number, or no
    /// such object.
    #[inline]
    fn called(&self, directory: &Directory, head: &FrameHead) -> (Option<MethodRouting>, Option<Arc<Export>>) {
        match head.target {
            Some(id) => {
                let target = self.connection.exports.get(id);
                (target.as_ref().and_then(|export| export.methods.get(head.method)), target)
            }
            None if !self.connection.is_own_clients() => (directory.method(head.method), None),
            // Over a connection that a client of this process has made, the peer can call only objects that were given
            // to it.
            None => (None, None),
        }
    }

    #[inline]
    fn request(
        self: &Arc<Self>,
        event: &mut Incoming,
        uncharged: usize,
        routing: MethodRouting,
        target: Option<Arc<Export>>,
    ) -> Box<Request> {
        let connection = &*self.connection;
        let deadline =
            event.head.deadline_us().map(|us| Instant::now() + Duration::from_micros(us).min(LONGEST_DEADLINE));
        let measured = connection.shared.statistics.begin(event.head.method, event.payload.len());
        let mut charge = event.payload.take_charge();
        if uncharged > FREE {
            charge = Some(connection.items_account().charge_anyway(uncharged));
        }
        Box::new(Request {
            inbound: Arc::clone(self),
            head: event.head.take(),
            payload: event.payload.take(),
            routing,
            target,
            charge: charge.map(|charge| Mutex::new(Some(charge))),
            values: ValuesCharge::default(),
            call: None,
            deadline,
            context: OnceLock::new(),
            done: AtomicU8::new(0),
            has_place: false,
            measured,
            ordinal: connection.session().count_arrival(),
        })
    }

    /// Whether a call may begin. `pending`: how many others the server has received that are not finished. `uncharged`:
    /// the bytes that no link has charged. `alone`: no other one-way call of the client is under way, or this is none.
    #[inline]
    fn judge(
        &self,
        request: &Request,
        method: Option<MethodRouting>,
        pending: usize,
        uncharged: usize,
        alone: bool,
    ) -> Result<Verdict, LinkError> {
        let (connection, oneway) = (&*self.connection, request.is_oneway());
        let shared = &*connection.shared;
        let limits = &shared.limits;
        let Some(method) = method else {
            return Ok(Verdict::Refuse(if request.head.target.is_some() && request.target.is_none() {
                released()
            } else {
                let what = format!("the server has no method number {}", request.head.method);
                Failure::new(Failure::UNIMPLEMENTED, what)
            }));
        };
        if shared.is_stopping() && !connection.link.properties().takes_last_calls {
            return Ok(Verdict::Refuse(Failure::new(Failure::UNAVAILABLE, "the server is stopping")));
        }
        // One-way calls are not sent again.
        if !oneway && self.marks.has(PARTED) {
            return Ok(Verdict::Refuse(Failure::new(
                Failure::UNAVAILABLE,
                "this connection is over: make another one",
            )));
        }
        if pending >= limits.max_pending && !oneway && connection.session().under_way() > limits.always() {
            return Ok(Verdict::Refuse(limits.too_many_pending()));
        }
        if method.streams && oneway {
            return Err(LinkError::Broken("the client sent a one-way call of a method that has a stream".into()));
        }
        if method.streams && self.calls.lock().streams() >= limits.max_streams {
            return Ok(Verdict::Refuse(limits.too_many_streams()));
        }
        if oneway && !alone && !self.may_begin_oneway() {
            return Ok(Verdict::Wait);
        }
        if uncharged > FREE && !oneway && !connection.has_room_for_items() {
            return Ok(Verdict::Refuse(limits.too_much_metadata()));
        }
        Ok(Verdict::Begin)
    }

    /// Ends a call that may not begin. `known`: it is a method's.
    #[cold]
    fn refuse(&self, request: &Request, known: bool, refusal: &Failure) -> Result<Routed, LinkError> {
        let (connection, shared) = (&*self.connection, &*self.connection.shared);
        request.note_end(refusal.code, 0);
        request.let_go_of_arguments();
        if request.is_oneway() {
            if refusal.code == Failure::UNAVAILABLE {
                shared.came_too_late.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(Routed::Done);
        }
        if request.routing.item_references {
            // Items of the stream may be on their way, and references in them are released when they arrive.
            connection.past_calls.note_ended(request.head.call);
        }
        if shared.is_stopping() {
            // The GOAWAY to all clients may not be sent yet. Without it the client would not know that it may try again.
            connection.send(0, &Outgoing::new(Kind::GoAway, Body::Whole(&[])))?;
        }
        // A client sends the call again only if it knows that the call has not run: a handler may fail with the same
        // status.
        let mut flags = if refusal.code == Failure::UNAVAILABLE { Outgoing::UNBEGUN } else { 0 };
        if !known {
            // Without the method it is not known where references stand in the arguments and items.
            flags |= Outgoing::UNREAD;
        }
        self.answer(request.head.call, Kind::Error, flags, &refusal.encode())
    }

    /// A call begins. If more frames may come for it, enters it among the connection's calls, so that they find it.
    #[inline]
    fn enter(&self, directory: &Directory, mut request: Box<Request>) -> Result<Routed, LinkError> {
        let routing = request.routing;
        if routing.is_tracked() && !request.is_oneway() {
            let id = request.head.call;
            self.connection.past_calls.note_begun(id);
            let (observer, measured) = (directory.observer(routing.handler), request.measured.clone());
            let call = Arc::new(ServerCall::new(Arc::clone(&self.connection), id, observer, measured, routing));
            if !self.calls.lock().insert(&call) {
                return Err(LinkError::Broken("the client used the number of a call that is under way".into()));
            }
            request.call = Some(call);
        }
        Ok(Routed::Request(request))
    }

    /// Sends the answer to a frame. If the client does not read, that is the last one until it does.
    fn answer(&self, call: u32, kind: Kind, flags: u8, payload: &[u8]) -> Result<Routed, LinkError> {
        self.connection.send(call, &Outgoing { flags, ..Outgoing::new(kind, Body::Whole(payload)) })?;
        Ok(if self.connection.has_room() { Routed::Done } else { Routed::Stall(StallReason::NotReading) })
    }

    /// Whether the server may read from the client again, after it has stopped for this reason.
    pub(in crate::server) fn may_go_on(&self, reason: StallReason) -> bool {
        match reason {
            StallReason::Oneway => self.may_begin_oneway(),
            StallReason::NotReading => self.connection.has_room(),
            StallReason::Budget => true,
            StallReason::Items => self.connection.has_room_for_items(),
        }
    }

    fn may_begin_oneway(&self) -> bool {
        // Both counts include the request that waits. Relaxed: as in `begin`. One one-way call of each client may
        // always be under way, so that a client's one-way calls go on whatever other clients do.
        let shared = &*self.connection.shared;
        let few = shared.in_flight.load(Ordering::Relaxed) <= shared.limits.most_oneway();
        (few && self.connection.has_room_for_items()) || self.oneway.is_alone()
    }
}
