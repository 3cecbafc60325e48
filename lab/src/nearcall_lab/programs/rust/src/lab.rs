//! The lab's requests and this program's answers, and the clock that both share.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, RawFd};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Failure;

#[derive(Deserialize)]
struct Config {
    read_fd: RawFd,
    write_fd: RawFd,
}

/// The channel to the lab.
pub struct Lab {
    requests: BufReader<File>,
    answers: File,
}

impl Lab {
    pub fn new(config: &str) -> Result<Lab, Failure> {
        let config: Config = serde_json::from_str(config)?;
        // SAFETY: the lab opened both descriptors for this process, and nothing else here uses them.
        let [requests, answers] = [config.read_fd, config.write_fd].map(|fd| unsafe { File::from_raw_fd(fd) });
        Ok(Lab { requests: BufReader::new(requests), answers })
    }

    /// The next request; none when the lab is gone.
    pub fn next<Request: DeserializeOwned>(&mut self) -> Result<Option<Request>, Failure> {
        let mut line = String::new();
        if self.requests.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Sends an answer and the blob that follows it.
    pub fn say(&mut self, mut message: Value, blob: &[u8]) -> Result<(), Failure> {
        if !blob.is_empty() {
            message["blob"] = json!(blob.len());
        }
        let mut data = message.to_string().into_bytes();
        data.push(b'\n');
        data.extend_from_slice(blob);
        Ok(self.answers.write_all(&data)?)
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
