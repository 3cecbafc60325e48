//! Tests of frames without room, and of what bounds them, for every transport.

#[macro_use]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{CALL, PATIENCE, Pair, item, next_frame, pair, pattern, receive, send, small_ring, until, whole};
use nearcall_platform::descriptors;
use nearcall_transport::{Account, Budget, Flushed, Incoming, Link, LinkError, Options, Room, Sent};

every_transport! {
    a_sender_without_room_notices_the_end
    a_slow_reader_slows_the_sender_down
    what_waits_goes_out_in_order_when_there_is_room
    without_room_nothing_of_a_frame_is_sent
    what_a_sender_leaves_in_the_middle_is_sent_to_its_end
    what_waits_for_a_peer_that_does_not_read_is_bounded
}

fn a_sender_without_room_notices_the_end(scheme: &str) {
    // No thread on this side receives: the sender has to find out alone.
    for receiving in [false, true] {
        let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let sender = std::thread::spawn(move || {
            let end = Instant::now() + PATIENCE;
            loop {
                let mut blocked = || {
                    assert!(Instant::now() < end, "the end is not noticed");
                    client.wait_room(receiving, Duration::from_millis(100))
                };
                match client.send(CALL, &item(&[0; 400], &[]), Room::Wait(&mut blocked)) {
                    Ok(_) => count.fetch_add(1, Ordering::Relaxed),
                    Err(error) => return error,
                };
            }
        });
        let mut seen = 0;
        until("the sender is stuck", || {
            std::thread::sleep(Duration::from_millis(20));
            let now = sent.load(Ordering::Relaxed);
            std::mem::replace(&mut seen, now) == now && now > 0
        });
        drop(server);
        assert_eq!(sender.join().expect("no panic"), LinkError::Closed);
    }
}

fn a_slow_reader_slows_the_sender_down(scheme: &str) {
    // Unread long messages must not pile up without bound: here 1.2 GB, if all were accepted.
    let Pair { client, server } = pair(scheme, &Options::default(), &Options::default());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let bytes = pattern(0, 3_000_000);
    let frame = [b"head", &bytes[..]].concat();
    let sender = std::thread::spawn(move || {
        for _ in 0..400 {
            send(&*client, b"head", &[&bytes]).expect("sent");
            count.fetch_add(1, Ordering::Relaxed);
        }
        client
    });
    let mut seen = usize::MAX;
    until("the sender waits", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut seen, now) == now
    });
    assert!(seen < 60, "{seen} messages of 3 MB are under way");
    for _ in 0..400 {
        assert!(receive(&*server).expect("a frame") == frame);
    }
    drop(sender.join().expect("no panic"));
}

/// Flushes while the other side is read from, until everything is sent.
fn flush(link: &dyn Link) {
    let end = Instant::now() + PATIENCE;
    while link.flush().expect("open") != Flushed::All {
        assert!(Instant::now() < end, "no room is made");
        link.wait_room(false, Duration::from_millis(20)).expect("open");
    }
    assert_eq!(link.queued(), 0);
}

fn what_waits_goes_out_in_order_when_there_is_room(scheme: &str) {
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    let frames: Vec<_> = (0..300).map(|number| pattern(number, [3, 900, 100_000][number % 3])).collect();
    let mut queued = 0;
    for frame in &frames {
        queued +=
            usize::from(client.send(CALL, &item(b"headhead", &[frame]), Room::Later).expect("kept") == Sent::Queued);
    }
    assert!(queued > 0 && client.queued() > 0, "all of it went out at once");
    let reader = std::thread::spawn(move || {
        for (number, frame) in frames.iter().enumerate() {
            assert!(receive(&*server).expect("a frame")[8..] == *frame, "frame {number} is garbled or out of order");
        }
        server
    });
    flush(&*client);
    drop(reader.join().expect("no panic"));
}

fn without_room_nothing_of_a_frame_is_sent(scheme: &str) {
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    let mut sent = 0;
    let full = loop {
        match client.send(CALL, &item(b"headhead", &[&pattern(sent, 700)]), Room::Now) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, LinkError::Full);
    let reader = std::thread::spawn(move || {
        for number in 0..sent {
            assert!(receive(&*server).expect("a frame")[8..] == pattern(number, 700), "frame {number}");
        }
        receive(&*server)
    });
    flush(&*client);
    send(&*client, b"the last", &[]).expect("room");
    assert_eq!(reader.join().expect("no panic").expect("a frame"), b"the last");
}

fn what_a_sender_leaves_in_the_middle_is_sent_to_its_end(scheme: &str) {
    let Pair { client, server } = pair(scheme, &small_ring(), &small_ring());
    let long = pattern(7, 20_000_000);
    let mut left = 0;
    // Sends until there is no room, and gives up in the middle of a frame.
    while client.send(CALL, &item(b"headhead", &[&long]), Room::Wait(&mut || Err(LinkError::DeadlinePassed))).is_ok() {
        left += 1;
        if client.queued() > 0 {
            break;
        }
    }
    let reader = std::thread::spawn(move || {
        for _ in 0..left {
            assert!(receive(&*server).expect("a frame")[8..] == long, "garbled");
        }
        receive(&*server).map(|frame| (frame, server))
    });
    flush(&*client);
    send(&*client, b"the next", &[]).expect("room");
    assert_eq!(reader.join().expect("no panic").expect("a frame").0, b"the next");
}

