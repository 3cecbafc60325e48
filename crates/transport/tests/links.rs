//! Tests of the promises of `Link`, for every transport.

#[macro_use]
mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{
    CALL, PATIENCE, Pair, disarm, end_of, item, next_frame, next_part, pair, pattern, readable, receive, receive_soon,
    send, send_frame, signal_fd, signalled, small_ring, try_receive, until, whole,
};
use nearcall_ring::SpinPolicy;
use nearcall_transport::{Budget, Flushed, Incoming, Link, LinkError, Options, Outgoing, Room};
use nearcall_wire::Metadata;

every_transport! {
    frames_of_every_size_arrive
    a_payload_of_many_pieces_arrives
    a_long_frame_comes_in_parts
    both_directions_at_once_under_full_rings
    close_is_seen_by_both_sides
    what_was_sent_before_the_close_arrives
    a_message_over_the_limit_leaves_the_link_usable
    a_head_over_the_limit_leaves_the_link_usable
    a_deadline_ends_the_wait
    who_must_not_sleep_gets_what_is_here
    a_poller_of_ones_own_is_woken
    nobody_is_woken_for_nothing
    threads_send_at_once_without_mixing
    threads_send_long_frames_at_once_without_mixing
    looking_twice_changes_nothing
    what_seems_read_out_is_looked_at_again
    a_signal_interrupts_a_wait_but_not_a_frame
}

/// Receives on another thread and sends everything back.
fn echo(link: Arc<dyn Link>) -> std::thread::JoinHandle<LinkError> {
    std::thread::spawn(move || {
        loop {
            match receive(&*link) {
                Ok(frame) => send(&*link, &frame, &[]).expect("room"),
                Err(error) => return error,
            }
        }
    })
}

fn frames_of_every_size_arrive(scheme: &str) {
    for ring in [4096, 1 << 18] {
        let options = Options { ring_size: ring, ..Options::default() };
        let Pair { client, server } = pair(scheme, &options, &options);
        let reader = std::thread::spawn(move || {
            let mut number = 0;
            while let Ok(frame) = receive(&*server) {
                assert_eq!(frame[..8], (number as u64).to_le_bytes(), "frame {number}");
                let len = frame.len() - 8;
                assert!(frame[8..] == pattern(number, len), "frame {number} of {len} bytes is garbled");
                number += 1;
            }
            number
        });
        // The longest record of the ring and half of it, the reader's buffer, a region's smallest size; a head has 8
        // bytes.
        let longest = ring / 4 - 8;
        let edges = [0, 64, longest / 2, longest, ring, 1 << 16, (1 << 16) - 64, 1 << 17, 1 << 20];
        let mut number = 0;
        for edge in edges {
            for len in edge.max(20) - 20..edge.max(20) + 20 {
                let bytes = pattern(number, len);
                let name = (number as u64).to_le_bytes();
                let cut = len / 3;
                // A frame without options, and one with buffers.
                let sent = match number % 2 {
                    0 => send(&*client, &[&name[..], &bytes].concat(), &[]),
                    _ => send(&*client, &name, &[&bytes[..cut], &bytes[cut..]]),
                };
                sent.expect("sent");
                number += 1;
            }
        }
        client.close();
        assert_eq!(reader.join().expect("no panic"), number);
    }
}

fn a_payload_of_many_pieces_arrives(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let bytes = pattern(1, 5000);
    let mut pieces: Vec<&[u8]> = vec![&[]; 1500];
    pieces.extend(bytes.chunks(1));
    pieces.extend(vec![&[][..]; 1500]);
    send(&*client, b"headhead", &pieces).expect("sent");
    send(&*client, b"after", &[]).expect("sent");
    assert_eq!(receive(&*server).expect("a frame"), [b"headhead", &bytes[..]].concat());
    assert_eq!(receive(&*server).expect("a frame"), b"after");
}

/// A thread with many links is not held up by one of them, however long its frame is and however fast it arrives.
fn a_long_frame_comes_in_parts(scheme: &str) {
    const LEN: usize = 10 << 20;
    let budget = Budget::new(64 << 20);
    let bounded = Options { budget: Some(Arc::clone(&budget)), ..Options::default() };
    let Pair { client, server } = pair(scheme, &Options::default(), &bounded);
    let bytes = pattern(7, LEN);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&*client, b"headhead", &[&bytes]).expect("sent"));
        let mut parts = 0;
        until("the frame is there", || match next_part(&*server) {
            Ok(Some(incoming)) => {
                assert!(whole(&incoming) == [b"headhead", &bytes[..]].concat(), "it is garbled");
                true
            }
            Err(LinkError::Unfinished) => {
                assert!(budget.used() >= LEN, "what is taken in already is not counted: {} bytes", budget.used());
                parts += 1;
                false
            }
            other => {
                assert!(other.expect("open").is_none());
                false
            }
        });
        assert!(parts >= LEN / (256 << 10) - 1, "{parts} parts");
    });
}

