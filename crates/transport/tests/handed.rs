//! Clients that one listener accepts and another serves.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use common::{Certificates, PATIENCE, accept, fresh, listening_fd, readable, receive, send, send_raw};
use nearcall_transport::{Connected, Listener, Options, connect, is_end_of_clients};
use rustix::event::{EventfdFlags, eventfd};

fn counter() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"))
}

fn count(counter: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(counter, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
}

#[test]
fn a_client_that_is_handed_over_notices_nothing() {
    let certificates = Certificates::get();
    let server = Options { tls: Some(certificates.server(false)), ..Options::default() };
    let client = Options { tls: Some(certificates.client(false)), ..Options::default() };
    for scheme in ["shm", "unix", "tcp", "tls"] {
        let door = Listener::bind(&fresh(scheme), &server).expect("bind");
        let (giver, taker) = UnixStream::pair().expect("a pair");
        let returned = counter();
        let room = door.through(taker.into(), Arc::clone(&returned)).expect("by sockets");
        assert_eq!(room.url().to_string(), door.url().to_string());
        assert!(room.accept().expect("no client yet").is_none());
        std::thread::scope(|scope| {
            let served = scope.spawn(|| accept(&room, &server).expect("a good client"));
            let dialled = scope.spawn(|| connect(door.url(), "test", &client).expect("connect"));
            assert!(readable(listening_fd(&door), PATIENCE), "nobody connects");
            let socket = door.accept_socket().expect("accept").expect("a client");
            send_raw(&giver, &[0], &[socket.as_fd()]).expect("room");
            drop(socket);
            let Connected { link, .. } = dialled.join().expect("no panic");
            let server = served.join().expect("no panic");
            send(&*link, b"over", &[]).expect("sent");
            assert_eq!(receive(&*server).expect("a frame"), b"over");
            link.close();
        });
    }
}

#[test]
fn a_seat_is_given_back_once_by_its_last_owner() {
    let door = Listener::bind(&fresh("unix"), &Options::default()).expect("bind");
    let (giver, taker) = UnixStream::pair().expect("a pair");
    let returned = counter();
    let room = door.through(taker.into(), Arc::clone(&returned)).expect("by sockets");
    let (client, _other) = UnixStream::pair().expect("a pair");
    send_raw(&giver, &[0], &[client.as_fd()]).expect("room");
    let arrived = room.accept().expect("accept").expect("a client");
    let permit = arrived.permit.clone();
    assert!(permit.is_some());
    drop(arrived);
    assert_eq!(count(&returned), 0, "somebody still has it");
    drop(permit);
    assert_eq!(count(&returned), 1);
}

#[test]
fn no_client_comes_from_a_giver_that_is_gone() {
    let door = Listener::bind(&fresh("unix"), &Options::default()).expect("bind");
    let (giver, taker) = UnixStream::pair().expect("a pair");
    let room = door.through(taker.into(), counter()).expect("by sockets");
    // A byte without a descriptor is not a client.
    send_raw(&giver, &[0], &[]).expect("room");
    let error = room.accept().expect_err("no client");
    assert!(!is_end_of_clients(&error), "{error}");
    drop(giver);
    let error = room.accept().expect_err("nobody gives");
    assert!(is_end_of_clients(&error), "{error}");
    let error = room.accept().expect_err("still nobody");
    assert!(is_end_of_clients(&error), "{error}");
}
