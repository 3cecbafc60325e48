//! Notices: what a server tells the program that runs it.

/// What the program that runs the server should know.
#[derive(Debug, Clone)]
pub enum Notice {
    /// A line for the log.
    Line {
        /// Whether something is wrong with this server itself, not only with one client.
        serious: bool,
        /// The line.
        text: String,
    },
    /// All clients are gone, and none will ever come: the process that started this one handed them over, and hands
    /// over no more.
    Deserted,
}

/// Called with each [`Notice`], from any thread.
pub type OnNotice = Box<dyn Fn(Notice) + Send + Sync>;
