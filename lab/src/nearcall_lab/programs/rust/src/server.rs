//! The server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::Failure;
use crate::lab::Lab;
use crate::messages::lab_server::{Lab as Service, LabServer};
use crate::messages::{Fill, Named, Order, Pause};

// Relaxed everywhere: each is a number of its own, and orders no other memory.
#[derive(Default)]
struct Numbers {
    served: AtomicI64,
    secret: AtomicI64,
}

struct Handlers(Arc<Numbers>);

#[tonic::async_trait]
impl Service for Handlers {
    async fn quote(&self, order: Request<Order>) -> Result<Response<Fill>, Status> {
        self.0.served.fetch_add(1, Relaxed);
        let order = order.into_inner();
        Ok(Response::new(Fill {
            cost: order.quantity as f64 * order.price,
            lots: order.quantity / 100 + self.0.secret.load(Relaxed),
            accepted: !order.urgent,
            symbol: order.symbol,
        }))
    }

    async fn wait(&self, pause: Request<Pause>) -> Result<Response<Named>, Status> {
        self.0.served.fetch_add(1, Relaxed);
        let seconds = pause.into_inner().seconds;
        if seconds > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
        let id = (seconds * 1e6).round() as i64 + self.0.secret.load(Relaxed);
        Ok(Response::new(Named { id: id as i32, name: format!("waited {seconds} s") }))
    }
}

#[derive(Deserialize)]
struct Question {
    r#do: String,
    #[serde(default)]
    value: i64,
}

pub async fn serve(mut lab: Lab) -> Result<(), Failure> {
    let numbers = Arc::new(Numbers::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    lab.say(json!({"ready": listener.local_addr()?.to_string()}), &[])?;
    let service = LabServer::new(Handlers(numbers.clone()));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)); // as where the server binds the port itself
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    tokio::task::spawn_blocking(move || {
        while let Some(question) = lab.next::<Question>()? {
            match question.r#do.as_str() {
                "stop" => break,
                "secret" => {
                    numbers.secret.store(question.value, Relaxed);
                    lab.say(json!({"secret": true}), &[])?;
                }
                "served" => lab.say(json!({"served": numbers.served.load(Relaxed)}), &[])?,
                other => lab.say(json!({"unsupported": other}), &[])?,
            }
        }
        std::process::exit(0)
    })
    .await?
}
