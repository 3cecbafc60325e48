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

/// The path of a method that takes calls of gRPC to all paths that are not known. It is no client's.
const UNKNOWN: &str = "/nearcall.Unknown/Method";

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

    /// The method that takes calls of methods that there are not, if the server has one.
    #[must_use]
    pub fn of_unknown(&self) -> Option<Path> {
        self.get(Codec::Proto, UNKNOWN)
    }

    /// The known path that an unknown one probably means: `/shop.Shop/FindAll` for `/shop.Shop/find_all`,
    /// `/Shop/FindAll`, `/shop.Shop.findAll` or `/shop.Shop/FindAl`.
    #[must_use]
    pub fn meant(&self, codec: Codec, path: &str) -> Option<&str> {
        let known = self.0.get(&codec)?.keys();
        let (_, meant) = known.filter_map(|known| Some((Likeness::of(known, path)?, known))).min()?;
        Some(meant)
    }
}

/// In what an unknown path is like a known one, the most telling first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// All letters are the same: it is spelled as in Python, for instance.
    Letters,
    /// Service and method are the same, with another package, or with something before them.
    WithoutPackage,
    /// It is the name of the method.
    Method,
    /// One letter is missing, too many or another one, or two are swapped.
    Misspelled,
}

impl Likeness {
    fn of(known: &str, path: &str) -> Option<Self> {
        let same = |known: &str, asked: &str| letters(known).eq(letters(asked));
        let (mut of_known, mut asked) = (parts(known), parts(path));
        let mut next_is_same = || Some(same(of_known.next()?, asked.next()?));
        if same(known, path) {
            Some(Self::Letters)
        } else if next_is_same() == Some(true) && next_is_same() != Some(false) {
            Some(if parts(path).count() > 1 { Self::WithoutPackage } else { Self::Method })
        } else {
            misspelled(known, path).then_some(Self::Misspelled)
        }
    }
}

/// The parts of a path, from the last one on: method, service, package.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.rsplit(['/', '.']).filter(|part| !part.is_empty())
}

/// The most by which the lengths of two names may differ of which one is the other misspelled, underscores included.
const FURTHEST: usize = 8;

/// Whether one letter of a name, such as a path, is missing, too many or another one, or two are swapped.
pub(crate) fn misspelled(known: &str, path: &str) -> bool {
    if known.len().abs_diff(path.len()) > FURTHEST {
        return false; // nobody means something of another length
    }
    let (known, path): (Vec<u8>, Vec<u8>) = (letters(known).collect(), letters(path).collect());
    let same = |(known, asked): &(&u8, &u8)| known == asked;
    let begin = known.iter().zip(&path).take_while(same).count();
    let (known, path) = (&known[begin..], &path[begin..]);
    let end = known.iter().rev().zip(path.iter().rev()).take_while(same).count();
    match (&known[..known.len() - end], &path[..path.len() - end]) {
        ([] | [_], [] | [_]) => true,
        ([first, second], [other, another]) => (first, second) == (another, other),
        _ => false,
    }
}

/// The letters that all spellings of a name have in common: in Python, in Protobuf and in JSON.
fn letters(path: &str) -> impl DoubleEndedIterator<Item = u8> + '_ {
    path.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        let path = Path { entry: 0, messages: Messages::One, streams_out: false, is_safe: false };
        let known = ["/shop.v1.Shop/FindAll", "/shop.v1.Shop/Find", "/shop.v1.Till/Close", "/Till/Find"];
        Paths::new(HashMap::from([(Codec::Proto, HashMap::from(known.map(|name| (name.to_owned(), path))))]))
    }

    #[test]
    fn a_path_is_known_by_its_letters() {
        let paths = paths();
        for spelled in
            ["/shop.v1.Shop/find_all", "/SHOP.V1.SHOP/FINDALL", "/shop.v1.Shop.findAll", "/shop/v1/shop/find-all"]
        {
            assert_eq!(paths.meant(Codec::Proto, spelled), Some("/shop.v1.Shop/FindAll"), "{spelled}");
        }
        assert_eq!(paths.meant(Codec::Json, "/shop.v1.Shop/find_all"), None);
    }

    #[test]
    fn unknown_paths_may_have_a_method() {
        assert_eq!(paths().of_unknown(), None);
        let path = Path { entry: 7, messages: Messages::Stream, streams_out: true, is_safe: false };
        let known = Paths::new(HashMap::from([(Codec::Proto, HashMap::from([(UNKNOWN.to_owned(), path)]))]));
        assert_eq!(known.of_unknown(), Some(path));
    }

    #[test]
    fn a_path_is_known_without_its_package() {
        let paths = paths();
        for short in
            ["/Shop/FindAll", "/shop/find_all", "/Shop.FindAll", "/api/shop.v1.Shop/FindAll", "/find_all", "FindAll"]
        {
            assert_eq!(paths.meant(Codec::Proto, short), Some("/shop.v1.Shop/FindAll"), "{short}");
        }
        assert_eq!(paths.meant(Codec::Proto, "/till/find"), Some("/Till/Find"));
        assert_eq!(paths.meant(Codec::Proto, "/v2.Till/Close"), Some("/shop.v1.Till/Close"));
    }

    #[test]
    fn a_path_is_known_by_all_letters_but_one() {
        let paths = paths();
        for wrong in ["FindAl", "FindAlll", "FindOll", "FnidAll", "find_al"] {
            let meant = paths.meant(Codec::Proto, &format!("/shop.v1.Shop/{wrong}"));
            assert_eq!(meant, Some("/shop.v1.Shop/FindAll"), "{wrong}");
        }
        let long = "/".repeat(1 << 20);
        for other in ["/shop.v1.Shop/Buy", "/shop.v1.Shop/FindAll23", "/other.Bank/FindAll", "/", "", &long] {
            assert_eq!(paths.meant(Codec::Proto, other), None, "{other:.30}");
        }
    }
}
