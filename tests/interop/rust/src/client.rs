use std::fmt::Debug;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use crate::messages::test_service_client::TestServiceClient;
use crate::messages::*;
use crate::{INITIAL, Outcome, TRAILING};

const SENT: [usize; 4] = [27182, 8, 1828, 45904];
const ASKED: [usize; 4] = [31415, 9, 2653, 58979];
const LARGE_REQUEST: usize = 271828;
const LARGE_REPLY: usize = 314159;
const PATIENCE: Duration = Duration::from_secs(30);

type Test = TestServiceClient<Channel>;

pub async fn run(case: &str, port: &str, authority: Option<&str>) -> Outcome {
    let channel = match authority {
        None => Endpoint::try_from(format!("http://127.0.0.1:{port}"))?,
        Some(file) => {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(file)?));
            Endpoint::try_from(format!("https://127.0.0.1:{port}"))?.tls_config(tls)?
        }
    };
    let channel = channel.connect().await?;
    let test = TestServiceClient::new(channel.clone()).accept_compressed(Gzip);
    let tried = async {
        match case {
            "empty_unary" => empty_unary(test).await,
            "large_unary" => large_unary(test).await,
            "client_streaming" => client_streaming(test).await,
            "server_streaming" => server_streaming(test).await,
            "ping_pong" => ping_pong(test).await,
            "empty_stream" => empty_stream(test).await,
            "custom_metadata" => custom_metadata(test).await,
            "status_code_and_message" => status_code_and_message(test).await,
            "special_status_message" => special_status_message(test).await,
            "unimplemented_method" => unimplemented(channel, "TestService").await,
            "unimplemented_service" => unimplemented(channel, "UnimplementedService").await,
            "cancel_after_begin" => cancel_after_begin(test).await,
            "cancel_after_first_response" => cancel_after_first_response(test).await,
            "timeout_on_sleeping_server" => timeout_on_sleeping_server(test).await,
            "concurrent_large_unary" => concurrent_large_unary(test).await,
            "client_compressed_unary" => client_compressed_unary(test).await,
            "client_compressed_streaming" => client_compressed_streaming(test).await,
            "server_compressed_unary" => server_compressed_unary(test).await,
            "server_compressed_streaming" => server_compressed_streaming(test).await,
            other => Err(format!("there is no case {other}").into()),
        }
    };
    tokio::time::timeout(PATIENCE, tried).await?
}

fn large() -> SimpleRequest {
    SimpleRequest {
        response_size: Some(LARGE_REPLY as i32),
        payload: Payload::zeros(LARGE_REQUEST),
        ..SimpleRequest::default()
    }
}

fn input(size: usize) -> StreamingInputCallRequest {
    StreamingInputCallRequest { payload: Payload::zeros(size), ..Default::default() }
}

/// A request of so many bytes, for messages of so many.
fn asking(sizes: &[usize], payload: usize) -> StreamingOutputCallRequest {
    let asked = |size: &usize| ResponseParameters { size: *size as i32, ..ResponseParameters::default() };
    StreamingOutputCallRequest {
        response_parameters: sizes.iter().map(asked).collect(),
        payload: Payload::zeros(payload),
        ..Default::default()
    }
}

fn bool(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

/// A stream of requests that stays open while its sender does.
fn open<T>() -> (mpsc::UnboundedSender<T>, UnboundedReceiverStream<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, UnboundedReceiverStream::new(receiver))
}

fn is_large(reply: &SimpleResponse) {
    assert_eq!(reply.payload.as_ref().unwrap().body, vec![0; LARGE_REPLY]);
}

fn size(reply: &StreamingOutputCallResponse) -> usize {
    reply.payload.as_ref().unwrap().body.len()
}

async fn sizes(replies: impl Stream<Item = Result<StreamingOutputCallResponse, Status>>) -> Result<Vec<usize>, Status> {
    replies.map(|reply| reply.map(|reply| size(&reply))).collect().await
}

fn fails_with<T: Debug>(found: Result<T, Status>, code: Code, message: &str) {
    let status = found.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, message));
}

