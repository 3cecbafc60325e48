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
    use super::calls::aio::{AsyncUnary, PendingCall};
    #[pymodule_export]
    use super::calls::bound::BoundMethod;
    #[pymodule_export]
    use super::calls::callees::Calls;
    #[pymodule_export]
    use super::calls::deadline::{note_block, set_call_variables};
    #[pymodule_export]
    use super::calls::oneway::Oneway;
    #[pymodule_export]
    use super::calls::retry_budget::RetryBudget;
    #[pymodule_export]
    use super::calls::started::{StartedCall, set_watch_of_started, wait_for_started};
    #[pymodule_export]
    use super::calls::stream::Stream;
    #[pymodule_export]
    use super::calls::unary::Unary;
    #[pymodule_export]
    use super::connection::Connection;
    #[pymodule_export]
    use super::gil::errors::install;
    #[pymodule_export]
    use super::gil::greenlets::{Elsewhere, use_greenlets};
    #[pymodule_export]
    use super::gil::metadata::pushback;
    #[pymodule_export]
    use super::gil::rest::rest_in;
    #[pymodule_export]
    use super::options::listeners::{Listeners, die_with_starter, end_with};
    #[pymodule_export]
    use super::options::login::Login;
    #[pymodule_export]
    use super::options::named::named_servers;
    #[pymodule_export]
    use super::options::sandbox::{EarlyLimits, confine, sandbox_names};
    #[pymodule_export]
    use super::options::tls::{Tls, dev_certs};
    #[pymodule_export]
    use super::references::given::{References, current_references};
    #[pymodule_export]
    use super::references::objects::ServedObject;
    #[pymodule_export]
    use super::routing::node::{RouteEndpoint, RouteNode, RoutePending, RouteWaiter, RouteWork, read_route_table};
    #[pymodule_export]
    use super::routing::pushed::RoutePushed;
    #[pymodule_export]
    use super::serving::buffer::Buffer;
    #[pymodule_export]
    use super::serving::context::{Call, EarlyEnds, LeftToDo, current_call, on_end};
    #[pymodule_export]
    use super::serving::handler_turn::HandlerTurn;
    #[pymodule_export]
    use super::serving::health::{Health, HealthMethod};
    #[pymodule_export]
    use super::serving::introspection::IntrospectionMethod;
    #[pymodule_export]
    use super::serving::loop_server::{LoopRequest, Watch};
    #[pymodule_export]
    use super::serving::request_stream::RequestStream;
    #[pymodule_export]
    use super::serving::route_codec::RouteCodec;
    #[pymodule_export]
    use super::serving::route_handlers::{RouteDispatch, RouteInbox};
    #[pymodule_export]
    use super::serving::route_message::RouteMessage;
    #[pymodule_export]
    use super::serving::server::{LoopWork, Server};
    #[pymodule_export]
    use super::serving::topic::{Subscription, Topic};
    #[pymodule_export]
    use super::values::encoder::FittingEncoder;
    #[pymodule_export]
    use super::values::hashed::check_keys;
    #[pymodule_export]
    use super::values::kinds::{Attributes, all_of_kinds};
    #[pymodule_export]
    use super::values::native::is_native;
    #[pymodule_export]
    use super::values::plan::Method;
    #[pymodule_export]
    use super::values::protobuf::{ProtobufCodec, ProtobufMessages};
    #[pymodule_export]
    use super::values::sizes::memory_of;
    #[pymodule_export]
    use super::values::view::View;

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
