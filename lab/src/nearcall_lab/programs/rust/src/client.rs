//! The client: connects, makes timed calls, checks every reply.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::Failure;
use crate::lab::{Lab, now};
use crate::messages::lab_client::LabClient;
use crate::messages::{Order, Pause};

const NEVER: i64 = i64::MAX;
const MOST_SECRET: i64 = 1_000_000;
/// Failed calls in a row: the connection is dead.
const GIVE_UP_AFTER: usize = 100;
/// For a cell that ends by a number of calls.
const COUNTED_LIMIT_NS: i64 = 120_000_000_000;
/// Times `warmup_s`; what the last one saw shows whether the times have settled.
const WARM_UPS: f64 = 5.0;

#[derive(Clone, Default, Deserialize)]
struct Cell {
    work: Work,
    mode: Mode,
}

#[derive(Clone, Default, Deserialize)]
struct Work {
    operation: String,
    delay_s: f64,
}

#[derive(Clone, Default, Deserialize)]
struct Mode {
    kind: String,
    connections: i64,
    outstanding: i64,
    client_processes: i64,
    calls: i64,
    seconds: f64,
    warmup_s: f64,
}

#[derive(Deserialize)]
struct Request {
    r#do: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    cell: Cell,
    #[serde(default)]
    process: i64,
    #[serde(default)]
    begin_ns: i64,
}

/// How a call can end other than rightly.
enum Ended {
    Failed(Box<Status>),
    Wrong(String),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended::Failed(Box::new(status))
    }
}

/// What a slot has recorded.
#[derive(Default)]
struct Record {
    intended: Vec<i64>,
    started: Vec<i64>,
    done: Vec<i64>,
    errors: BTreeMap<String, u64>,
    first_error: String,
    secrets: BTreeSet<i64>,
    wrong: Option<String>,
    row: usize,
}

/// One call at a time.
#[derive(Clone)]
struct Slot {
    client: LabClient<Channel>,
    work: Work,
}

fn share(total: i64, part: i64, parts: i64) -> i64 {
    (total - part + parts - 1) / parts
}

fn checked(right: bool, secret: i64, reply: impl std::fmt::Debug) -> Result<i64, Ended> {
    if right && (0..=MOST_SECRET).contains(&secret) { Ok(secret) } else { Err(Ended::Wrong(format!("{reply:?}"))) }
}

impl Slot {
    /// The time of the reply, and the secret in it.
    async fn unit(&mut self, number: i64) -> Result<(i64, i64), Ended> {
        if self.work.operation == "wait" {
            let seconds = self.work.delay_s;
            let reply = self.client.wait(Pause { seconds }).await?.into_inner();
            let ended = now();
            let secret = i64::from(reply.id) - (seconds * 1e6).round() as i64;
            return Ok((ended, checked(reply.name == format!("waited {seconds} s"), secret, reply)?));
        }
        let at = number % 4 + 1;
        let (symbol, quantity, price, urgent) = (format!("SYM{at}"), 100 * at + 7, 1.25 * at as f64, at % 2 == 0);
        let order = Order { symbol: symbol.clone(), quantity, price, urgent };
        let reply = self.client.quote(order).await?.into_inner();
        let ended = now();
        let right = reply.symbol == symbol && reply.cost == quantity as f64 * price && reply.accepted != urgent;
        Ok((ended, checked(right, reply.lots - quantity / 100, reply)?))
    }

    /// Makes one call and records it. False if the slot should stop.
    async fn call(&mut self, number: i64, intended: i64, record: &mut Record) -> bool {
        let begun = now();
        match self.unit(number).await {
            Ok((ended, secret)) => {
                record.secrets.insert(secret);
                record.intended.push(intended);
                record.started.push(begun);
                record.done.push(ended);
                record.row = 0;
                true
            }
            Err(Ended::Wrong(reply)) => {
                record.wrong = Some(format!("wrong reply: {reply}"));
                false
            }
            Err(Ended::Failed(status)) => {
                let kind: Code = status.code();
                *record.errors.entry(format!("{kind:?}")).or_default() += 1;
                if record.first_error.is_empty() {
                    record.first_error = format!("{kind:?}: {}", status.message());
                    // Why a connection ended stands only in the causes.
                    let mut cause = std::error::Error::source(&*status);
                    while let Some(error) = cause {
                        record.first_error += &format!(": {error:?}");
                        cause = error.source();
                    }
                }
                record.row += 1;
                record.row < GIVE_UP_AFTER
            }
        }
    }
}

