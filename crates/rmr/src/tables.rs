//! Where tables come from: a file, or a route manager.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nearcall_route::rmr::pushed::{Pushed, answer, kinds};

use crate::buffer::Buffer;
use crate::context::Context;
use crate::sending::{return_to_sender, send_over};
use crate::settings::{Tables, port_of, seed, stash, tables, tell};

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Provides a context with tables until it is closed. For a thread of its own.
pub(crate) fn provide(context: &Arc<Context>) {
    let tables = tables();
    let mut file = File { path: seed(), seen: None };
    file.load(context);
    let Tables::Manager { port, asked } = tables else {
        while context.sleep(LOOK_INTERVAL) {
            file.load(context);
        }
        return;
    };
    let control = port_of(&port).ok_or_else(|| "it is no port".to_owned());
    let control = control.and_then(|port| Context::new(port, 0, false).map_err(|error| error.to_string()));
    match control {
        Ok(control) => {
            serve_manager(context, &control, asked.as_ref());
            control.close();
        }
        Err(why) => tell(1, &format!("no tables can be taken at port {port}: {why}")),
    }
}

/// A table in a file.
struct File {
    path: Option<PathBuf>,
    /// When it was changed, as far as it was seen.
    seen: Option<SystemTime>,
}

impl File {
    /// Reads the file, if it has changed.
    fn load(&mut self, context: &Context) {
        let Some(path) = &self.path else { return };
        let changed = std::fs::metadata(path).and_then(|found| found.modified()).ok();
        if changed.is_some() && changed == self.seen {
            return;
        }
        self.seen = changed;
        let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
        // RMR takes a last record without an end.
        let read = read.map(|text| if text.ends_with(['\n', '\r']) { text } else { text + "\n" });
        match read.and_then(|text| context.install(&text)) {
            Ok(()) => tell(4, &format!("the table of {} is in force", path.display())),
            Err(why) => tell(2, &format!("the table of {} cannot be used: {why}", path.display())),
        }
    }
}

/// Asks for a table until one has come, and takes those that are pushed.
fn serve_manager(context: &Context, control: &Arc<Context>, asked: Option<&(String, Duration)>) {
    let mut pushed = Pushed::default();
    let (mut has_table, mut next) = (false, Instant::now());
    while context.sleep(Duration::ZERO) {
        if let Some((place, every)) = asked.filter(|_| !has_table)
            && Instant::now() >= next
        {
            next = Instant::now() + *every;
            ask(context, control, place);
        }
        let Some(mut message) = control.arrivals.take(Some(LOOK_INTERVAL)) else { continue };
        if message.mbuf.mtype != kinds::TABLE {
            continue;
        }
        has_table = true;
        let used = message.used();
        let taken = pushed.take(&message.payload()[..used]);
        for each in taken {
            let told = match each {
                Ok(text) => {
                    let problem = context.install(&text).err();
                    if problem.is_none() {
                        keep(&text);
                    }
                    answer(&text, problem.as_deref())
                }
                Err(problem) => format!("ERR {problem}\n"),
            };
            tell(4, &format!("a table was pushed: {}", told.trim_end()));
            let mut state = message.copied();
            write(&mut state, kinds::STATE, -1, &told);
            return_to_sender(control, &mut state);
        }
    }
}

fn ask(context: &Context, control: &Context, place: &str) {
    let Some(mut request) = Buffer::new(256, 0, &control.source) else { return };
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    write(&mut request, kinds::REQUEST, 0, &format!("{} ts={seconds}\n", context.source.name));
    send_over(control, &control.link(place), &mut request);
}

/// Makes a message of that type, with a text that ends with a zero.
fn write(buffer: &mut Buffer, kind: i32, subscription: i32, text: &str) {
    let trace = buffer.trace().len();
    let len = text.len() + 1;
    if buffer.room() < len {
        buffer.resize(trace, len);
    }
    buffer.payload()[..text.len()].copy_from_slice(text.as_bytes());
    buffer.payload()[text.len()] = 0;
    buffer.mbuf.len = len as i32;
    buffer.mbuf.mtype = kind;
    buffer.mbuf.sub_id = subscription;
}

/// Keeps a table in the file for the last one, if there is to be one.
fn keep(text: &str) {
    let Some(path) = stash() else { return };
    let aside = Path::new(&path).with_extension("new");
    if let Err(error) = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, &path)) {
        tell(3, &format!("the last table cannot be kept in {}: {error}", path.display()));
    }
}
