//! The same server as `echo`, with the crate `h2` driven by hand: docs/adr/0032-http2.md compares the two.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::{RecvStream, SendStream, server};
use http::{HeaderMap, Response};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A non-blocking socket, as `h2` needs it. It wakes no task: the loop polls every connection that the system reports
/// as ready.
struct Socket(TcpStream);

fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        other => Poll::Ready(other),
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let space = into.initialize_unfilled();
        polled(self.0.read(space)).map_ok(|len| into.advance(len))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        polled(self.0.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A connection, and the calls whose messages have not arrived completely.
struct Connection {
    h2: server::Connection<Socket, Bytes>,
    calls: Vec<(RecvStream, SendStream<Bytes>)>,
}

/// Sends back the messages of a call that have arrived. Whether the call is over.
fn echo(body: &mut RecvStream, reply: &mut SendStream<Bytes>, context: &mut Context<'_>) -> bool {
    while let Poll::Ready(data) = body.poll_data(context) {
        let Some(Ok(data)) = data else {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().expect("a value"));
            let _ = reply.send_trailers(trailers);
            return true;
        };
        let _ = body.flow_control().release_capacity(data.len());
        let _ = reply.send_data(data, false);
    }
    false
}

impl Connection {
    /// Whether the connection goes on. Takes all waiting requests before the first is answered: `h2` writes whenever it
    /// is polled, and replies should go out together.
    fn run(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut begun = Vec::new();
            while let Poll::Ready(accepted) = self.h2.poll_accept(context) {
                let Some(Ok(call)) = accepted else { return false };
                begun.push(call);
            }
            for (request, mut respond) in begun {
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .header("grpc-accept-encoding", "identity,gzip,zstd")
                    .body(())
                    .expect("good headers");
                let Ok(reply) = respond.send_response(response, false) else { continue };
                self.calls.push((request.into_body(), reply));
            }
            let before = self.calls.len();
            self.calls.retain_mut(|(body, reply)| !echo(body, reply, context));
            if self.calls.len() == before {
                return true;
            }
        }
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50052".to_owned());
    let listener = TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    let mut greeting = Vec::new();
    let mut sockets: Vec<TcpStream> = Vec::new();
    loop {
        let mut all: Vec<_> = sockets.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)).collect();
        all.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        poll(&mut all, None)?;
        drop(all);
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            sockets.push(socket.try_clone()?);
            let mut builder = server::Builder::new();
            builder.initial_window_size(1 << 20).initial_connection_window_size(4 << 20).max_concurrent_streams(1000);
            greeting.push(Box::pin(builder.handshake::<_, Bytes>(Socket(socket))));
        }
        greeting.retain_mut(|one| match one.as_mut().poll(&mut context) {
            Poll::Ready(Ok(h2)) => {
                connections.push(Connection { h2, calls: Vec::new() });
                false
            }
            Poll::Ready(Err(_)) => false,
            Poll::Pending => true,
        });
        let before = connections.len();
        connections.retain_mut(|one| one.run(&mut context));
        if connections.len() < before && connections.is_empty() && greeting.is_empty() {
            sockets.clear();
        }
    }
}
