//! TLS: which peers are accepted, and what both sides are told if not.

mod common;

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use common::{
    Certificates, PATIENCE, Pair, accept, listening_fd, next_frame, opening_fd, pair, pem, readable, receive, send,
    signal_fd, welcome,
};
use nearcall_transport::{Accepted, ConnectError, Connected, Credentials, Listener, Options, Peer, connect};

fn with(tls: Credentials) -> Options {
    Options { tls: Some(tls), handshake: PATIENCE, ..Options::default() }
}

/// The errors of the client and of the server when they cannot connect.
fn failure(client: &Credentials, server: &Credentials, url: Option<&str>) -> (String, Option<String>) {
    let options = with(server.clone());
    let listener = Listener::bind(&"tls://127.0.0.1:0".parse().expect("a URL"), &options).expect("bind");
    let url = match url {
        Some(scheme) => listener.url().to_string().replace("tls:", scheme).parse().expect("a URL"),
        None => listener.url().clone(),
    };
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| accept(&listener, &options).expect_err("refused"));
        let error = connect(&url, "test", &with(client.clone())).expect_err("refused");
        (error.to_string(), refused.join().expect("no panic"))
    })
}

#[test]
fn a_certified_client_is_known_by_its_names() {
    let certificates = Certificates::get();
    let Pair { client, server } = pair("tls", &with(certificates.client(true)), &with(certificates.server(true)));
    let Peer::Certified { subject, names, .. } = server.peer() else { panic!("{:?}", server.peer()) };
    assert!(subject.contains("CN=nearcall development client"), "{subject}");
    assert_eq!(names, &["client"]);
    let Peer::Certified { names, .. } = client.peer() else { panic!("{:?}", client.peer()) };
    assert_eq!(names, &["127.0.0.1", "localhost"]);
}

#[test]
fn a_client_without_a_certificate_is_an_address() {
    let Pair { server, .. } = pair("tls", &Options::default(), &Options::default());
    assert!(matches!(server.peer(), Peer::Remote(_)));
}

#[test]
fn an_unknown_authority_is_refused_by_either_side() {
    let (ours, others) = (Certificates::get(), Certificates::new(&["127.0.0.1"], 1));
    let (client, server) = failure(&others.client(false), &ours.server(false), None);
    assert!(client.contains("TLS(ca=...)"), "{client}");
    assert!(server.expect("a reason").contains("does not know who signed"));
    let (cert, key) = (ours.server_cert(), others.client_key());
    let error = Credentials::client(Some(&ours.ca()), Some((&cert, &key)), None).expect_err("another's key");
    assert_eq!(error, "the key client.key does not belong to the certificate server.pem");
}

#[test]
fn a_server_that_wants_certificates_says_so() {
    let certificates = Certificates::get();
    let (client, server) = failure(&certificates.client(false), &certificates.server(true), None);
    assert!(client.contains("the server wants to see a certificate; give one with TLS(cert=..., key=...)"), "{client}");
    assert!(server.expect("a reason").contains("the client gave no certificate"));
}

#[test]
fn an_expired_certificate_and_a_wrong_name_are_named() {
    let expired = Certificates::new(&["127.0.0.1"], -1);
    let (client, _) = failure(&expired.client(false), &expired.server(false), None);
    assert!(client.contains("has expired"), "{client}");
    let elsewhere = Certificates::new(&["example.org"], 1);
    let (client, _) = failure(&elsewhere.client(false), &elsewhere.server(false), None);
    assert!(client.contains("is not for 127.0.0.1 but for") && client.contains("example.org"), "{client}");
    assert!(client.contains("server_name"), "{client}");
    let named = Credentials::client(Some(&elsewhere.ca()), None, Some("example.org")).expect("credentials");
    pair("tls", &with(named), &with(elsewhere.server(false)));
}

#[test]
fn plaintext_and_encryption_do_not_mix() {
    let certificates = Certificates::get();
    let (client, server) = failure(&certificates.client(false), &certificates.server(false), Some("tcp:"));
    assert!(client.contains("this port is encrypted; connect with tls://"), "{client}");
    assert!(server.expect("a reason").contains("encrypted"));

    let options = with(certificates.client(false));
    let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().expect("a URL"), &options).expect("bind");
    let url = listener.url().to_string().replace("tcp:", "tls:").parse().expect("a URL");
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| accept(&listener, &options).expect_err("refused"));
        let error = connect(&url, "test", &options).expect_err("refused");
        assert!(matches!(&error, ConnectError::Untrusted(why) if why.contains("does not encrypt")), "{error}");
        assert!(refused.join().expect("no panic").expect("a reason").contains("the client speaks TLS"));
    });
}

#[test]
fn serving_needs_a_certificate() {
    let error = Listener::bind(&"tls://127.0.0.1:0".parse().expect("a URL"), &Options::default()).expect_err("none");
    assert!(error.to_string().contains("nearcall dev-certs"), "{error}");
    let nothing = pem("empty.pem", "");
    let error = Credentials::server(&nothing, &nothing, None).expect_err("empty");
    assert!(error.contains("empty.pem has no certificate in it"), "{error}");
}

#[test]
fn a_client_that_stalls_in_the_handshake_holds_nobody_up() {
    let certificates = Certificates::get();
    let options = with(certificates.server(false));
    let listener = Listener::bind(&"tls://127.0.0.1:0".parse().expect("a URL"), &options).expect("bind");
    let address = listener.url().to_string().replace("tls://", "");
    let mut stalled = std::net::TcpStream::connect(address).expect("connect");
    assert!(readable(listening_fd(&listener), PATIENCE));
    let mut opening = listener.accept().expect("accept").expect("a client").opening;
    let advance = |opening: &mut dyn Accepted| opening.advance(&welcome(&options), &options);
    assert!(matches!(advance(&mut *opening), Ok(false)), "nothing has come");
    // The beginning of a client's first message.
    std::io::Write::write_all(&mut stalled, &[22, 3, 1, 2, 0, 1]).expect("sent");
    assert!(readable(opening_fd(&*opening), PATIENCE));
    assert!(matches!(advance(&mut *opening), Ok(false)), "half a message has come");
    assert!(opening_fd(&*opening).as_raw_fd() >= 0 && !opening.awaits().room);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| accept(&listener, &options).expect("a good client"));
        let client = with(certificates.client(false));
        let Connected { link, .. } = connect(listener.url(), "test", &client).expect("connect");
        let server = other.join().expect("no panic");
        send(&*link, b"head", &[b"payload"]).expect("sent");
        assert_eq!(receive(&*server).expect("a frame"), b"headpayload");
    });
    drop(stalled);
    assert!(readable(opening_fd(&*opening), PATIENCE));
    assert!(matches!(advance(&mut *opening), Err(None)), "it hung up");
}

#[test]
fn what_was_tampered_with_ends_the_connection() {
    let Pair { client, server } = pair("tls", &Options::default(), &Options::default());
    // Written directly to the socket, without encryption.
    rustix::net::send(signal_fd(&*client), &[23, 3, 3, 0, 3, 1, 2, 3], rustix::net::SendFlags::empty()).expect("sent");
    let end = std::time::Instant::now() + Duration::from_secs(10);
    let error = loop {
        match next_frame(&*server, Some(end)) {
            Ok(None) => assert!(std::time::Instant::now() < end, "nothing is noticed"),
            Ok(Some(frame)) => panic!("{frame:?}"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("TLS failed"), "{error}");
}
