//! `nearcall._core`: the only crate that knows Python.
//!
//! A method's plan is read once ([`values::plan`]). After that, a call encodes its arguments ([`values::payload`]), sends them and
//! waits with the interpreter released ([`calls::unary`]), and decodes the reply. The server is the mirror image ([`serving::server`]).
//! Event loops use the same parts, but do not wait ([`calls::aio`], [`serving::handler_turn`]).

mod asyncio;
mod calls;
mod connection;
mod gil;
mod options;
mod references;
mod routing;
mod serving;
mod values;

use pyo3::prelude::*;

/// The compiled part of nearcall.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::asyncio::handler_loop::{enter_handler_loop, leave_handler_loop, refuse_in_handler_loop};
    #[pymodule_export]
    use super::calls::{
        aio::{AsyncUnary, PendingCall},
        bound::BoundMethod,
        callees::Calls,
        deadline::{note_block, set_call_variables},
        oneway::Oneway,
        retry_budget::RetryBudget,
        started::{StartedCall, set_watch_of_started, wait_for_started},
        stream::Stream,
        unary::Unary,
    };
    #[pymodule_export]
    use super::connection::Connection;
    #[pymodule_export]
    use super::gil::{
        errors::install,
        greenlets::{Elsewhere, use_greenlets},
        metadata::pushback,
        rest::rest_in,
    };
    #[pymodule_export]
    use super::options::{
        listeners::{Listeners, die_with_starter, end_with},
        login::Login,
        named::named_servers,
        sandbox::{EarlyLimits, confine, sandbox_names},
        tls::{Tls, dev_certs},
    };
    #[pymodule_export]
    use super::references::{
        given::{References, current_references},
        objects::ServedObject,
    };
    #[pymodule_export]
    use super::routing::{
        node::{RouteEndpoint, RouteNode, RoutePending, RouteWaiter, RouteWork, read_route_table},
        pushed::RoutePushed,
    };
    #[pymodule_export]
    use super::serving::{
        buffer::Buffer,
        context::{Call, EarlyEnds, LeftToDo, current_call, on_end},
        handler_turn::HandlerTurn,
        health::{Health, HealthMethod},
        introspection::IntrospectionMethod,
        loop_server::{LoopRequest, Watch},
        request_stream::RequestStream,
        route_codec::RouteCodec,
        route_handlers::{RouteDispatch, RouteInbox},
        route_message::RouteMessage,
        server::{LoopWork, Server},
        topic::{Subscription, Topic},
    };
    #[pymodule_export]
    use super::values::{
        encoder::FittingEncoder,
        hashed::check_keys,
        kinds::{Attributes, all_of_kinds},
        native::is_native,
        plan::Method,
        protobuf::{ProtobufCodec, ProtobufMessages},
        sizes::memory_of,
        view::View,
    };

    use std::collections::HashMap;

    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        nearcall_core::lock::set_around_sleep(super::gil::interpreter::detached);
        module.add("PUSHBACK", nearcall_core::client::Pushback::KEY)?;
        module.add("PROFILED", cfg!(profiled))?;
        let known = nearcall_core::TRANSPORTS.iter();
        let schemes = known.map(|each| (each.scheme(), (each.form, each.speaks.name(), each.encrypts)));
        module.add("SCHEMES", schemes.collect::<HashMap<_, _>>())?;
        module.add("ROUTE_SCHEMES", PyTuple::new(module.py(), nearcall_route::table::SCHEMES)?)?;
        let options = nearcall_core::Options::default();
        module.add("DEFAULT_MAX_MESSAGE_SIZE", options.max_message)?;
        module.add("DEFAULT_RING_SIZE", options.ring_size)?;
        module.add("VERSION", nearcall_core::VERSION)
    }
}
