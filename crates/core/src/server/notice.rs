//! What whoever runs a server is told.

/// What whoever runs the server should know.
#[derive(Debug, Clone)]
pub enum Notice {
    /// For the log.
    Line {
        /// Whether something is wrong with this server itself, not only with one client.
        serious: bool,
        /// One line.
        text: String,
    },
    /// All clients are gone, and none will ever come: they were given by whoever started this process.
    Deserted,
}

/// Called with each [`Notice`], from any thread.
pub type OnNotice = Box<dyn Fn(Notice) + Send + Sync>;