fn what_waits_for_a_peer_that_does_not_read_is_bounded(scheme: &str) {
    let budget = Budget::new(32 << 20);
    let bounded = Options { budget: Some(Arc::clone(&budget)), max_message: 1 << 20, ..Options::default() };
    let Pair { client: _client, server } = pair(scheme, &Options::default(), &bounded);
    let bytes = pattern(0, 1_000_000);
    let refused = loop {
        match server.send(CALL, &item(b"head", &[&bytes]), Room::Later) {
            // A frame that has begun is kept whatever the budget says.
            Ok(_) => assert!(server.queued() <= 10 << 20),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, LinkError::Exhausted(why) if why.contains("max_memory")), "{refused:?}");
    server.send(CALL, &item(b"short", &[]), Room::Later).expect("a short one always waits");
    server.close();
    assert_eq!(budget.used(), 0);
}

/// Memory that is kept of a peer is charged to it, and nothing is read before there is room for it.
#[test]
fn nothing_is_read_beyond_the_budget() {
    for scheme in ["shm", "unix", "tcp", "tls"] {
        let budget = Budget::new(16 << 20);
        let bounded = Options { budget: Some(Arc::clone(&budget)), max_message: 1 << 20, ..Options::default() };
        let Pair { client, server } = pair(scheme, &Options::default(), &bounded);
        let sender = std::thread::spawn(move || {
            for number in 0..12 {
                send(&*client, b"headhead", &[&pattern(number, 1_000_000)]).expect("sent");
            }
            client
        });
        let mut kept = std::collections::VecDeque::new();
        let end = Instant::now() + PATIENCE;
        let mut taken = 0;
        while taken + kept.len() < 12 {
            assert!(Instant::now() < end, "{scheme}: nothing comes any more");
            match next_frame(&*server, Some(Instant::now() + Duration::from_millis(20))) {
                Ok(incoming) => kept.extend(incoming),
                Err(LinkError::OverBudget) => {
                    assert!(budget.used() > 3_000_000 && budget.used() <= 4 << 20, "{scheme}: {}", budget.used());
                    let first: Incoming = kept.pop_front().expect("something is kept");
                    assert!(whole(&first)[8..] == pattern(taken, 1_000_000), "{scheme}: frame {taken} is garbled");
                    taken += 1;
                }
                Err(error) => panic!("{scheme}: {error}"),
            }
        }
        assert!(taken > 0, "{scheme}: the budget was never felt");
        drop(kept);
        assert_eq!(budget.used(), 0);
        drop(sender.join().expect("no panic"));
    }
}

/// A handler may go on for long after its client is gone, and keeps the link.
#[test]
fn half_a_message_is_let_go_of_when_nobody_receives_any_more() {
    for scheme in ["unix", "tcp", "tls"] {
        let budget = Budget::new(64 << 20);
        let bounded = Options { budget: Some(Arc::clone(&budget)), ..Options::default() };
        let Pair { client, server } = pair(scheme, &Options::default(), &bounded);
        let long = pattern(7, 20_000_000);
        client
            .send(CALL, &item(b"headhead", &[&long]), Room::Wait(&mut || Err(LinkError::DeadlinePassed)))
            .expect("what is left of it waits");
        let mut slot = None;
        until("half of it is here", || {
            let looked = server.try_receive_part(&mut slot);
            assert!(matches!(looked, Ok(()) | Err(LinkError::Unfinished)) && slot.is_none(), "{looked:?}");
            budget.used() > long.len()
        });
        server.close();
        server.stop_receiving();
        assert_eq!(budget.used(), 0, "{scheme}");
        assert_eq!(server.try_receive_part(&mut slot), Err(LinkError::Closed));
    }
}

#[test]
fn who_waits_for_room_is_woken_once_by_whoever_frees_some() {
    let wake = Arc::new(descriptors::new_event().expect("a descriptor"));
    let woken = || rustix::io::read(&*wake, &mut [0; 8]).is_ok();
    let budget = Budget::waking(8 << 20, &Arc::downgrade(&wake));
    let account = Account::of(&budget, 1 << 20);
    let mut charges: Vec<_> = (0..4).map(|_| account.charge_anyway(1 << 20)).collect();
    charges.pop();
    assert!(!woken(), "nobody waits");
    assert!(budget.await_room() && !budget.await_room());
    assert_eq!(budget.used(), 3 << 20, "the mark is no bytes");
    charges.push(account.charge_anyway(1 << 20));
    assert!(!woken(), "nothing was freed");
    charges.pop();
    assert!(woken() && budget.await_room());
    charges.clear();
    assert!(woken() && !woken(), "once");
    assert!(budget.await_room() && budget.used() == 0);
}
