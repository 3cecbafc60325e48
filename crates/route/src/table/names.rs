//! What the names in a table look like: endpoints, senders, managed entities, ids.
use std::net::Ipv6Addr;

use super::error::{did_you_mean, shown};
use super::limits::{MAX_ENDPOINT, MAX_ENTITY, MAX_ID, MAX_SOURCE};

/// What separates words of RMR's text, but for the ends of records.
pub(super) const BLANKS: [char; 4] = [' ', '\t', '\x0b', '\x0c'];
/// What stands for the owner of the message's managed entity.
pub(super) const BY_ENTITY: &str = "%meid";

/// The schemes of endpoints. Whether a node can reach one is the node's affair.
pub const SCHEMES: [&str; 10] =
    ["shm", "unix", "tcp", "tls", "inproc", "rmr", "nats", "nats+tls", "jetstream", "jetstream+tls"];

/// Refuses what is no endpoint: neither `host:port` nor a URL. The error names it and says what to write.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let wrong = |why: String| Err(format!("{} is no endpoint: {why}", shown(endpoint)));
    if endpoint.is_empty() {
        return Err("an endpoint is missing: write `host:port` or a URL such as `shm://name`".to_owned());
    }
    if endpoint.len() > MAX_ENDPOINT {
        return wrong(format!("it has {} bytes, and may have {MAX_ENDPOINT}", endpoint.len()));
    }
    // They would not survive being written as text.
    let bad = |letter: char| !letter.is_ascii_graphic() || matches!(letter, ',' | ';' | '|');
    if let Some(letter) = endpoint.chars().find(|&letter| bad(letter)) {
        return wrong(format!("{letter:?} cannot be part of one"));
    }
    let Some((scheme, rest)) = endpoint.split_once("://") else {
        return check_place(endpoint).or_else(wrong);
    };
    let checked = match scheme {
        "shm" | "inproc" => name(rest),
        "unix" => path(rest),
        "tcp" | "tls" | "rmr" => check_place(rest),
        "nats" | "nats+tls" | "jetstream" | "jetstream+tls" => subject(scheme, rest),
        _ => Err(format!(
            "its scheme is none of {}{}",
            SCHEMES.map(|known| format!("`{known}://`")).join(", "),
            did_you_mean(scheme, &SCHEMES)
        )),
    };
    checked.or_else(wrong)
}

/// Refuses what is no address for replies: an endpoint, or the name of a program of RMR and, behind a comma, its address.
pub(crate) fn check_reply_address(address: &str) -> Result<(), String> {
    let Some(places) = address.strip_prefix("rmr://") else { return check_endpoint(address) };
    places.split(',').try_for_each(|place| check_endpoint(&format!("rmr://{place}")))
}

/// Refuses what cannot be a sender's name: an endpoint that fits into the source of a message, where RMR bounds that.
pub(super) fn check_sender(sender: &str) -> Result<(), String> {
    check_endpoint(sender)?;
    let source = sender.strip_prefix("rmr://").unwrap_or(sender);
    if !source.contains("://") && source.len() > MAX_SOURCE {
        return Err(format!(
            "the sender {} has {} characters: a message's source has room for {MAX_SOURCE}",
            shown(sender),
            source.len()
        ));
    }
    Ok(())
}

/// Refuses what cannot be a managed entity's name.
pub(super) fn check_entity(entity: &str) -> Result<(), String> {
    if entity.is_empty() {
        return Err("a managed entity has no name".to_owned());
    }
    if entity.len() > MAX_ENTITY {
        return Err(format!(
            "the managed entity {} has {} bytes: a message has room for {MAX_ENTITY}",
            shown(entity),
            entity.len()
        ));
    }
    let bad = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '|';
    if entity.contains(bad) || entity.starts_with('#') {
        return Err(format!("{} is no name of a managed entity: no blanks, no `|`, no `#` first", shown(entity)));
    }
    Ok(())
}

/// Refuses what cannot be a table's id.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let before_comment = |(place, _)| id[..place].is_empty() || id[..place].ends_with(BLANKS);
    let wrong = if id.len() > MAX_ID {
        format!("it has {} bytes, and may have {MAX_ID}", id.len())
    } else if id.contains(|letter: char| letter.is_control() || letter == '|') {
        "no `|`, and nothing that cannot be seen".to_owned()
    } else if id.trim_matches(BLANKS) != id {
        "no blank at its ends".to_owned()
    } else if id.match_indices('#').any(before_comment) {
        "no `#` first or after a blank, where a comment begins".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("{} cannot be a table's id: {wrong}", shown(id)))
}

/// Refuses what is no `host:port`.
pub fn check_place(text: &str) -> Result<(), String> {
    const FORM: &str = "write `host:port`, such as `app1:4560` or `[::1]:4560`, or a URL such as `shm://name`";
    let (host_is_good, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once("]:").ok_or(FORM)?;
            let (address, zone) = address.split_once('%').unwrap_or((address, "eth0"));
            (address.parse::<Ipv6Addr>().is_ok() && is_word(zone), port)
        }
        None => text.rsplit_once(':').map(|(host, port)| (is_word(host), port)).ok_or(FORM)?,
    };
    if !host_is_good {
        return Err(FORM.to_owned());
    }
    // No sign, and no zero: a message cannot be sent to the port that the system chooses.
    match port.parse::<u16>() {
        Ok(1..) if port.bytes().all(|digit| digit.is_ascii_digit()) => Ok(()),
        _ => Err(format!("{} is no port: write a number from 1 to 65535", shown(port))),
    }
}