fn both_directions_at_once_under_full_rings(scheme: &str) {
    const FRAMES: usize = 600;
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    // Records, regions of memory, frames longer than a socket's buffer.
    let sizes = [10, 300, 60_000, 0, 400_000, 500, 900];
    let run = move |link: Arc<dyn Link>, own: usize, other: usize| {
        let got = Cell::new(0);
        let check = |incoming: &Incoming| {
            let number = got.replace(got.get() + 1);
            let expected = [&[other as u8; 8], &pattern(other + number, sizes[number % sizes.len()])[..]].concat();
            assert!(whole(incoming) == expected, "frame {number} is garbled");
        };
        for number in 0..FRAMES {
            let bytes = pattern(own + number, sizes[number % sizes.len()]);
            let mut blocked = || match try_receive(&*link)? {
                Some(incoming) => {
                    check(&incoming);
                    Ok(())
                }
                None => link.wait_room(true, Duration::from_secs(1)),
            };
            link.send(CALL, &item(&[own as u8; 8], &[&bytes]), Room::Wait(&mut blocked)).expect("sent");
        }
        let end = Instant::now() + PATIENCE;
        while got.get() < FRAMES {
            next_frame(&*link, Some(end)).expect("open").iter().for_each(&check);
            assert!(Instant::now() < end, "frame {} does not come", got.get());
        }
        link
    };
    let other = std::thread::spawn(move || run(server, 2, 1));
    let client = run(client, 1, 2);
    drop((client, other.join().expect("no panic")));
}

fn close_is_seen_by_both_sides(scheme: &str) {
    for server_closes in [true, false] {
        let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
        let (near, far) = if server_closes { (server, client) } else { (client, server) };
        let waiting: Vec<_> = [Arc::clone(&near), Arc::clone(&far)]
            .into_iter()
            .map(|link| std::thread::spawn(move || next_frame(&*link, None)))
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        near.close();
        for waiting in waiting {
            assert_eq!(waiting.join().expect("no panic").err(), Some(LinkError::Closed));
        }
        assert_eq!(next_frame(&*far, None).err(), Some(LinkError::Closed), "it stays closed");
        assert_eq!(send(&*near, b"head", &[]), Err(LinkError::Closed));
        // The far side may not notice at once, but it must not be able to send for ever.
        until("sending to a closed link fails", || {
            send(&*far, b"head", &[&vec![0; 200_000]]) == Err(LinkError::Closed)
        });
        near.close();
    }
}

fn what_was_sent_before_the_close_arrives(scheme: &str) {
    for len in [10, 100_000] {
        for dropped in [false, true] {
            let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
            let frames: Vec<_> = (0..2).map(|number| pattern(number, len)).collect();
            for frame in &frames {
                send(&*client, b"head", &[frame]).expect("sent");
            }
            client.close();
            if dropped {
                drop(client);
            }
            // Like a server's poller: first notice the end, then take the frames that have arrived.
            assert!(readable(signal_fd(&*server), PATIENCE));
            let _ = signalled(&server);
            for frame in &frames {
                assert_eq!(receive(&*server).expect("sent before the close"), [b"head", &frame[..]].concat());
            }
            assert_eq!(end_of(&*server), LinkError::Closed);
        }
    }
}

fn a_message_over_the_limit_leaves_the_link_usable(scheme: &str) {
    let tight = Options { max_message: 100_000, ..Options::default() };
    let Pair { client, server } = pair(scheme, &Options::default(), &tight);
    let echo = echo(Arc::clone(&server));
    for len in [100_000, 100_001, 5, 5_000_000, 99_999] {
        let bytes = pattern(len, len);
        let sent = send(&*client, &bytes, &[]);
        if len > 100_000 {
            assert_eq!(sent, Err(LinkError::TooLong { len, limit: 100_000 }));
        } else {
            assert_eq!(sent, Ok(()));
            assert_eq!(receive(&*client).expect("a frame"), bytes);
        }
    }
    client.close();
    assert_eq!(echo.join().expect("no panic"), LinkError::Closed);
}

fn a_head_over_the_limit_leaves_the_link_usable(scheme: &str) {
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    let echo = echo(server);
    for round in 0..3 {
        // Metadata that is too long for a record of a small ring, and for a head on a stream.
        let mut metadata = Metadata::default();
        metadata.push("key", &vec![1; 3 << 20]);
        let sent = send_frame(&*client, &Outgoing { metadata: Some(metadata), ..item(&[2; 100], &[]) });
        assert!(matches!(sent, Err(LinkError::HeadTooLong { .. })), "{sent:?}");
        let bytes = pattern(round, 200_000);
        send(&*client, b"headhead", &[&bytes]).expect("the link goes on");
        assert_eq!(receive(&*client).expect("a frame"), [b"headhead", &bytes[..]].concat());
    }
    client.close();
    assert_eq!(echo.join().expect("no panic"), LinkError::Closed);
}

