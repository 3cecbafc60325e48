//! Properties that only TCP sockets need.

mod common;

use common::{Pair, pair, signal_fd};
use nearcall_transport::{ConnectError, Listener, Options, connect};
use rustix::net::sockopt;

#[test]
fn a_peer_that_vanishes_is_noticed_on_both_sides() {
    let Pair { client, server } = pair("tcp", &Options::default(), &Options::default());
    for link in [client, server] {
        let fd = signal_fd(&*link);
        assert!(sockopt::tcp_nodelay(fd).expect("an option"));
        assert!(sockopt::socket_keepalive(fd).expect("an option"));
        assert_eq!(sockopt::tcp_keepidle(fd).expect("an option").as_secs(), 30);
        assert_eq!(sockopt::tcp_keepintvl(fd).expect("an option").as_secs(), 10);
        assert_eq!(sockopt::tcp_keepcnt(fd), Ok(3));
        assert_eq!(sockopt::tcp_user_timeout(fd), Ok(60_000));
    }
}

#[test]
fn plaintext_leaves_the_machine_only_with_permission() {
    let everywhere = "tcp://0.0.0.0:0".parse().expect("a URL");
    let error = Listener::bind(&everywhere, &Options::default()).expect_err("no permission");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let permitted = Options { allow_plaintext: true, ..Options::default() };
    let listener = Listener::bind(&everywhere, &permitted).expect("permitted");
    let error = connect(listener.url(), "test", &Options::default()).expect_err("no permission");
    assert!(matches!(&error, ConnectError::Options(why) if why.contains("allow_plaintext")), "{error}");
}