fn is_word(text: &str) -> bool {
    let part = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'_' | b'-');
    !text.is_empty() && text.bytes().all(part)
}

fn name(text: &str) -> Result<(), String> {
    if is_word(text) && text.len() <= 64 {
        return Ok(());
    }
    Err("write 1 to 64 letters, digits, `.`, `_` or `-` after `://`".to_owned())
}

fn path(text: &str) -> Result<(), String> {
    const LONGEST: usize = 107; // of the address of a Unix socket
    if text.len() > 1 && text.starts_with('/') && text.len() <= LONGEST {
        return Ok(());
    }
    Err(format!("write `unix:///path/to/socket`, with a path of at most {LONGEST} bytes"))
}

fn subject(scheme: &str, text: &str) -> Result<(), String> {
    let is_good = text.split_once('/').is_some_and(|(server, subject)| {
        let server_is_good = is_word(server) || check_place(server).is_ok();
        let token_is_good = |token: &str| !token.is_empty() && !token.contains(['*', '>', '/']);
        server_is_good && subject.split('.').all(token_is_good)
    });
    if is_good {
        return Ok(());
    }
    Err(format!(
        "write `{scheme}://server/subject` or `{scheme}://server:port/subject`, with a subject without wildcards"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_hosts_with_ports_and_urls() {
        for endpoint in [
            "app1:4560",
            "service-ricplt-e2term-rmr-alpha.ricplt:38000",
            "10.0.0.1:1",
            "under_score:65535",
            "[::1]:4560",
            "[fe80::1%eth0]:4560",
            "shm://filter",
            "inproc://filter.1",
            "unix:///run/x",
            "tcp://host:7000",
            "tcp://[::1]:7000",
            "tls://host:7000",
            "rmr://host:4560",
            "nats://server/subject",
            "nats://server:4222/images.left.raw",
            "nats://[::1]:4222/s",
            "nats+tls://server/subject",
            "jetstream://server/images.left",
        ] {
            assert_eq!(check_endpoint(endpoint), Ok(()), "{endpoint}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_what_to_write() {
        for (endpoint, word) in [
            ("", "missing"),
            ("app1", "`host:port`"),
            (":4560", "`host:port`"),
            ("app1:", "is no port"),
            ("app1:0", "is no port"),
            ("app1:+1", "is no port"),
            ("app1:65536", "is no port"),
            ("app1:4560x", "is no port"),
            ("::1:4560", "`[::1]:4560`"),
            ("[::1]", "`[::1]:4560`"),
            ("[app1]:4560", "`[::1]:4560`"),
            ("[::1%]:4560", "`[::1]:4560`"),
            ("a b:1", "' ' cannot be part"),
            ("a,b:1", "',' cannot be part"),
            ("a\u{e9}:1", "cannot be part"),
            ("shn://filter", "did you mean `shm`?"),
            ("http://x:1", "its scheme is none of"),
            ("shm://", "1 to 64 letters"),
            ("shm://a/b", "1 to 64 letters"),
            ("unix://run/x", "unix:///path"),
            ("unix:///", "unix:///path"),
            ("tcp://host", "`host:port`"),
            ("nats://server", "nats://server/subject"),
            ("nats://server/", "nats://server/subject"),
            ("nats://server/a.*", "wildcards"),
            ("nats:///a", "nats://server/subject"),
            ("jetstream://server", "`jetstream://server/subject`"),
            ("jetstream+tls://server/a.>", "`jetstream+tls://server/subject`"),
            ("%meid", "`host:port`"),
        ] {
            let error = check_endpoint(endpoint).expect_err(endpoint);
            assert!(error.contains(word), "{error}");
        }
        let long = format!("unix:///{}", "x".repeat(600));
        assert!(check_endpoint(&long).expect_err("long").contains("and may have 512"));
        assert!(check_endpoint(&long[..200]).expect_err("long").contains("at most 107"));
    }

    #[test]
    fn senders_fit_into_a_message() {
        let longest = format!("{}:4560", "x".repeat(58));
        assert_eq!(check_sender(&longest), Ok(()));
        assert!(check_sender(&format!("x{longest}")).expect_err("long").contains("has room for 63"));
        assert!(check_sender(&format!("rmr://x{longest}")).is_err());
        assert_eq!(check_sender(&format!("tcp://x{longest}")), Ok(()));
        assert!(check_sender("x").is_err());
    }

    #[test]
    fn entities_fit_into_a_message() {
        assert_eq!(check_entity(&"x".repeat(31)), Ok(()));
        assert_eq!(check_entity("gnb_208_092#1"), Ok(()));
        for entity in [&"x".repeat(32), "", "a b", "a|b", "#a", "a\n"] {
            assert!(check_entity(entity).is_err(), "{entity}");
        }
    }

    #[test]
    fn ids_survive_being_written() {
        for id in ["", "rt-0928", "a table", "a#b"] {
            assert_eq!(check_id(id), Ok(()), "{id}");
        }
        for id in ["a|b", "a\n", " a", "a ", "#a", "a #b", "é#\t#", &"x".repeat(256)] {
            assert!(check_id(id).is_err(), "{id}");
        }
    }
}
