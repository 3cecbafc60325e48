//! Buffers that are handed over, between both ends of a connection over shared memory in one process.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{PATIENCE, Pair, next_frame, pair, pattern, send, whole};
use nearcall_transport::{Budget, Buffer, BufferPool, Incoming, Lease, Link, Options};

const LEN: usize = 3 << 20;

/// A buffer of this test only: the tests share one process, and one pool.
fn filled(len: usize, seed: usize) -> Arc<Buffer> {
    let buffer = BufferPool::common().create(len).expect("shared memory");
    // SAFETY: the buffer has that many bytes, and no other code knows of them yet.
    unsafe { std::ptr::copy_nonoverlapping(pattern(seed, len).as_ptr(), buffer.as_ptr(), len) };
    buffer
}

/// The bytes as a sender passes them. The tests do not write to them while the slice is used.
fn bytes(buffer: &Buffer) -> &[u8] {
    // SAFETY: the buffer has that many bytes as long as it lives.
    unsafe { std::slice::from_raw_parts(buffer.as_ptr(), buffer.len()) }
}

fn received(lease: &Lease) -> &[u8] {
    // SAFETY: the lease has that many bytes as long as it lives, and the tests do not write to them meanwhile.
    unsafe { std::slice::from_raw_parts(lease.as_ptr(), lease.len()) }
}

fn next(link: &dyn Link) -> Incoming {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(incoming) = next_frame(link, Some(Instant::now() + Duration::from_millis(100))).expect("connected")
        {
            return incoming;
        }
        assert!(Instant::now() < end, "no frame comes");
    }
}

fn of_shm() -> Pair {
    pair("shm", &Options::default(), &Options::default())
}

#[test]
fn a_buffer_is_seen_and_not_copied() {
    let Pair { client, server } = of_shm();
    let buffer = filled(LEN, 1);
    send(&*client, b"head", &[b"body", &bytes(&buffer)[4096..]]).expect("room");
    let incoming = next(&*server);
    assert_eq!(incoming.payload.copied(), b"headbody");
    let [(8, lease)] = incoming.payload.handed_over() else { panic!("{incoming:?}") };
    assert!(lease.to_vec() == bytes(&buffer)[4096..]);
    // SAFETY: inside the buffer, of which no slice is held.
    unsafe { buffer.as_ptr().wrapping_add(4096).write(99) };
    assert_eq!(lease.to_vec()[0], 99, "it is the same memory");
}

#[test]
fn what_came_goes_back_to_where_it_was() {
    let Pair { client, server } = of_shm();
    let buffer = filled(LEN, 2);
    for from in [0, 100, 8192] {
        send(&*client, b"to", &[&bytes(&buffer)[from..]]).expect("room");
        let there = next(&*server);
        send(&*server, b"fro", &[&received(&there.payload.handed_over()[0].1)[50..]]).expect("room");
        drop(there);
        let back = next(&*client);
        assert_eq!(back.payload.copied(), b"fro");
        let (at, lease) = &back.payload.handed_over()[0];
        assert_eq!((*at, lease.len()), (3, LEN - from - 50));
        assert_eq!(lease.as_ptr().addr(), buffer.as_ptr().addr() + from + 50);
    }
}

#[test]
fn a_message_in_a_region_goes_back_as_well() {
    let Pair { client, server } = of_shm();
    let message = pattern(3, LEN);
    let mut places = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..3 {
        send(&*client, &message, &[]).expect("room");
        let there = next(&*server);
        let lease = there.payload.lease().expect("in a region");
        send(&*server, b"fro", &[received(lease)]).expect("room");
        drop(there);
        let back = next(&*client);
        let [(3, lease)] = back.payload.handed_over() else { panic!("{back:?}") };
        assert!(lease.to_vec() == message);
        places.push(lease.as_ptr());
        kept.push(back);
    }
    // A buffer that was handed back is not written to while it is held.
    assert!(kept.iter().all(|back| back.payload.handed_over()[0].1.to_vec() == message));
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 3);
}

#[test]
fn memory_is_lent_until_it_is_given_back() {
    let Pair { client, server } = of_shm();
    let len = LEN + 777_777;
    let mut buffer = filled(len, 4);
    let first = buffer.as_ptr();
    send(&*client, b"to", &[bytes(&buffer)]).expect("room");
    let there = next(&*server);
    drop(buffer);
    let lent = |buffer: Option<Arc<Buffer>>| buffer.is_none_or(|other| other.as_ptr() != first);
    assert!(lent(client.pool().reuse(len)), "the peer has it");
    assert!(there.payload.handed_over()[0].1.to_vec() == pattern(4, len));
    drop(there);
    buffer = client.pool().reuse(len).expect("the peer has given it back");
    assert_eq!(buffer.as_ptr(), first);
    // Lent twice: given back when both are dropped.
    let messages: Vec<_> = [1, 2]
        .map(|_| {
            send(&*client, b"to", &[bytes(&buffer)]).expect("room");
            next(&*server)
        })
        .into();
    drop(buffer);
    for message in messages {
        assert!(lent(client.pool().reuse(len)));
        drop(message);
    }
    assert_eq!(client.pool().reuse(len).expect("given back").as_ptr(), first);
}

