//! Behaviour that only real processes show: death, locks, forks, and left-over files.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    PATIENCE, accept, end_of, fresh, mappings, next_frame, open_fds, pair, pattern, readable, receive, send, signal_fd,
    signalled, socket_path, until, whole,
};
use nearcall_transport::{ConnectError, Connected, LinkError, Listener, Options, Url, connect};

const URL: &str = "NEARCALL_TEST_URL";
const SCHEMES: [&str; 3] = ["shm", "unix", "tcp"];

/// Not a test itself: the other process. It listens and sends everything back until it is killed.
#[test]
#[ignore = "started by the other tests"]
fn child_serves() {
    let Ok(url) = std::env::var(URL) else { return };
    let listener = Listener::bind(&url.parse().expect("a URL"), &Options::default()).expect("bind");
    println!("\nserving {}", listener.url());
    loop {
        let link = accept(&listener, &Options::default()).expect("a good client");
        std::thread::spawn(move || {
            while let Ok(frame) = receive(&*link) {
                if frame == b"stop reading" {
                    std::thread::sleep(PATIENCE);
                }
                if send(&*link, &frame[..4], &[&frame[4..]]).is_err() {
                    return;
                }
            }
        });
    }
}

struct Server {
    process: Child,
    url: Url,
}

impl Server {
    fn start(url: &Url) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "child_serves", "--ignored", "--nocapture"])
            .env(URL, url.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("serving ").map(|url| url.parse().expect("a URL")))
            .expect("it serves");
        Self { process, url }
    }

    /// Kills the process: no code of it runs any more.
    fn kill(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The next server of its name removes what it left behind.
        let _ = Listener::bind(&self.url, &Options::default());
    }
}

