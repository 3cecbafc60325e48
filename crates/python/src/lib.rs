//! `nearcall._core`: the only crate that knows Python.
//!
//! A method's plan is read once ([`plan`]). After that, a call encodes its arguments ([`payload`]), sends them and
//! waits with the interpreter released ([`unary`]), and decodes the reply. The server is the mirror image ([`server`]).
//! Event loops use the same parts, but do not wait ([`aio`], [`handler_turn`]).

mod aio;
mod bound;
mod buffer;
mod callback;
mod calling;
mod connection;
mod context;
mod coroutine;
mod crossing;
mod deadline;
mod encoded;
mod encoder;
mod errors;
mod handler_loop;
mod handler_turn;
mod hashed;
mod health;
mod interpreter;
mod introspection;
mod kinds;
mod listeners;
mod loop_server;
mod named;
mod native;
mod noted;
mod notices;
mod objects;
mod oneway;
mod opening;
mod options;
mod outcome;
mod payload;
mod peer;
mod plan;
mod protobuf;
mod references;
mod reply_future;
mod request_stream;
mod resending;
mod rest;
mod route;
mod sandbox;
mod served;
mod server;
mod session;
mod sizes;
mod stream;
mod target;
mod tls;
mod topic;
mod unary;
mod unsent;
mod view;
mod waiting;
mod watched;
mod when_full;

use pyo3::prelude::*;

/// The compiled part of nearcall.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::aio::{AsyncUnary, PendingCall};
    #[pymodule_export]
    use super::bound::BoundMethod;
    #[pymodule_export]
    use super::buffer::Buffer;
    #[pymodule_export]
    use super::connection::Connection;
    #[pymodule_export]
    use super::context::{Call, EarlyEnds, LeftToDo, current_call, on_end};
    #[pymodule_export]
    use super::deadline::{note_block, set_call_variables};
    #[pymodule_export]
    use super::encoder::FittingEncoder;
    #[pymodule_export]
    use super::errors::install;
    #[pymodule_export]
    use super::handler_loop::{enter_handler_loop, leave_handler_loop, refuse_in_handler_loop};
    #[pymodule_export]
    use super::handler_turn::{Begun, HandlerTurn};
    #[pymodule_export]
    use super::hashed::{check_keys, key_hash};
    #[pymodule_export]
    use super::health::{Health, HealthMethod};
    #[pymodule_export]
    use super::introspection::IntrospectionMethod;
    #[pymodule_export]
    use super::kinds::{Attributes, all_of_kinds};
    #[pymodule_export]
    use super::listeners::{Listeners, die_with_starter, end_with};
    #[pymodule_export]
    use super::loop_server::{LoopRequest, Watch};
    #[pymodule_export]
    use super::named::named_servers;
    #[pymodule_export]
    use super::native::is_native;
    #[pymodule_export]
    use super::objects::ServedObject;
    #[pymodule_export]
    use super::oneway::Oneway;
    #[pymodule_export]
    use super::plan::Method;
    #[pymodule_export]
    use super::protobuf::{ProtobufCodec, ProtobufMessages};
    #[pymodule_export]
    use super::references::{References, current_references};
    #[pymodule_export]
    use super::request_stream::RequestStream;
    #[pymodule_export]
    use super::rest::rest_in;
    #[pymodule_export]
    use super::sandbox::{EarlyLimits, confine, sandbox_names};
    #[pymodule_export]
    use super::server::{LoopWork, Server};
    #[pymodule_export]
    use super::sizes::memory_of;
    #[pymodule_export]
    use super::stream::Stream;
    #[pymodule_export]
    use super::tls::{Tls, dev_certs};
    #[pymodule_export]
    use super::topic::{Subscription, Topic};
    #[pymodule_export]
    use super::unary::{StartedCall, Unary, wait_for_started};
    #[pymodule_export]
    use super::view::View;
    #[pymodule_export]
    use super::watched::Watched;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        nearcall_core::lock::set_around_sleep(super::interpreter::detached);
        module.add("COMEBACK", nearcall_core::client::COMEBACK.as_secs_f64())?;
        module.add("PROFILED", cfg!(profiled))?;
        module.add("VERSION", nearcall_core::VERSION)
    }
}
