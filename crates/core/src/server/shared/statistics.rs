//! Statistics: what a server measures of its calls while a client watches.
//!
//! While no client watches, a call costs one look at a flag when it arrives, and one at its own empty slot when it
//! ends.

use crate::sync::{AtomicBool, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use nearcall_platform::clock;
use nearcall_platform::lock::{Mutex, MutexGuard};
use nearcall_wire::{CODE_NAMES, Failure};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The statistics of a server: whether calls are measured, and what was measured so far.
#[derive(Debug, Default)]
pub(in crate::server) struct Statistics {
    measuring: AtomicBool,
    /// For each method number of the server: the index of its counts, if the method is measured. If a service is both
    /// served and passed as objects, or is served in several codecs, its methods have several numbers each, and one
    /// name.
    counted_as: Vec<Option<usize>>,
    methods: Arc<[MeasuredMethod]>,
    watch: Mutex<Watch>,
}

/// A method, as the statistics name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct MeasuredMethod {
    /// `"Calculator.add"`.
    #[serde(rename = "method")]
    pub name: String,
    /// Which side streams.
    pub kind: String,
}

#[derive(Debug, Default)]
struct Watch {
    watchers: usize,
    /// Present while there are watchers. Begins anew, from zero, whenever a first watcher comes.
    measurement: Option<Arc<Measurement>>,
}

/// What is measured from when the first watcher comes until the last one has gone.
#[derive(Debug)]
struct Measurement {
    /// When measuring began, nanoseconds on the monotonic clock.
    since: u64,
    methods: Box<[Mutex<Counts>]>,
}

/// The counts of one method.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Calls that have arrived.
    pub started: u64,
    /// Calls that have ended, by status code.
    #[serde(serialize_with = "by_name")]
    pub ended: [u64; CODE_NAMES.len()],
    /// Items of streams that have arrived.
    pub items_in: u64,
    /// Items of streams that were sent.
    pub items_out: u64,
    /// Bytes of payload that have arrived.
    pub bytes_in: u64,
    /// Bytes of payload that were sent.
    pub bytes_out: u64,
    /// How long the calls that have ended took, from when each was received until its end was sent.
    #[serde(flatten)]
    pub latency: Histogram,
}

/// Writes the status codes that came up, by name.
fn by_name<S: Serializer>(ended: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(CODE_NAMES.iter().zip(ended).filter(|&(_, &count)| count > 0))
}

/// A method, and its counts.
#[derive(Debug, Clone, Serialize)]
pub struct MethodCounts {
    /// The method.
    #[serde(flatten)]
    pub method: MeasuredMethod,
    /// The counts of the method.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What a watcher gets, under the names of `nearcall.introspection.Statistics`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// The process that answers.
    pub pid: u32,
    /// The version of this library.
    pub version: &'static str,
    /// When measuring began, seconds on the system's monotonic clock.
    pub measurement: f64,
    /// For how long it has gone on, seconds.
    pub seconds: f64,
    /// Connections that watch.
    pub watchers: usize,
    /// Connections open.
    pub connections: usize,
    /// Worker threads alive. "Workers" are processes to those who read this.
    pub threads: usize,
    /// Worker threads that wait for something to do.
    pub idle_threads: usize,
    /// Calls that wait for a worker, because as many handlers run as may.
    pub queued: usize,
    /// Calls received and not finished, also those that came before measuring began.
    pub in_flight: usize,
    /// Bytes kept of what clients have sent, and of what waits for them to read.
    pub memory: usize,
    /// How many such bytes may be kept: [`crate::server::WorkLimits::max_memory`].
    pub max_memory: usize,
    /// Which of the processes that serve together this is, if there are several.
    pub worker: Option<usize>,
    /// How many processes serve together.
    pub workers: usize,
    /// For how long the event loop of the coroutine handlers has not turned, seconds; 0 while it does.
    pub loop_held_up: f64,
    /// The counts of each method.
    pub methods: Vec<MethodCounts>,
}

impl Statistics {
    /// Statistics of a server's methods, by their numbers; methods that are `None` are not measured.
    pub(in crate::server) fn new(methods: Vec<Option<MeasuredMethod>>) -> Self {
        let (mut counted_as, mut known) = (HashMap::new(), Vec::new());
        let mut index_of = |method: MeasuredMethod| {
            *counted_as.entry(method.clone()).or_insert_with(|| {
                known.push(method);
                known.len() - 1
            })
        };
        let counted_as = methods.into_iter().map(|method| method.map(&mut index_of)).collect();
        Self { counted_as, methods: known.into(), ..Self::default() }
    }

