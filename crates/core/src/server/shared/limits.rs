//! How much a server takes on at once, and the failures of calls beyond that.

use std::time::Duration;

use nearcall_wire::Failure;

/// So many requests of each client are taken even by a full server, so that a client that fills the server does not
/// shut the others out.
const ALWAYS: usize = 16;

/// How much a server takes on at once.
#[derive(Debug, Clone, Copy)]
pub struct WorkLimits {
    /// Handlers that run in threads at a time; coroutines do not count.
    pub max_concurrency: usize,
    /// Requests received and not finished, with those that wait.
    pub max_pending: usize,
    /// Calls with a stream under way on one connection.
    pub max_streams: usize,
    /// Bytes kept of what clients have sent, and of what waits for them to read.
    pub max_memory: usize,
    /// Objects that one client may hold.
    pub max_references: usize,
    /// When connections end by themselves, if they do.
    pub age: Option<Age>,
}

/// How old a connection may become.
#[derive(Debug, Clone, Copy)]
pub struct Age {
    /// Then its client is asked to make another one.
    pub limit: Duration,
    /// How long its calls under way may go on after that.
    pub grace: Duration,
}

impl WorkLimits {
    /// At this number of requests, further one-way calls wait at their clients. This leaves room for calls that wait
    /// for a reply, which would be refused.
    pub(in crate::server) fn most_oneway(&self) -> usize {
        self.max_pending - self.max_pending / 4
    }

    /// How many requests each client may have in any case, also when others have taken all places.
    pub(in crate::server) fn always(&self) -> u64 {
        (self.max_pending / 4).min(ALWAYS) as u64
    }

    /// How many handlers of streams may run in threads. They run for as long as their clients like, so a client that
    /// opens many streams must leave threads for the calls of others.
    pub(in crate::server) fn most_streams(&self) -> usize {
        self.max_concurrency - self.max_concurrency / 4
    }

    pub(in crate::server) fn too_many_pending(&self) -> Failure {
        let limit = self.max_pending;
        Failure::new(
            Failure::RESOURCE_EXHAUSTED,
            format!("the server has {limit} calls under way, which is its limit; raise it there with max_pending"),
        )
    }

    pub(in crate::server) fn too_much_metadata(&self) -> Failure {
        let limit = self.max_memory;
        Failure::new(
            Failure::RESOURCE_EXHAUSTED,
            format!(
                "the metadata of this client's calls under way takes its part of the {limit} bytes that the server keeps; \
                 raise max_memory there"
            ),
        )
    }

    pub(in crate::server) fn too_many_streams(&self) -> Failure {
        let limit = self.max_streams;
        Failure::new(
            Failure::RESOURCE_EXHAUSTED,
            format!(
                "this client has {limit} streams open, which is the server's limit for one connection; close some, or \
                 raise it there with max_streams"
            ),
        )
    }
}