async fn empty_unary(mut test: Test) -> Outcome {
    test.empty_call(Empty {}).await?;
    Ok(())
}

async fn large_unary(mut test: Test) -> Outcome {
    is_large(test.unary_call(large()).await?.get_ref());
    Ok(())
}

async fn client_streaming(mut test: Test) -> Outcome {
    let reply = test.streaming_input_call(tokio_stream::iter(SENT.map(input))).await?;
    assert_eq!(reply.get_ref().aggregated_payload_size as usize, SENT.iter().sum::<usize>());
    Ok(())
}

async fn server_streaming(mut test: Test) -> Outcome {
    let replies = test.streaming_output_call(asking(&ASKED, 0)).await?.into_inner();
    assert_eq!(sizes(replies).await?, ASKED);
    Ok(())
}

async fn ping_pong(mut test: Test) -> Outcome {
    let (sender, requests) = open();
    // tonic waits for the response's headers, which a server may send with its first message.
    sender.send(asking(&ASKED[..1], SENT[0]))?;
    let mut replies = test.full_duplex_call(requests).await?.into_inner();
    for next in 1..=SENT.len() {
        assert_eq!(replies.message().await?.as_ref().map(size), Some(ASKED[next - 1]));
        if next < SENT.len() {
            sender.send(asking(&ASKED[next..=next], SENT[next]))?;
        }
    }
    drop(sender);
    assert_eq!(replies.message().await?, None);
    Ok(())
}

async fn empty_stream(mut test: Test) -> Outcome {
    let replies = test.full_duplex_call(tokio_stream::empty()).await?.into_inner();
    assert_eq!(sizes(replies).await?, []);
    Ok(())
}

async fn custom_metadata(mut test: Test) -> Outcome {
    fn marked<T>(message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(INITIAL, MetadataValue::from_static("test_initial_metadata_value"));
        request.metadata_mut().insert_bin(TRAILING, MetadataValue::from_bytes(&[0xab; 3]));
        request
    }
    fn came_back(initial: &MetadataMap, trailing: &MetadataMap) {
        assert_eq!(initial.get(INITIAL).unwrap(), "test_initial_metadata_value");
        assert_eq!(trailing.get_bin(TRAILING).unwrap().to_bytes().unwrap().as_ref(), [0xab; 3]);
    }
    let reply = test.unary_call(marked(large())).await?;
    is_large(reply.get_ref());
    came_back(reply.metadata(), reply.metadata()); // of a unary call tonic puts both into one
    let requests = tokio_stream::once(asking(&[LARGE_REPLY], LARGE_REQUEST));
    let (initial, mut replies, _) = test.full_duplex_call(marked(requests)).await?.into_parts();
    assert_eq!(sizes(&mut replies).await?, [LARGE_REPLY]);
    came_back(&initial, &replies.trailers().await?.unwrap());
    Ok(())
}

async fn status_code_and_message(mut test: Test) -> Outcome {
    let status = EchoStatus { code: 2, message: "test status message".into() };
    let unary = SimpleRequest { response_status: Some(status.clone()), ..Default::default() };
    fails_with(test.unary_call(unary).await, Code::Unknown, &status.message);
    let item = StreamingOutputCallRequest { response_status: Some(status.clone()), ..Default::default() };
    let found = full_duplex(&mut test, Request::new(tokio_stream::once(item))).await;
    fails_with(found, Code::Unknown, &status.message);
    Ok(())
}

/// The sizes of all replies; a failure may come before them or after.
async fn full_duplex(
    test: &mut Test,
    requests: Request<impl Stream<Item = StreamingOutputCallRequest> + Send + 'static>,
) -> Result<Vec<usize>, Status> {
    sizes(test.full_duplex_call(requests).await?.into_inner()).await
}

async fn special_status_message(mut test: Test) -> Outcome {
    let message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
    let status = EchoStatus { code: 2, message: message.into() };
    let request = SimpleRequest { response_status: Some(status), ..Default::default() };
    fails_with(test.unary_call(request).await, Code::Unknown, message);
    Ok(())
}

