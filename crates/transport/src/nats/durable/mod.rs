//! Messages that a NATS server keeps (`JetStream`) until somebody has handled them.
//!
//! These are no connections: who sends and who takes need not be there at the same time. A [`Sender`] keeps each message
//! until the NATS server says that it has it, and sends it again over the next connection. [`take`] gets messages as one of a
//! group, of which each message is one member's, and acknowledges it once it was handled.

mod sending;
mod taking;

use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamByNameErrorKind};
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};

use super::broker::{Broker, Servers};
use crate::errors::ConnectError;
use crate::options::Options;

pub use sending::{Sender, Unsent};
pub use taking::{Delivery, Settled, take};

/// How long messages are kept in a stream that is made here, and how many bytes of them.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
const KEPT_BYTES: i64 = 1 << 30;
/// Copies of them, where the NATS servers are so many.
const COPIES: usize = 3;

/// A subject whose messages are kept.
#[derive(Debug, Clone)]
pub struct Durable {
    pub(crate) url: String,
    pub(crate) servers: Servers,
    pub(crate) subject: String,
}

impl Durable {
    /// Connects, and finds the stream that keeps the subject's messages. Makes one if there is none.
    async fn reach(&self, options: &Options) -> Result<(Broker, Context, Stream), ConnectError> {
        let broker = self.servers.connect(&self.url, options).await?;
        let context = jetstream::new(broker.client.clone());
        let stream = self.stream(&context).await?;
        Ok((broker, context, stream))
    }

    async fn stream(&self, context: &Context) -> Result<Stream, ConnectError> {
        match context.stream_by_subject(&*self.subject).await {
            Ok(name) => context.get_stream(name).await.map_err(|error| self.not_kept(&error)),
            Err(error) => Err(match error.kind() {
                GetStreamByNameErrorKind::NotFound => return self.make_stream(context).await,
                // The server answers such a question only if it has JetStream.
                GetStreamByNameErrorKind::Request => self.not_kept(&NOT_THERE),
                _ => self.not_kept(&error),
            }),
        }
    }

    async fn make_stream(&self, context: &Context) -> Result<Stream, ConnectError> {
        let config = Config {
            // Words of a subject may have what names of streams may not.
            name: name_of(&self.subject),
            subjects: vec![self.subject.clone()],
            max_age: KEPT_FOR,
            max_bytes: KEPT_BYTES,
            num_replicas: COPIES,
            ..Config::default()
        };
        let alone = Config { num_replicas: 1, ..config.clone() };
        let made = match context.create_stream(config).await {
            Err(error) if matches!(error.kind(), CreateStreamErrorKind::JetStream(_)) => {
                context.create_stream(alone).await
            }
            made => made,
        };
        let error = match made {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        match error.kind() {
            // Another process has made it at the same time.
            CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                context.get_stream(name_of(&self.subject)).await.map_err(|error| self.not_kept(&error))
            }
            CreateStreamErrorKind::JetStreamUnavailable => Err(self.not_kept(&NOT_THERE)),
            _ => Err(self.not_kept(&error)),
        }
    }

    fn not_kept(&self, why: &dyn Display) -> ConnectError {
        self.unavailable(&format!("its messages cannot be kept: {why}"))
    }

    fn unavailable(&self, why: &dyn Display) -> ConnectError {
        ConnectError::Unavailable(format!("cannot connect to {}: {why}", self.url))
    }
}

const NOT_THERE: &str = "JetStream does not answer there; start the NATS server with -js";

/// A name for a stream or for a group, of which NATS takes letters, digits, `-` and `_`. No two texts have the same: a dot is `-`, and what
/// else NATS does not take, or stands for something here, is `_` and its bytes.
fn name_of(text: &str) -> String {
    let part = |byte: u8| match byte {
        b'.' => "-".to_owned(),
        b'_' => "__".to_owned(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("_{byte:02x}"),
    };
    text.bytes().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn no_two_texts_have_one_name() {
        let names =
            ["images.left", "images-left", "images_left", "images left", "images_2dleft", "\u{e9}"].map(name_of);
        let expected = ["images-left", "images_2dleft", "images__left", "images_20left", "images__2dleft", "_c3_a9"];
        assert_eq!(names, expected);
    }
}
