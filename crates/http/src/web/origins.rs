//! Which web pages may call. Browsers send the origin of the calling page (the Fetch standard's CORS protocol).

use crate::fields::Request;

use super::answer::Answer;

/// The origins of pages that may call, as in `https://example.org:8443`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    any: bool,
    named: Vec<String>,
}

/// How long a browser need not ask again, in seconds: two hours, the most that Chromium remembers.
const SECONDS: &[u8] = b"7200";

impl Origins {
    /// Allows these origins; `*` stands for all.
    #[must_use]
    pub fn new(origins: Vec<String>) -> Self {
        Self { any: origins.iter().any(|origin| origin == "*"), named: origins }
    }

    fn allow(&self, origin: &[u8]) -> bool {
        self.any || self.named.iter().any(|named| named.as_bytes() == origin)
    }

    /// The origin of a request, if it names one.
    ///
    /// # Errors
    /// The answer to a page that may not call.
    pub(super) fn check<'a>(&self, request: Request<'a>) -> Result<Option<&'a [u8]>, Answer> {
        let Some(origin) = request.header("origin") else { return Ok(None) };
        if self.allow(origin) {
            return Ok(Some(origin));
        }
        let why = "pages from this origin may not call; the server names those that may with allow_origins";
        Err(Answer::refusal(403, why))
    }

    /// The answer to a browser that asks before it calls (a preflight request).
    ///
    /// # Errors
    /// The page may not call.
    pub(super) fn preflight(&self, request: Request<'_>) -> Result<Answer, Answer> {
        let Some(origin) = self.check(request)? else {
            return Err(Answer::refusal(405, "the method is POST"));
        };
        let mut answer = Answer { status: 204, headers: Vec::new(), body: String::new() };
        answer.allow(origin);
        let wanted = request.header("access-control-request-headers").unwrap_or(b"content-type");
        for (name, value) in [
            ("access-control-allow-methods", &b"GET, POST"[..]),
            // Allows all headers that the page asks for: a page that may call may send any.
            ("access-control-allow-headers", wanted),
            ("access-control-max-age", SECONDS),
        ] {
            answer.headers.push((name.into(), value.to_vec()));
        }
        Ok(answer)
    }
}