fn who_must_not_sleep_gets_what_is_here(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let mut place = None;
    receive_soon(&client, None, &mut place).expect("nothing is no error");
    assert!(place.is_none());
    // The wait goes on, and what comes now ends it.
    let reader = std::thread::spawn(move || (receive(&*client), client));
    send(&*server, b"first", &[]).expect("room");
    let (first, client) = reader.join().expect("received");
    assert_eq!(first, Ok(b"first".to_vec()));
    send(&*server, b"second", &[]).expect("room");
    let end = Instant::now() + PATIENCE;
    while place.is_none() {
        assert!(Instant::now() < end, "the frame is here");
        receive_soon(&client, Some(end), &mut place).expect("alive");
    }
    assert_eq!(whole(&place.take().expect("a frame")), b"second");
    server.close();
    // The end of a ring is noticed by who sleeps.
    let _ = receive_soon(&client, None, &mut place);
    assert!(place.is_none());
    assert_eq!(receive(&*client), Err(LinkError::Closed));
}

fn what_seems_read_out_is_looked_at_again(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let next = || {
        let mut found = None;
        until("a frame is here", || {
            found = try_receive(&*server).expect("alive");
            found.is_some()
        });
        whole(&found.expect("just found"))
    };
    send(&*client, b"one", &[]).expect("room");
    assert_eq!(next(), b"one");
    assert!(!server.may_have_more(), "that was all");
    // A hint only: the next frame is found all the same.
    send(&*client, b"two", &[]).expect("room");
    assert_eq!(next(), b"two");
    // Two at once, in one read.
    send(&*client, b"three", &[]).expect("room");
    send(&*client, b"four", &[]).expect("room");
    assert_eq!(next(), b"three");
    let said = server.may_have_more();
    assert_eq!(next(), b"four");
    assert!(!server.may_have_more() && (said || scheme == "tls"), "a frame was here");
}

fn a_deadline_ends_the_wait(scheme: &str) {
    for spin in [SpinPolicy::Auto, SpinPolicy::Fixed(Duration::ZERO), SpinPolicy::Fixed(PATIENCE)] {
        let options = Options { spin, ..Options::default() };
        let Pair { client, server } = pair(scheme, &options, &options);
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(30);
        while Instant::now() < deadline {
            assert!(next_frame(&*client, Some(deadline)).expect("open").is_none());
        }
        assert!(begun.elapsed() < PATIENCE / 2);
        assert!(try_receive(&*server).expect("open").is_none());
    }
}

fn a_poller_of_ones_own_is_woken(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let rounds = 300;
    let echo = echo(client);
    for round in 0..rounds {
        let bytes = pattern(round, if round % 10 == 0 { 150_000 } else { round });
        send(&*server, b"headhead", &[&bytes]).expect("sent");
        let end = Instant::now() + PATIENCE;
        let frame = loop {
            if let Some(incoming) = try_receive(&*server).expect("open") {
                break whole(&incoming);
            }
            if server.arm() {
                assert!(readable(signal_fd(&*server), end - Instant::now()), "round {round}: nobody rings");
                signalled(&server).expect("open");
            }
            disarm(&server);
        };
        assert_eq!(frame, [b"headhead", &bytes[..]].concat());
    }
    server.close();
    assert_eq!(echo.join().expect("no panic"), LinkError::Closed);
}

fn nobody_is_woken_for_nothing(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    for (sleeper, other) in [(&server, &client), (&client, &server)] {
        // Wake-ups that are left over from the handshake.
        until("the link is quiet", || {
            let armed = try_receive(&**sleeper).expect("open").is_none() && sleeper.arm();
            let quiet = armed && !readable(signal_fd(&**sleeper), Duration::ZERO);
            if !quiet {
                signalled(sleeper).expect("open");
                disarm(sleeper);
            }
            quiet
        });
        assert_eq!(other.flush(), Ok(Flushed::All));
        assert!(!readable(signal_fd(&**sleeper), Duration::ZERO), "there was nothing to send");
        disarm(sleeper);
    }
}

fn threads_send_at_once_without_mixing(scheme: &str) {
    mixing(scheme, 400, [3, 400, 20_000]);
}

/// Over shared memory such a frame is copied before its sender has the turn.
fn threads_send_long_frames_at_once_without_mixing(scheme: &str) {
    mixing(scheme, 15, [1 << 20, 700_000, 3_000_000]);
}

