//! Methods as HTTP calls them: by paths.

use std::collections::HashMap;

use nearcall_http::Codec;

/// The messages that a client sends in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    /// Exactly one: the arguments.
    One,
    /// Any number: the items of a stream.
    Stream,
    /// At least one: the arguments, and then the items of a stream.
    ArgumentsFirst,
}

/// What a server knows of a method with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Its index among the server's methods.
    pub entry: u16,
    /// The messages that the client sends.
    pub messages: Messages,
    /// The server sends a stream.
    pub streams_out: bool,
    /// The method changes nothing, so it may be called by GET.
    pub is_safe: bool,
}

impl Path {
    /// Whether either side sends a stream.
    #[must_use]
    pub fn streams(self) -> bool {
        self.streams_out || self.messages != Messages::One
    }
}

/// What a client knows of a method that it calls over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodPath {
    /// `/package.Service/Method`
    pub path: String,
    /// The client sends a stream of messages.
    pub streams_in: bool,
    /// The server sends a stream of messages.
    pub streams_out: bool,
    /// The method changes nothing, so it may be called by GET.
    pub is_safe: bool,
}

/// Which methods paths such as `/package.Service/Method` name, in each codec.
#[derive(Debug, Clone, Default)]
pub struct Paths(HashMap<Codec, HashMap<String, Path>>);

impl Paths {
    /// A table of these paths.
    #[must_use]
    pub fn new(paths: HashMap<Codec, HashMap<String, Path>>) -> Self {
        Self(paths)
    }

    /// The method with that path.
    #[must_use]
    pub fn get(&self, codec: Codec, path: &str) -> Option<Path> {
        self.0.get(&codec)?.get(path).copied()
    }

    /// The known path that an unknown one probably means: `/Calculator/Add` for `/Calculator/add`.
    #[must_use]
    pub fn meant(&self, codec: Codec, path: &str) -> Option<&str> {
        let meant = |known: &&String| letters(known).eq(letters(path));
        self.0.get(&codec)?.keys().filter(meant).min().map(String::as_str)
    }
}

/// The letters that a name's spellings in Python and in Protobuf have in common.
fn letters(path: &str) -> impl Iterator<Item = u8> + '_ {
    path.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_by_its_letters() {
        let path = Path { entry: 0, messages: Messages::One, streams_out: false, is_safe: false };
        let known = ["/shop.Shop/FindAll", "/shop.Shop/Find"].map(|name| (name.to_owned(), path));
        let paths = Paths::new(HashMap::from([(Codec::Proto, HashMap::from(known))]));
        assert_eq!(paths.meant(Codec::Proto, "/shop.Shop/find_all"), Some("/shop.Shop/FindAll"));
        assert_eq!(paths.meant(Codec::Proto, "/Shop.shop/find"), Some("/shop.Shop/Find"));
        assert_eq!(paths.meant(Codec::Proto, "/shop.Shop/Findall2"), None);
        assert_eq!(paths.meant(Codec::Json, "/shop.Shop/find"), None);
    }
}