    /// One more connection watches. The first switches measuring on.
    pub(in crate::server) fn add_watcher(&self) {
        let mut watch = self.watch.lock();
        watch.watchers += 1;
        if watch.measurement.is_none() {
            let methods = self.methods.iter().map(|_| Mutex::default()).collect();
            watch.measurement = Some(Arc::new(Measurement { since: clock::monotonic_ns(), methods }));
            // Relaxed: a call that does not see the flag counts as one that arrived a moment earlier.
            self.measuring.store(true, Ordering::Relaxed);
        }
    }

    /// One connection watches no longer. The last switches measuring off.
    pub(in crate::server) fn remove_watcher(&self) {
        let mut watch = self.watch.lock();
        watch.watchers = watch.watchers.saturating_sub(1);
        if watch.watchers == 0 {
            self.measuring.store(false, Ordering::Relaxed);
            watch.measurement = None;
        }
    }

    /// A call has arrived. Returns where it is measured, if calls are measured now.
    #[inline]
    pub(in crate::server) fn begin(&self, method: u16, bytes: usize) -> Option<Arc<Measured>> {
        // Relaxed: see `add_watcher`. The lock orders what is measured.
        if self.measuring.load(Ordering::Relaxed) { self.begin_measured(usize::from(method), bytes) } else { None }
    }

    #[cold]
    fn begin_measured(&self, method: usize, bytes: usize) -> Option<Arc<Measured>> {
        let method = (*self.counted_as.get(method)?)?;
        let measurement = self.watch.lock().measurement.clone()?;
        let mut counts = measurement.methods[method].lock();
        counts.started += 1;
        counts.bytes_in += bytes as u64;
        drop(counts);
        Some(Arc::new(Measured { measurement, method, begun: clock::monotonic_ns(), code: OnceLock::new() }))
    }

    /// What was counted so far. The caller fills in what only the server knows.
    pub(in crate::server) fn snapshot(&self) -> Snapshot {
        let (watchers, measurement) = {
            let watch = self.watch.lock();
            (watch.watchers, watch.measurement.clone())
        };
        let now = clock::monotonic_ns();
        let (since, methods) = measurement.as_ref().map_or((now, Vec::new()), |measurement| {
            let counts = measurement.methods.iter().map(|counts| counts.lock().clone());
            let methods = self.methods.iter().cloned().zip(counts);
            (measurement.since, methods.map(|(method, counts)| MethodCounts { method, counts }).collect())
        });
        Snapshot {
            measurement: since as f64 / 1e9,
            seconds: now.saturating_sub(since) as f64 / 1e9,
            watchers,
            methods,
            ..Snapshot::default()
        }
    }
}

/// A call that is measured. It counts in the measurement in which it began, even if that has ended meanwhile, or
/// another has begun.
#[derive(Debug)]
pub(in crate::server) struct Measured {
    measurement: Arc<Measurement>,
    method: usize,
    begun: u64,
    /// The status code, once the call has ended. The first one counts.
    code: OnceLock<u8>,
}

impl Measured {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.measurement.methods[self.method].lock()
    }

    /// An item of the client's stream has arrived.
    pub(in crate::server) fn item_in(&self, bytes: usize) {
        let mut counts = self.counts();
        counts.items_in += 1;
        counts.bytes_in += bytes as u64;
    }

    /// An item of the server's stream was sent.
    pub(in crate::server) fn item_out(&self, bytes: usize) {
        let mut counts = self.counts();
        counts.items_out += 1;
        counts.bytes_out += bytes as u64;
    }

    /// The call ends with this status code; its last frame has so many bytes.
    pub(in crate::server) fn end(&self, code: u8, bytes: usize) {
        let _ = self.code.set(code);
        if bytes > 0 {
            self.counts().bytes_out += bytes as u64;
        }
    }

    /// The call is over. A call without an [`end`](Self::end) was given up, or its client is gone: it counts as
    /// cancelled.
    pub(in crate::server) fn finish(&self) {
        let code = match self.code.get() {
            None => Failure::CANCELLED,
            Some(&code) if usize::from(code) < CODE_NAMES.len() => code,
            Some(_) => Failure::UNKNOWN,
        };
        let took = clock::monotonic_ns().saturating_sub(self.begun);
        let mut counts = self.counts();
        counts.ended[usize::from(code)] += 1;
        counts.latency.record(took);
    }
}

/// Counts of durations in buckets. The width of a bucket is at most 1/32 of its least value; below 64 ns each
/// nanosecond has its own bucket.
///
/// Not a library's histogram: this is all the code that is needed, and whoever uses the buckets needs to know nothing
/// of how they are laid out.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// By the longest duration that each bucket can hold.
    counts: BTreeMap<u64, u64>,
    sum: u64,
}

