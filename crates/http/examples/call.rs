//! Calls a gRPC server over a blocking socket. Each further argument is a message; the answers are printed.
//!
//! `cargo run -p nearcall-http --example call -- 127.0.0.1:50051 /pkg.Echo/Say hello world`

use std::error::Error;
use std::io::Write;
use std::net::TcpStream;

use nearcall_http::{Call, Compressing, Ending, Event, Filled, Options, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, messages @ ..] = &arguments[..] else { return Err("ADDRESS PATH MESSAGE ...".into()) };
    let mut socket = TcpStream::connect(address)?;
    let mut session = Session::client(Options::default());
    let call = session.begin(&Call { path, authority: address, user_agent: "call", ..Call::default() })?;
    for message in messages {
        session.send_message(call, &[message.as_bytes()], Compressing::No)?;
    }
    session.end(call)?;
    loop {
        session.flush(&mut socket)?;
        if session.fill(&mut socket)? == Filled::End {
            return Err("the server hung up".into());
        }
        // Events borrow from the session, so credit is given back after the last one.
        let mut taken = 0;
        while let Some(event) = session.next_event()? {
            match event {
                Event::Message { message, cost, .. } => {
                    taken += cost;
                    std::io::stdout().write_all(&message)?;
                    std::io::stdout().write_all(b"\n")?;
                }
                Event::Ended { ending: Ending::Status { code: 0, .. }, .. } => return Ok(()),
                Event::Ended { ending: Ending::Status { code, message, .. }, .. } => {
                    return Err(format!("status {code}: {message}").into());
                }
                Event::Reset { code, .. } => return Err(format!("the call was reset: {}", code.name()).into()),
                Event::Refused { why, .. } => return Err(why.into()),
                _ => {}
            }
        }
        session.release(call, taken);
    }
}