#[test]
fn what_the_peer_kept_when_the_connection_ended_is_not_used_again() {
    let Pair { client, server } = of_shm();
    let len = LEN + 999_999;
    let buffer = filled(len, 5);
    let place = buffer.as_ptr();
    send(&*client, b"to", &[bytes(&buffer)]).expect("room");
    let there = next(&*server);
    client.close();
    drop((client, buffer));
    assert!(BufferPool::common().reuse(len).is_none_or(|other| other.as_ptr() != place));
    assert!(there.payload.handed_over()[0].1.to_vec() == pattern(5, len));
}

#[test]
fn what_one_client_has_seen_is_not_for_another() {
    let (one, other) = (of_shm(), of_shm());
    let len = LEN + 333_333;
    let buffer = filled(len, 6);
    let place = buffer.as_ptr();
    send(&*one.server, b"to", &[bytes(&buffer)]).expect("room");
    drop((next(&*one.client), buffer));
    assert!(other.server.pool().reuse(len).is_none());
    assert!(BufferPool::common().reuse(len).is_none_or(|other| other.as_ptr() != place));
    assert_eq!(one.server.pool().reuse(len).expect("its own").as_ptr(), place);
}

#[test]
fn a_budget_that_is_used_up_lets_parts_be_mapped() {
    let tight = Options { budget: Some(Budget::new(8 << 20)), max_message: 6 << 20, ..Options::default() };
    let Pair { client, server } = pair("shm", &Options::default(), &tight);
    let buffer = filled(24 << 20, 7);
    for round in 1..20 {
        let (one, two) = (&bytes(&buffer)[round * 1000..][..LEN / 2], &bytes(&buffer)[(20 << 20) - round..][..LEN / 2]);
        send(&*client, b"to", &[one, b"between", two]).expect("room");
        let there = next(&*server);
        assert_eq!(there.payload.copied(), b"tobetween");
        assert!(there.payload.handed_over()[0].1.to_vec() == *one);
        assert!(there.payload.handed_over()[1].1.to_vec() == *two);
        // A part of a buffer that is mapped in part can be handed back.
        send(&*server, b"fro", &[&received(&there.payload.handed_over()[1].1)[5..]]).expect("room");
        let back = next(&*client);
        assert_eq!(back.payload.handed_over()[0].1.as_ptr(), two[5..].as_ptr());
    }
}

#[test]
fn more_than_may_be_lent_is_copied() {
    let client = Options { budget: Some(Budget::new(16 << 20)), ..Options::default() };
    let Pair { client, server } = pair("shm", &client, &Options { max_message: 4 << 20, ..Options::default() });
    let buffers: Vec<_> = (0..40).map(|seed| filled(LEN, seed)).collect();
    let mut kept = Vec::new();
    let mut copied = 0;
    for (seed, buffer) in buffers.iter().enumerate() {
        send(&*client, bytes(buffer), &[]).expect("room");
        let there = next(&*server);
        copied += usize::from(there.payload.handed_over().is_empty());
        match there.payload.lease() {
            Some(lease) => assert!(lease.to_vec() == pattern(seed, LEN)),
            None => assert!(there.payload.handed_over()[0].1.to_vec() == pattern(seed, LEN)),
        }
        if kept.len() < 25 {
            kept.push(there);
        }
    }
    assert!(copied > 0, "so much may not be lent at a time");
    kept.clear();
    send(&*client, bytes(&buffers[0]), &[]).expect("room");
    assert_eq!(next(&*server).payload.handed_over().len(), 1, "and now it may");
}

#[test]
fn more_buffers_than_a_peer_knows_take_turns() {
    let Pair { client, server } = of_shm();
    let buffers: Vec<_> = (0..50).map(|seed| filled(200_000, seed)).collect();
    for round in 0..3 {
        for (seed, buffer) in buffers.iter().enumerate() {
            send(&*client, b"to", &[bytes(buffer)]).expect("room");
            let there = next(&*server);
            assert_eq!(there.payload.handed_over().len(), 1, "round {round}, buffer {seed}");
            assert!(there.payload.handed_over()[0].1.to_vec() == pattern(seed, 200_000));
        }
    }
}

#[test]
fn a_long_rest_lies_in_a_region_beside_what_is_handed_over() {
    let Pair { client, server } = of_shm();
    let (buffer, rest) = (filled(LEN, 8), pattern(9, 500_000));
    send(&*client, b"to", &[&rest, bytes(&buffer), &rest]).expect("room");
    let there = next(&*server);
    assert_eq!(&whole(&there)[..2], b"to");
    assert!(there.payload.lease().expect("the rest").to_vec() == [b"to", &rest[..], &rest[..]].concat());
    assert_eq!(there.payload.handed_over()[0].0, 2 + rest.len());
    assert!(there.payload.handed_over()[0].1.to_vec() == bytes(&buffer));
}

#[test]
fn over_sockets_it_is_copied() {
    for scheme in ["unix", "tcp"] {
        let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
        let buffer = filled(100_000, 10);
        send(&*client, b"to", &[bytes(&buffer)]).expect("room");
        assert!(whole(&next(&*server))[2..] == *bytes(&buffer));
    }
}
