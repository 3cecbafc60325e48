//! The lab's typed call, served by tonic: lab PORT

use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::messages::lab_server::{Lab, LabServer};
use crate::messages::{Fill, Order};

mod messages {
    tonic::include_proto!("nearcall_lab");
}

struct Service;

#[tonic::async_trait]
impl Lab for Service {
    async fn quote(&self, order: Request<Order>) -> Result<Response<Fill>, Status> {
        let order = order.into_inner();
        Ok(Response::new(Fill {
            symbol: order.symbol,
            cost: order.quantity as f64 * order.price,
            lots: order.quantity / 100,
            accepted: !order.urgent,
        }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).ok_or("lab PORT")?;
    Ok(Server::builder().add_service(LabServer::new(Service)).serve(format!("127.0.0.1:{port}").parse()?).await?)
}