/// Four threads send so many frames each, of these lengths in turn.
fn mixing(scheme: &str, frames: usize, lengths: [usize; 3]) {
    const THREADS: usize = 4;
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    let senders: Vec<_> = (0..THREADS)
        .map(|thread| {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                for number in 0..frames {
                    let payload = pattern(thread + number, lengths[number % 3]);
                    send(&*client, &[thread as u8, 0], &[&payload]).expect("sent");
                }
            })
        })
        .collect();
    // A thread has to listen for the bell that tells of room.
    let over = Arc::new(AtomicBool::new(false));
    let listener = std::thread::spawn({
        let (client, over) = (Arc::clone(&client), Arc::clone(&over));
        move || {
            while !over.load(Ordering::Acquire) {
                assert!(
                    next_frame(&*client, Some(Instant::now() + Duration::from_millis(20))).expect("open").is_none()
                );
            }
        }
    });
    let mut next = [0; THREADS];
    for _ in 0..THREADS * frames {
        let frame = receive(&*server).expect("a frame");
        let thread = usize::from(frame[0]);
        assert!(frame[2..] == pattern(thread + next[thread], lengths[next[thread] % 3]), "{thread} {}", next[thread]);
        next[thread] += 1;
    }
    for sender in senders {
        sender.join().expect("no panic");
    }
    over.store(true, Ordering::Release);
    listener.join().expect("no panic");
}

fn looking_twice_changes_nothing(scheme: &str) {
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let bytes = pattern(0, 3_000_000);
    let sender = std::thread::spawn({
        let bytes = bytes.clone();
        move || send(&*client, b"head", &[&bytes]).map(|()| client)
    });
    // A frame longer than any buffer: part of it has arrived, and no thread takes it.
    until("something arrives", || server.spin());
    for _ in 0..50 {
        let _ = server.spin();
        let _ = server.arm();
        disarm(&server);
        server.wait_room(true, Duration::ZERO).expect("open");
    }
    assert_eq!(receive(&*server).expect("a frame").len(), bytes.len() + 4);
    drop(sender.join().expect("no panic").expect("sent"));
}

extern "C" fn nothing(_: i32) {}

fn a_signal_interrupts_a_wait_but_not_a_frame(scheme: &str) {
    // SAFETY: a sigaction is plain numbers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: an empty handler is async-signal-safe; without SA_RESTART, as Python installs its own.
    let installed = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    // SAFETY: no preconditions.
    let this = unsafe { libc::pthread_self() } as usize;
    let over = StopOnDrop(Arc::new(AtomicBool::new(false)));
    let storm = std::thread::spawn({
        let over = Arc::clone(&over.0);
        move || {
            while !over.load(Ordering::Acquire) {
                // SAFETY: the thread lives until this one has ended.
                unsafe { libc::pthread_kill(this as libc::pthread_t, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
    let reader = std::thread::spawn(move || {
        for number in 0..40 {
            assert_eq!(receive(&*server).expect("a frame")[4..], pattern(number, 300_000));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    for number in 0..40 {
        // Sending goes on, because half a frame would end the connection.
        send(&*client, b"head", &[&pattern(number, 300_000)]).expect("sent");
    }
    let interrupted = loop {
        match next_frame(&*client, Some(Instant::now() + PATIENCE)) {
            Ok(None) => {}
            other => break other.err(),
        }
    };
    // A handshake is not disturbed either.
    let _ = pair(scheme, &small_ring(), &small_ring());
    drop(over);
    storm.join().expect("no panic");
    reader.join().expect("no panic");
    assert!(matches!(interrupted, Some(LinkError::Interrupted | LinkError::Closed)), "{interrupted:?}");
}

/// A test that fails must stop sending signals, which could hit the next test on its thread.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A message that a reader keeps is not overwritten, and memory that the reader gives back is used again.
#[test]
fn leases_may_be_kept_and_come_back() {
    let Pair { client, server } = pair("shm", &Options::default(), &Options::default());
    let mut kept = Vec::new();
    for number in 0..80 {
        send(&*client, b"head", &[&pattern(number, 1_000_000)]).expect("sent");
        let incoming = try_receive(&*server).expect("open").expect("a frame");
        assert!(incoming.payload.lease().is_some());
        kept.push(incoming);
    }
    for (number, incoming) in kept.iter().enumerate() {
        assert_eq!(whole(incoming)[4..], pattern(number, 1_000_000));
    }
    drop(kept);
    for number in 0..80 {
        send(&*client, b"head", &[&pattern(number, 1_000_000)]).expect("sent");
        assert_eq!(receive(&*server).expect("a frame")[4..], pattern(number, 1_000_000));
    }
}
