//! A server with one thread: every gRPC call gets its messages back, everything else gets "hello". For h2spec and load
//! generators.
//!
//! `cargo run --release -p nearcall-http --example echo -- 127.0.0.1:50051`

use std::collections::HashSet;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use nearcall_http::{Broken, Compressing, Ending, Event, Filled, Options, Outcome, Session};
use rustix::event::{PollFd, PollFlags, poll};

/// How often one connection is read before others have their turn.
const READS: usize = 4;

struct Connection {
    socket: TcpStream,
    session: Session,
    /// Whether the socket had no room for some of the output.
    is_full: bool,
    /// Streams with requests in other protocols than gRPC that have not ended.
    others: HashSet<u32>,
}

/// What to do for an event, after its data has been read.
enum Todo {
    Nothing,
    Release(u32, usize),
    Finish(u32),
    Hello(u32),
    Refuse(u32, u8, String),
    Forget(u32),
}

impl Connection {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, session: Session::server(Options::default()), is_full: false, others: HashSet::new() })
    }

    /// Reads, answers and writes. Whether the connection goes on.
    fn run(&mut self) -> io::Result<bool> {
        let mut is_open = true;
        for _ in 0..READS {
            match self.session.fill(&mut self.socket)? {
                Filled::Some(_) => {}
                Filled::Nothing => break,
                Filled::End => {
                    is_open = false;
                    break;
                }
            }
            if self.answer().is_err() {
                is_open = false;
                break;
            }
        }
        // All answers go out together.
        self.is_full = !self.session.flush(&mut self.socket)?;
        Ok(is_open && !self.session.is_finished())
    }

    fn answer(&mut self) -> Result<(), Broken> {
        loop {
            // A message is borrowed from the session, so it is copied before it is sent.
            let mut echo: Option<(u32, Vec<u8>)> = None;
            let Some(event) = self.session.next_event()? else { return Ok(()) };
            let (mut todo, mut then) = (Todo::Nothing, Todo::Nothing);
            match event {
                Event::Request { stream, request, ended } => {
                    if !ended && request.codec().is_none() {
                        self.others.insert(stream);
                    } else if ended {
                        todo = if request.codec().is_some() { Todo::Finish(stream) } else { Todo::Hello(stream) };
                    }
                }
                Event::Message { stream, message, cost, ended, .. } => {
                    echo = Some((stream, message.into_owned()));
                    todo = Todo::Release(stream, cost);
                    if ended {
                        then = Todo::Finish(stream);
                    }
                }
                Event::Data { stream, cost, ended, .. } => {
                    todo = Todo::Release(stream, cost);
                    if ended {
                        self.others.remove(&stream);
                        then = Todo::Hello(stream);
                    }
                }
                Event::Ended { stream, ending: Ending::Plain } => {
                    todo = if self.others.remove(&stream) { Todo::Hello(stream) } else { Todo::Finish(stream) };
                }
                Event::Refused { stream, code, why } => todo = Todo::Refuse(stream, code, why.into_owned()),
                Event::Reset { stream, .. } => {
                    self.others.remove(&stream);
                    todo = Todo::Forget(stream);
                }
                _ => {}
            }
            if let Some((stream, message)) = echo {
                // A stream that is gone needs no answer.
                let _ = self.session.send_message(stream, &[&message], Compressing::No);
            }
            self.perform(todo);
            self.perform(then);
        }
    }

    fn perform(&mut self, todo: Todo) {
        // A stream that is gone needs no answer.
        let _ = match todo {
            Todo::Nothing => Ok(()),
            Todo::Release(stream, cost) => {
                self.session.release(stream, cost);
                Ok(())
            }
            Todo::Finish(stream) => self.session.send_status(stream, &Outcome::default()),
            Todo::Hello(stream) => self.session.answer(stream, 200, &[("content-type", b"text/plain")], b"hello"),
            Todo::Refuse(stream, code, why) => {
                self.session.send_status(stream, &Outcome { code, message: &why, ..Outcome::default() })
            }
            Todo::Forget(stream) => {
                self.session.forget(stream);
                Ok(())
            }
        };
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let listener = TcpListener::bind(&address)?;
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let (mut ready, is_new) = wait(&listener, &connections)?;
        let mut goes_on = ready.drain(..);
        // A connection that fails is closed; the others go on.
        connections.retain_mut(|one| !goes_on.next().unwrap_or(false) || one.run().unwrap_or(false));
        if is_new {
            match listener.accept() {
                Ok((socket, _)) => connections.push(Connection::new(socket)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn interest(fd: BorrowedFd<'_>, is_full: bool) -> PollFd<'_> {
    let writing = if is_full { PollFlags::OUT } else { PollFlags::empty() };
    PollFd::from_borrowed_fd(fd, PollFlags::IN | writing)
}

/// Waits until a connection is ready or a client connects: which connections are ready, and whether there is a new
/// client.
fn wait(listener: &TcpListener, connections: &[Connection]) -> io::Result<(Vec<bool>, bool)> {
    let mut all: Vec<_> = connections.iter().map(|one| interest(one.socket.as_fd(), one.is_full)).collect();
    all.push(interest(listener.as_fd(), false));
    poll(&mut all, None)?;
    let mut ready: Vec<_> = all.iter().map(|one| !one.revents().is_empty()).collect();
    let is_new = ready.pop().unwrap_or(false);
    Ok((ready, is_new))
}