async fn unimplemented(channel: Channel, service: &str) -> Outcome {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await?;
    let path: PathAndQuery = format!("/grpc.testing.{service}/UnimplementedCall").parse()?;
    let codec = tonic_prost::ProstCodec::<Empty, Empty>::default();
    let found = grpc.unary(Request::new(Empty {}), path, codec).await;
    assert_eq!(found.unwrap_err().code(), Code::Unimplemented);
    Ok(())
}

async fn cancel_after_begin(mut test: Test) -> Outcome {
    let call = test.streaming_input_call(tokio_stream::pending());
    // A call of tonic's is cancelled when it is dropped.
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    empty_unary(test).await
}

async fn cancel_after_first_response(mut test: Test) -> Outcome {
    let (sender, requests) = open();
    sender.send(asking(&ASKED[..1], SENT[0]))?;
    let mut replies: Streaming<_> = test.full_duplex_call(requests).await?.into_inner();
    assert_eq!(replies.message().await?.as_ref().map(size), Some(ASKED[0]));
    drop(replies);
    empty_unary(test).await
}

async fn timeout_on_sleeping_server(mut test: Test) -> Outcome {
    let (sender, requests) = open();
    sender.send(asking(&[], SENT[0]))?;
    let mut request = Request::new(requests);
    request.set_timeout(Duration::from_millis(1));
    let status = full_duplex(&mut test, request).await.unwrap_err();
    // Both have a timer. When its own is the first, tonic says so with a code that is not gRPC's.
    let is_its_own = status.code() == Code::Cancelled && status.message() == "Timeout expired";
    assert!(is_its_own || status.code() == Code::DeadlineExceeded, "{status:?}");
    drop(sender);
    Ok(())
}

async fn concurrent_large_unary(test: Test) -> Outcome {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let mut test = test.clone();
        calls.spawn(async move { test.unary_call(large()).await });
    }
    while let Some(reply) = calls.join_next().await {
        is_large(reply??.get_ref());
    }
    Ok(())
}

async fn client_compressed_unary(mut test: Test) -> Outcome {
    let expecting = |value| SimpleRequest { expect_compressed: bool(value), ..large() };
    assert_eq!(test.unary_call(expecting(true)).await.unwrap_err().code(), Code::InvalidArgument);
    let mut compressing = test.clone().send_compressed(Gzip);
    is_large(compressing.unary_call(expecting(true)).await?.get_ref());
    is_large(test.unary_call(expecting(false)).await?.get_ref());
    Ok(())
}

/// tonic's client compresses all messages of a call or none, so a stream with both is left to others.
async fn client_compressed_streaming(mut test: Test) -> Outcome {
    let requests = [SENT[0], SENT[3]];
    let sum = requests.iter().sum::<usize>();
    let expecting = move || {
        tokio_stream::iter(
            requests.map(|size| StreamingInputCallRequest { expect_compressed: bool(true), ..input(size) }),
        )
    };
    assert_eq!(test.streaming_input_call(expecting()).await.unwrap_err().code(), Code::InvalidArgument);
    let reply = test.send_compressed(Gzip).streaming_input_call(expecting()).await?;
    assert_eq!(reply.get_ref().aggregated_payload_size as usize, sum);
    Ok(())
}

async fn server_compressed_unary(mut test: Test) -> Outcome {
    for wanted in [true, false] {
        let request = SimpleRequest { response_compressed: bool(wanted), ..large() };
        let reply = test.unary_call(request).await?;
        assert_eq!(reply.metadata().contains_key("grpc-encoding"), wanted);
        is_large(reply.get_ref());
    }
    Ok(())
}

async fn server_compressed_streaming(mut test: Test) -> Outcome {
    let mut request = asking(&[ASKED[0], 92653], 0);
    for (asked, wanted) in request.response_parameters.iter_mut().zip([true, false]) {
        asked.compressed = bool(wanted);
    }
    let replies = test.streaming_output_call(request).await?;
    assert!(replies.metadata().contains_key("grpc-encoding"));
    assert_eq!(sizes(replies.into_inner()).await?, [ASKED[0], 92653]);
    Ok(())
}
