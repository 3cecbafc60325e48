//! tonic's server and client of the test service, a program that knows nothing of nearcall.
//!
//! ```text
//! tonic-peer server PORT [CERTIFICATE KEY]   serves until its input ends
//! tonic-peer client CASE PORT [AUTHORITY]    exit status 0 if the case holds
//! ```

mod client;
mod server;

/// What the build script has made of the descriptors of `nearcall proto`.
mod messages {
    tonic::include_proto!("grpc.testing");

    impl Payload {
        pub fn zeros(size: usize) -> Option<Self> {
            Some(Self { body: vec![0; size], ..Self::default() })
        }
    }
}

const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    match given[..] {
        ["server", port] => server::serve(port, None).await,
        ["server", port, certificate, key] => server::serve(port, Some((certificate, key))).await,
        ["client", case, port] => client::run(case, port, None).await,
        ["client", case, port, authority] => client::run(case, port, Some(authority)).await,
        _ => Err("tonic-peer server PORT [CERTIFICATE KEY] | client CASE PORT [AUTHORITY]".into()),
    }
}