#[derive(Default)]
struct Load {
    mode: Mode,
    process: i64,
    slots: Vec<Slot>,
    records: Vec<Record>,
    bursts: Vec<i64>,
    due: i64,
    /// Calls that the server must have handled, in all cells.
    requests: u64,
    failed: u64,
}

impl Load {
    async fn prepare(&mut self, request: Request) -> Result<(Value, Vec<u8>), Failure> {
        self.slots.clear();
        let Cell { work, mode } = request.cell;
        (self.mode, self.process, self.bursts, self.due) = (mode.clone(), request.process, Vec::new(), 0);
        let connections = share(mode.connections, request.process, mode.client_processes);
        // Further slots of a burst would have no calls to make.
        let most = if mode.kind == "burst" { share(mode.calls, 0, mode.connections) } else { mode.outstanding };
        let mut clients = Vec::new();
        for _ in 0..connections {
            let endpoint = Endpoint::from_shared(format!("http://{}", request.address))?;
            clients.push(LabClient::new(endpoint.connect_timeout(Duration::from_secs(10)).connect().await?));
        }
        for at in 0..connections * mode.outstanding.min(most) {
            self.slots.push(Slot { client: clients[(at % connections) as usize].clone(), work: work.clone() });
        }
        self.closed(connections as usize, NEVER, |_| 1).await?;
        if self.records.iter().any(|record| !record.first_error.is_empty()) {
            return Err(self.first_error().into());
        }
        let first = self.records[0].done[0] - self.records[0].started[0];
        let (mut warmed, mut last) = (0, Vec::new());
        if mode.warmup_s > 0.0 {
            for length in [(WARM_UPS - 1.0) * mode.warmup_s, mode.warmup_s] {
                self.closed(self.slots.len(), now() + (length * 1e9) as i64, |_| NEVER).await?;
                last = self.columns(&["started", "done"]);
                warmed += last.len() / 16;
            }
            if warmed == 0 {
                return Err(self.first_error().into());
            }
        }
        let slots = self.slots.len();
        Ok((json!({"first_call_ns": first, "warmup_calls": warmed, "warmed_up": false, "slots": slots}), last))
    }

