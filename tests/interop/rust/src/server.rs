use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::Routes;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::util::ServiceExt;

use crate::messages::test_service_server::{TestService, TestServiceServer};
use crate::messages::*;
use crate::{INITIAL, Outcome, TRAILING};

struct Service;

type Reply<T> = Result<Response<T>, Status>;
type Replies = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

#[tonic::async_trait]
impl TestService for Service {
    async fn empty_call(&self, _: Request<Empty>) -> Reply<Empty> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Reply<SimpleResponse> {
        let request = request.into_inner();
        fail_as_asked(&request.response_status)?;
        let payload = Payload::zeros(request.response_size() as usize);
        let mut response = Response::new(SimpleResponse { payload });
        if !request.response_compressed.is_some_and(|wanted| wanted.value) {
            response.disable_compression();
        }
        Ok(response)
    }

    type StreamingOutputCallStream = Replies;

    async fn streaming_output_call(&self, request: Request<StreamingOutputCallRequest>) -> Reply<Replies> {
        let request = request.into_inner();
        // tonic compresses all messages of a response, or none.
        let compressed = |one: &ResponseParameters| one.compressed.is_some_and(|wanted| wanted.value);
        let any_compressed = request.response_parameters.iter().any(compressed);
        let mut response = Response::new(answers(request)?);
        if !any_compressed {
            response.disable_compression();
        }
        Ok(response)
    }

    async fn streaming_input_call(
        &self,
        requests: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Reply<StreamingInputCallResponse> {
        let mut requests = requests.into_inner();
        let mut size = 0;
        while let Some(request) = requests.message().await? {
            size += request.payload.map_or(0, |payload| payload.body.len());
        }
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size: size as i32 }))
    }

    type FullDuplexCallStream = Replies;

    async fn full_duplex_call(&self, requests: Request<Streaming<StreamingOutputCallRequest>>) -> Reply<Replies> {
        let mut requests = requests.into_inner();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let mut replies = match requests.message().await.and_then(|request| request.map(answers).transpose()) {
                    Ok(Some(replies)) => replies,
                    Ok(None) => return,
                    Err(status) => return drop(sender.send(Err(status)).await),
                };
                while let Some(reply) = replies.next().await {
                    if sender.send(reply).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))))
    }
}

fn answers(request: StreamingOutputCallRequest) -> Result<Replies, Status> {
    fail_as_asked(&request.response_status)?;
    let replies = tokio_stream::iter(request.response_parameters).then(async |asked| {
        tokio::time::sleep(Duration::from_micros(asked.interval_us() as u64)).await;
        Ok(StreamingOutputCallResponse { payload: Payload::zeros(asked.size as usize) })
    });
    Ok(Box::pin(replies))
}

fn fail_as_asked(asked: &Option<EchoStatus>) -> Result<(), Status> {
    match asked {
        Some(status) if status.code != 0 => Err(Status::new(Code::from(status.code), &status.message)),
        _ => Ok(()),
    }
}

/// Sends the test's metadata back. Handlers of tonic cannot add to the trailers of a call that succeeds.
async fn echo_metadata(service: Routes, request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
    let [initial, trailing] = [INITIAL, TRAILING].map(|name| request.headers().get(name).cloned());
    let mut response = service.oneshot(request).await?;
    if let Some(value) = initial {
        response.headers_mut().insert(INITIAL, value);
    }
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |mut frame| {
            if let (Some(trailers), Some(value)) = (frame.trailers_mut(), &trailing) {
                trailers.insert(TRAILING, value.clone());
            }
            frame
        }))
    }))
}

pub async fn serve(port: &str, tls: Option<(&str, &str)>) -> Outcome {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    let mut server = Server::builder();
    if let Some((certificate, key)) = tls {
        let identity = Identity::from_pem(std::fs::read(certificate)?, std::fs::read(key)?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    let service = TestServiceServer::new(Service).accept_compressed(Gzip).send_compressed(Gzip);
    let echoing =
        tower::layer::layer_fn(|inner: Routes| tower::service_fn(move |request| echo_metadata(inner.clone(), request)));
    Ok(server.layer(echoing).add_service(service).serve(format!("127.0.0.1:{port}").parse()?).await?)
}
