//! The lower bound for latency: two processes, one ring each way, both spinning, no frames, no Python.
//!
//! `ring_floor [seconds per size] [client cpu] [server cpu]` prints one JSON line per size. A CPU of -1 leaves it unpinned.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use nearcall_ring::{Consumer, MappedLane, Producer, Segment};

const RING: usize = 1 << 18;
const SIZES: [usize; 5] = [15, 1000, 10_000, 60_000, 1_000_000];

fn pin(cpu: i32) {
    let Ok(cpu) = usize::try_from(cpu) else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("pin to a CPU");
}

/// Sends a message in records that fit the ring, so that both sides copy at once.
fn send(producer: &mut Producer<MappedLane>, message: &[u8]) {
    for piece in message.chunks(16_384.min(producer.longest())) {
        while !producer.try_write(&[piece], false).expect("a sane ring") {
            std::hint::spin_loop();
        }
    }
}

fn receive(consumer: &mut Consumer<MappedLane>, message: &mut [u8]) {
    let mut at = 0;
    while at < message.len() {
        let Some(record) = consumer.peek().expect("a sane ring") else {
            std::hint::spin_loop();
            continue;
        };
        consumer.copy(&mut message[at..at + record.len]);
        consumer.consume(record);
        at += record.len;
    }
}

fn serve(fd: BorrowedFd<'_>) {
    let segment = Segment::open(fd, RING).expect("the segment");
    let (mut producer, mut consumer) = segment.lanes();
    let mut message = vec![0; SIZES[SIZES.len() - 1]];
    loop {
        let mut size = [0; 8];
        receive(&mut consumer, &mut size);
        let size = u64::from_le_bytes(size) as usize;
        if size == 0 {
            return;
        }
        loop {
            receive(&mut consumer, &mut message[..size]);
            let last = message[0] == 1;
            send(&mut producer, &message[..size]);
            if last {
                break;
            }
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: f64| arguments.get(at).and_then(|s| s.parse().ok()).unwrap_or(default);
    if arguments.first().map(String::as_str) == Some("--serve") {
        // This process spins, so it must end with the client, however the client ends.
        let kill = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(kill)).expect("end with the parent");
        pin(number(2, -1.0) as i32);
        // SAFETY: the parent passed this descriptor, open, and named it on the command line.
        serve(unsafe { BorrowedFd::borrow_raw(number(1, 0.0) as i32) });
        return;
    }
    let seconds = number(0, 0.5);
    let (segment, fd) = Segment::create(RING).expect("shared memory");
    rustix::io::fcntl_setfd(fd.as_fd(), rustix::io::FdFlags::empty()).expect("inherit the descriptor");
    let mut server = Command::new(std::env::current_exe().expect("own path"))
        .args(["--serve", &fd.as_raw_fd().to_string(), &number(2, 1.0).to_string()])
        .spawn()
        .expect("start the server");
    pin(number(1, 0.0) as i32);
    let (mut producer, mut consumer) = segment.lanes();
    for size in SIZES {
        send(&mut producer, &(size as u64).to_le_bytes());
        let mut message = vec![0; size];
        let mut times = Vec::with_capacity(1 << 20);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            let begun = Instant::now();
            message[0] = u8::from(begun > end || times.len() == times.capacity());
            send(&mut producer, &message);
            receive(&mut consumer, &mut message);
            times.push(begun.elapsed().as_nanos() as u64);
            if message[0] == 1 {
                break;
            }
        }
        times.drain(..times.len() / 10);
        times.sort_unstable();
        let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
        println!(r#"{{"size":{size},"p50_ns":{},"p99_ns":{},"n":{}}}"#, at(0.5), at(0.99), times.len());
    }
    send(&mut producer, &0_u64.to_le_bytes());
    server.wait().expect("the server ends");
}
