//! Workers that park (`crates/models` has models of it).

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use nearcall_platform::descriptors;

use super::leadership::Leadership;

fn until(done: impl Fn() -> bool) {
    while !done() {
        thread::yield_now();
    }
}

/// A leadership in which this thread receives.
fn led() -> Arc<Leadership> {
    let (event, alarm) = (descriptors::new_event().unwrap(), descriptors::new_alarm().unwrap());
    let leadership = Leadership::new(event, alarm, Arc::new(descriptors::new_poller().unwrap()));
    assert!(leadership.lead.try_take());
    Arc::new(leadership)
}

#[test]
fn who_came_last_is_called_first_and_the_end_of_the_server_calls_nobody() {
    let leadership = led();
    assert!(!leadership.leave(), "there is nobody");
    let (told, outcomes) = channel();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (own, told) = (Arc::clone(&leadership), told.clone());
            let thread = thread::spawn(move || told.send((number, own.park())).unwrap());
            until(|| leadership.workers().1 == number + 1);
            thread
        })
        .collect();
    assert!(leadership.leave());
    assert_eq!(outcomes.recv(), Ok((2, true)));
    assert!(leadership.lead.try_take());
    leadership.close();
    let mut rest = [outcomes.recv().unwrap(), outcomes.recv().unwrap()];
    rest.sort_unstable();
    assert_eq!(rest, [(0, false), (1, false)]);
    assert!(!leadership.leave() && !leadership.park());
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn who_is_not_called_for_a_while_ends_and_two_stay() {
    let leadership = led();
    let threads = [(); 4].map(|()| {
        let own = Arc::clone(&leadership);
        thread::spawn(move || own.park())
    });
    until(|| threads.iter().filter(|thread| thread.is_finished()).count() == 2);
    assert_eq!(leadership.workers().1, 2);
    leadership.close();
    assert!(threads.into_iter().all(|thread| !thread.join().unwrap()));
}

#[test]
fn a_thread_is_started_if_there_are_not_too_many() {
    let leadership = led();
    leadership.join();
    assert!(leadership.lacks_second() && leadership.begin_starting(1) && !leadership.lacks_second());
    assert!(!leadership.begin_starting(1), "one too many would be there, and may be");
    leadership.cancel_starting();
    assert_eq!((leadership.ready(), leadership.workers()), (0, (1, 0)));
    assert!(leadership.begin_starting(1));
    leadership.join();
    leadership.resign();
    assert_eq!((leadership.ready(), leadership.workers()), (0, (1, 0)));
}