/// Buckets begin to be wider than 1 ns at twice this power of two.
const SUB_BITS: u32 = 5;

/// The longest duration in the bucket of `ns`.
fn bucket(ns: u64) -> u64 {
    ns | ((1 << (ns | 1).ilog2().saturating_sub(SUB_BITS)) - 1)
}

impl Histogram {
    fn record(&mut self, ns: u64) {
        *self.counts.entry(bucket(ns)).or_default() += 1;
        self.sum = self.sum.saturating_add(ns);
    }
}

/// Every bucket that is not empty, ascending: the longest duration it can hold, in nanoseconds, and its count.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Histogram", 2)?;
        out.serialize_field("latency_sum", &self.sum)?;
        out.serialize_field("latency", &self.counts.iter().collect::<Vec<_>>())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str) -> MeasuredMethod {
        MeasuredMethod { name: name.into(), kind: "unary".into() }
    }

    #[test]
    fn a_bucket_is_at_most_a_32nd_too_long() {
        let mut last = None;
        for ns in
            (0..5000).chain((13..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])).chain([u64::MAX])
        {
            let upper = bucket(ns);
            assert!(upper >= ns, "{ns} is in a bucket up to {upper}");
            assert!(upper - ns <= ns / 32, "{ns} would be shown as {upper}");
            let before = bucket(ns.saturating_sub(1));
            assert!(upper == bucket(upper) && (before == upper || before < ns), "{ns} is in two buckets");
            if ns < 5000 {
                assert!(last.is_none_or(|last| upper == last || ns == last + 1), "{ns} leaves a bucket out");
                last = Some(upper);
            }
        }
    }

    #[test]
    fn nothing_is_measured_while_nobody_watches() {
        let statistics = Statistics::new(vec![Some(method("a"))]);
        assert!(statistics.begin(0, 10).is_none());
        statistics.add_watcher();
        statistics.add_watcher();
        assert!(statistics.begin(1, 10).is_none(), "there is no such method");
        let measured = statistics.begin(0, 10).expect("two watch");
        statistics.remove_watcher();
        measured.end(0, 5);
        measured.finish();
        let seen = statistics.snapshot();
        assert_eq!((seen.watchers, seen.methods[0].counts.started, seen.methods[0].counts.ended[0]), (1, 1, 1));
        assert_eq!((seen.methods[0].counts.bytes_in, seen.methods[0].counts.bytes_out), (10, 5));
        assert_eq!(seen.methods[0].counts.latency.counts.values().sum::<u64>(), 1);
        statistics.remove_watcher();
        assert!(statistics.begin(0, 10).is_none());
        assert!(statistics.snapshot().methods.is_empty());
    }

    #[test]
    fn a_call_counts_in_the_measurement_in_which_it_began() {
        let statistics = Statistics::new(vec![Some(method("a"))]);
        statistics.add_watcher();
        let measured = statistics.begin(0, 10).expect("one watches");
        statistics.remove_watcher();
        statistics.add_watcher();
        measured.item_in(1);
        measured.finish();
        let seen = statistics.snapshot();
        assert_eq!(
            (seen.methods[0].counts.started, seen.methods[0].counts.items_in, seen.methods[0].counts.ended),
            (0, 0, [0; CODE_NAMES.len()])
        );
    }

    #[test]
    fn a_call_that_nobody_ended_was_cancelled() {
        let statistics = Statistics::new(vec![Some(method("a"))]);
        statistics.add_watcher();
        let measured = statistics.begin(0, 0).expect("one watches");
        measured.finish();
        let measured = statistics.begin(0, 0).expect("one watches");
        measured.end(200, 0);
        measured.finish();
        let ended = statistics.snapshot().methods[0].counts.ended;
        assert_eq!((ended[1], ended[2]), (1, 1));
    }

    #[test]
    fn a_method_with_two_numbers_is_counted_once() {
        let statistics = Statistics::new(vec![Some(method("a")), Some(method("b")), None, Some(method("a"))]);
        statistics.add_watcher();
        assert!(statistics.begin(2, 1).is_none(), "it is not measured");
        let calls = [0, 3, 1].map(|number| statistics.begin(number, 1).expect("one watches"));
        for call in calls {
            call.finish();
        }
        let seen = statistics.snapshot().methods;
        let seen: Vec<_> = seen.iter().map(|one| (one.method.name.as_str(), one.counts.started)).collect();
        assert_eq!(seen, [("a", 2), ("b", 1)]);
    }
}