#[test]
fn the_death_of_a_process_is_seen_at_once() {
    for scheme in SCHEMES {
        let mut server = Server::start(&fresh(scheme));
        let connect = || connect(&server.url, "test", &Options::default()).expect("connect").link;
        let (sleeping, polled, stuck) = (connect(), connect(), connect());
        for link in [&sleeping, &polled, &stuck] {
            let bytes = pattern(1, 300_000);
            send(&**link, b"head", &[&bytes]).expect("sent");
            assert_eq!(receive(&**link).expect("a frame")[4..], bytes);
        }
        let sleeper = std::thread::spawn(move || end_of(&*sleeping));
        send(&*stuck, b"stop reading", &[]).expect("sent");
        let sender = std::thread::spawn(move || {
            loop {
                if let Err(error) = send(&*stuck, b"head", &[&[0; 3000]]) {
                    return error;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(polled.arm());
        server.kill();
        let begun = Instant::now();
        assert!(readable(signal_fd(&*polled), PATIENCE));
        assert!(signalled(&polled).is_err() || end_of(&*polled) == LinkError::Closed);
        assert_eq!(sleeper.join().expect("no panic"), LinkError::Closed, "{scheme}");
        assert_eq!(sender.join().expect("no panic"), LinkError::Closed, "{scheme}");
        assert!(begun.elapsed() < PATIENCE / 2);
    }
}

#[test]
fn a_name_belongs_to_the_living() {
    for scheme in ["shm", "unix"] {
        let url = fresh(scheme);
        let error = connect(&url, "test", &Options::default()).expect_err("nobody there");
        assert!(matches!(&error, ConnectError::Unavailable(why) if why.contains("nobody has served it")), "{error}");
        let mut server = Server::start(&url);
        let error = Listener::bind(&url, &Options::default()).expect_err("served").to_string();
        assert!(error.contains(&format!("process {} already does", server.process.id())), "{error}");
        connect(&url, "test", &Options::default()).expect("still served");
        server.kill();
        let error = connect(&url, "test", &Options::default()).expect_err("dead");
        assert!(matches!(&error, ConnectError::Unavailable(why) if why.contains("has died")), "{error}");
        // Its files are still there, but have no effect.
        let next = Listener::bind(&url, &Options::default()).expect("a dead server's name is free");
        drop(next);
        let error = connect(&url, "test", &Options::default()).expect_err("gone").to_string();
        assert!(error.contains("nobody has served it"), "nothing is left behind: {error}");
    }
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let url = fresh("unix");
    let path = &socket_path(&url);
    std::fs::write(path, "precious").expect("written");
    let error = Listener::bind(&url, &Options::default()).expect_err("taken").to_string();
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(path).expect("still there"), "precious");
    std::fs::remove_file(path).expect("ours");
    let lock = path.with_extension("sock.lock");
    let _ = std::fs::remove_file(&lock);
    // A file behind a link in place of the lock is not touched, either.
    let precious = path.with_extension("precious");
    std::fs::write(&precious, "precious").expect("written");
    std::os::unix::fs::symlink(&precious, &lock).expect("linked");
    Listener::bind(&url, &Options::default()).expect_err("no link is followed");
    assert_eq!(std::fs::read_to_string(&precious).expect("still there"), "precious");
    std::fs::remove_file(&lock).expect("ours");
    std::fs::remove_file(&precious).expect("ours");
}

#[test]
fn a_successor_keeps_its_files() {
    let url = fresh("unix");
    let path = &socket_path(&url);
    let old = Listener::bind(&url, &Options::default()).expect("bind");
    // The files are removed from outside, and another server takes the name.
    std::fs::remove_file(path).expect("there");
    std::fs::remove_file(path.with_extension("sock.lock")).expect("there");
    let next = Listener::bind(&url, &Options::default()).expect("free");
    drop(old);
    assert!(path.exists(), "the old server's end must not take the new one's socket");
    drop(next);
    assert!(!path.exists());
}

/// Runs `child` in a fork of this process and waits for it.
fn forked(child: impl FnOnce()) {
    // SAFETY: the child only drops what it has, which allocates nothing, and leaves at once.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: no preconditions; no destructor or exit handler of the parent runs.
            unsafe { libc::_exit(0) }
        }
        pid => {
            assert!(pid > 0, "fork");
            let mut status = 0;
            // SAFETY: a live local; the process is a child of this one.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!(status, 0);
        }
    }
}

#[test]
fn a_fork_ends_nothing_of_its_parent() {
    for scheme in SCHEMES {
        let listener = Listener::bind(&fresh(scheme), &Options::default()).expect("bind");
        let url = listener.url().clone();
        let mut listener = Some(listener);
        let pair = pair(scheme, &Options::default(), &Options::default());
        let mut both = Some(pair);
        forked(|| {
            if let Some(pair) = &both {
                pair.client.close();
                pair.server.close();
            }
            drop(both.take());
            drop(listener.take());
        });
        let pair = both.expect("the parent's");
        send(&*pair.client, b"head", &[b"still here"]).expect("open");
        assert_eq!(receive(&*pair.server).expect("open"), b"headstill here");
        std::thread::scope(|scope| {
            let listener = listener.as_ref().expect("the parent's");
            let server = scope.spawn(|| accept(listener, &Options::default()).expect("a good client"));
            connect(&url, "test", &Options::default()).expect("its socket is still there");
            server.join().expect("no panic");
        });
    }
}

/// Not a test itself: runs alone in a process, so that no other test opens descriptors meanwhile.
#[test]
#[ignore = "started by the other tests"]
fn child_counts_what_is_left() {
    if std::env::var_os(URL).is_none() {
        return;
    }
    let round = |scheme: &str, number: usize| {
        let listener = Listener::bind(&fresh(scheme), &Options::default()).expect("bind");
        let options = Options::default();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| accept(&listener, &options).expect("a good client"));
            let Connected { link, .. } = connect(listener.url(), "test", &options).expect("connect");
            let server = server.join().expect("no panic");
            let echo = scope.spawn(move || {
                let mut kept = Vec::new();
                while let Ok(incoming) = next_frame(&*server, None) {
                    kept.extend(incoming);
                }
                kept.iter().map(|incoming| whole(incoming).len()).sum::<usize>()
            });
            for len in [10, 100_000, 1_000_000, 5_000_000, 40_000_000] {
                send(&*link, b"head", &[&vec![number as u8; len]]).expect("sent");
            }
            link.close();
            assert_eq!(echo.join().expect("no panic"), 46_100_010 + 20);
        });
        // A client that leaves in the middle of its handshake, and one that is refused.
        let error = connect(&"shm://nobody-serves-this".parse().expect("a URL"), "test", &options).expect_err("nobody");
        assert!(matches!(error, ConnectError::Unavailable(_)), "{error}");
    };
    for scheme in ["shm", "inproc", "unix", "tcp"] {
        round(scheme, 0);
        let before = (open_fds(), mappings());
        for number in 1..4 {
            round(scheme, number);
        }
        assert_eq!((open_fds(), mappings()), before, "{scheme}");
        assert_eq!(mappings(), 0, "{scheme}");
    }
}

#[test]
fn nothing_is_left_of_a_connection() {
    let status = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "child_counts_what_is_left", "--ignored", "--nocapture", "--test-threads=1"])
        .env(URL, "yes")
        .status()
        .expect("a process");
    assert!(status.success());
    // Shared memory has no name anywhere, so that even a killed process leaves none.
    let mut server = Server::start(&fresh("shm"));
    let link = connect(&server.url, "test", &Options::default()).expect("connect").link;
    send(&*link, b"head", &[&vec![1; 300_000]]).expect("sent");
    receive(&*link).expect("a frame");
    server.kill();
    let named = std::fs::read_dir("/dev/shm").map_or(0, |dir| {
        dir.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("nearcall")).count()
    });
    assert_eq!(named, 0);
    until("the end is seen", || next_frame(&*link, None).is_err());
}