    /// Runs the first `count` slots, each in a task of its own, and keeps what they record.
    async fn each<Run: Future<Output = Record> + Send + 'static>(
        &mut self,
        count: usize,
        run: impl Fn(i64, Slot) -> Run,
    ) -> Result<(), Failure> {
        let tasks: Vec<_> =
            self.slots[..count].iter().zip(0..).map(|(slot, number)| tokio::spawn(run(number, slot.clone()))).collect();
        for record in join_all(tasks).await {
            let record = record?;
            self.requests += record.done.len() as u64;
            self.failed += record.errors.values().sum::<u64>();
            if let Some(wrong) = record.wrong {
                return Err(wrong.into());
            }
            self.records.push(record);
        }
        Ok(())
    }

    /// Each slot calls again as soon as it has its reply, at least once.
    async fn closed(&mut self, count: usize, end: i64, most: impl Fn(i64) -> i64) -> Result<(), Failure> {
        self.records.clear();
        self.each(count, |number, mut slot| {
            let limit = most(number);
            async move {
                let mut record = Record::default();
                for made in 0..limit {
                    if !slot.call(made, 0, &mut record).await || now() >= end {
                        break;
                    }
                }
                record
            }
        })
        .await
    }

    /// Starts all calls at once; a further burst follows while there is time.
    async fn burst(&mut self, begin: i64) -> Result<(), Failure> {
        let calls = share(self.mode.calls, self.process, self.mode.client_processes);
        self.records.clear();
        let mut due = begin;
        loop {
            let taken = Arc::new(AtomicI64::new(0));
            self.each(self.slots.len(), |_, mut slot| {
                let taken = taken.clone();
                async move {
                    let mut record = Record::default();
                    loop {
                        // Relaxed: a number is taken once, and nothing else goes by it.
                        let at = taken.fetch_add(1, Relaxed);
                        if at >= calls || !slot.call(at, due, &mut record).await {
                            return record;
                        }
                    }
                }
            })
            .await?;
            let end = now();
            self.bursts.extend([due, end]);
            self.due += calls;
            if end >= begin + (self.mode.seconds * 1e9) as i64 || self.mode.client_processes > 1 {
                return Ok(());
            }
            due = now();
        }
    }

    async fn timed(&mut self, begin: i64) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_nanos(u64::try_from(begin - now()).unwrap_or(0))).await;
        let (mode, count) = (self.mode.clone(), self.slots.len());
        if mode.kind == "burst" {
            return self.burst(begin).await;
        }
        if mode.calls == 0 {
            return self.closed(count, begin + (mode.seconds * 1e9) as i64, |_| NEVER).await;
        }
        let (everybody, before) = (mode.connections * mode.outstanding, self.process * count as i64);
        self.closed(count, begin + COUNTED_LIMIT_NS, |number| share(mode.calls, before + number, everybody)).await
    }

    fn first_error(&self) -> String {
        let found = self.records.iter().find(|record| !record.first_error.is_empty());
        found.map_or("no call was done".into(), |record| record.first_error.clone())
    }

    /// The stamps of all slots, one column after the other.
    fn columns(&self, names: &[&str]) -> Vec<u8> {
        let mut blob = Vec::new();
        for name in names {
            for record in &self.records {
                let stamps = match *name {
                    "intended" => &record.intended,
                    "started" => &record.started,
                    _ => &record.done,
                };
                blob.extend(stamps.iter().flat_map(|stamp| stamp.to_le_bytes()));
            }
        }
        blob
    }

    fn results(&self) -> (Value, Vec<u8>) {
        let names: &[&str] =
            if self.mode.kind == "burst" { &["started", "done", "intended"] } else { &["started", "done"] };
        let (mut errors, mut secrets) = (BTreeMap::<&str, u64>::new(), BTreeSet::<i64>::new());
        for record in &self.records {
            for (kind, count) in &record.errors {
                *errors.entry(kind).or_default() += count;
            }
            secrets.extend(&record.secrets);
        }
        let rows: usize = self.records.iter().map(|record| record.done.len()).sum();
        let mut told = json!({
            "columns": names, "rows": rows, "requests": self.requests, "failed": self.failed, "errors": errors,
            "due": self.due, "bursts": self.bursts, "secrets": secrets,
        });
        if self.failed > 0 {
            told["first_error"] = json!(self.first_error());
        }
        (told, self.columns(names))
    }
}

pub async fn drive(mut lab: Lab) -> Result<(), Failure> {
    lab.say(json!({"loaded": true}), &[])?;
    let mut load = Load::default();
    while let Some(request) = lab.next::<Request>()? {
        let (told, blob) = match request.r#do.as_str() {
            "prepare" if !["closed", "burst"].contains(&request.cell.mode.kind.as_str()) => {
                (json!({"unsupported": format!("has no mode {}", request.cell.mode.kind)}), Vec::new())
            }
            "prepare" => load.prepare(request).await.unwrap_or_else(refusal),
            "go" => {
                load.timed(request.begin_ns).await.map(|()| (json!({"ran": true}), Vec::new())).unwrap_or_else(refusal)
            }
            "results" => load.results(),
            "stop" => return lab.say(json!({"stopped": true}), &[]),
            other => (json!({"unsupported": other}), Vec::new()),
        };
        lab.say(told, &blob)?;
    }
    Ok(())
}

fn refusal(failure: Failure) -> (Value, Vec<u8>) {
    (json!({"error": failure.to_string()}), Vec::new())
}
