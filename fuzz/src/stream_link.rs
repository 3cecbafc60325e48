//! Bytes from a stranger on a Unix socket, through handshake and frames, in pieces of his choice.
use std::io::Write;
use std::os::unix::net::UnixStream;

use nearcall_transport::{Incoming, Link, LinkError, Listener, Options, Url};
use nearcall_wire::{Hello, Limits, Preamble, Welcome};

const LIMIT: u64 = 100_000;
/// What a frame may have besides its payload.
const HEAD_ROOM: usize = 1 << 20;

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let Some((&shape, bytes)) = input.split_first() else { return };
    // Its own for each input, so that its file is gone at the end.
    let path = std::env::temp_dir().join(format!("nearcall-fuzz-{}.sock", std::process::id()));
    let url: Url = format!("unix://{}", path.display()).parse().expect("a URL");
    let listener = Listener::bind(&url, &Options::default()).expect("bind");
    let mut client = UnixStream::connect(&path).expect("connect");
    client.set_nonblocking(true).expect("a live socket");
    let mut opening = listener.accept().expect("accept").expect("a client").opening;
    let options = Options { max_message: LIMIT, ..Options::default() };
    // Half of all strangers know how to say hello.
    if shape & 1 == 1 {
        let hello = Hello { version: "x".into(), limits: Limits { max_message: LIMIT }, ring: 0, buffers: 0 }.encode();
        client.write_all(&Preamble::Hello(hello.len()).encode()).expect("room");
        client.write_all(&hello).expect("room");
    }
    let mut pieces = bytes.chunks(usize::from(shape >> 1) * 16 + 1);
    let limits = Limits { max_message: LIMIT };
    let welcome = Welcome { version: "x".into(), limits, description: "{}".into(), memory: false, buffers: 0 };
    loop {
        match opening.advance(&welcome, &options) {
            Ok(true) => break,
            Ok(false) => match pieces.next() {
                Some(piece) => client.write_all(piece).expect("room"),
                None => return,
            },
            Err(Some(why)) => {
                opening.reject(&why, false);
                return;
            }
            Err(None) => return,
        }
    }
    let link = opening.into_link(&options).expect("welcomed");
    loop {
        match next_part(&*link) {
            Ok(Some(incoming)) => {
                assert!(incoming.payload.lease().is_none());
                assert!(incoming.payload.len() <= LIMIT as usize + HEAD_ROOM);
            }
            Ok(None) => {
                let _ = link.spin();
                match pieces.next() {
                    Some(piece) => client.write_all(piece).expect("room"),
                    None => break,
                }
            }
            Err(LinkError::Unfinished) => {}
            Err(_) => break,
        }
    }
    drop(client);
    while let Ok(Some(_)) | Err(LinkError::Unfinished) = next_part(&*link) {}
}

fn next_part(link: &dyn Link) -> Result<Option<Incoming>, LinkError> {
    let mut place = None;
    link.try_receive_part(&mut place).map(|()| place)
}
