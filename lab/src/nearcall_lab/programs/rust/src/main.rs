//! One side of the lab's gRPC service in Rust: lab server|client CONFIG. Speaks the lab's line protocol.

mod client;
mod lab;
mod server;

mod messages {
    tonic::include_proto!("nearcall_lab");
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().ok_or("lab server|client CONFIG")?;
    let lab = lab::Lab::new(&arguments.next().ok_or("lab server|client CONFIG")?)?;
    if role == "server" { server::serve(lab).await } else { client::drive(lab).await }
}
