import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { Lab } from "./service.js";

const MOST_SECRET = 1_000_000;
const GIVE_UP_AFTER = 100; // failed calls in a row: the connection is dead
const COUNTED_LIMIT = 120_000_000_000n; // nanoseconds for a cell that ends by a number of calls
const WARM_UPS = 5; // times warmup_s; what the last one saw shows whether the times have settled
const NEVER = 1n << 62n;

const now = process.hrtime.bigint; // CLOCK_MONOTONIC
const nanoseconds = (seconds) => BigInt(Math.round(seconds * 1e9));
const share = (total, part, parts) => Math.floor((total - part + parts - 1) / parts);

class WrongReply extends Error {}

function checked(right, secret, reply) {
  if (!right || secret < 0 || secret > MOST_SECRET) throw new WrongReply(`wrong reply: ${JSON.stringify(reply)}`);
  return secret;
}

/** A call: resolves to the secret in its reply, or rejects. */
function unitOf(work, client) {
  if (work.operation === "wait") {
    const request = { seconds: work.delay_s };
    const name = `waited ${work.delay_s} s`;
    const base = Math.round(work.delay_s * 1e6);
    const call = promisify(client.Wait.bind(client));
    return async () => {
      const reply = await call(request);
      return [now(), () => checked(reply.name === name, reply.id - base, reply)];
    };
  }
  const call = promisify(client.Quote.bind(client));
  return async (number) => {
    const at = (number % 4) + 1;
    const order = { symbol: `SYM${at}`, quantity: 100 * at + 7, price: 1.25 * at, urgent: at % 2 === 0 };
    const reply = await call(order);
    const ended = now();
    const { symbol, cost, lots, accepted } = reply;
    const right = symbol === order.symbol && cost === order.quantity * order.price && accepted === !order.urgent;
    return [ended, () => checked(right, lots - Math.floor(order.quantity / 100), reply)];
  };
}

/** One call at a time. */
class Slot {
  constructor(unit) {
    this.unit = unit;
    this.restart();
  }

  restart() {
    this.stamps = { intended: [], started: [], done: [] };
    this.errors = {};
    this.firstError = "";
    this.row = 0;
  }

  /** Makes one call and records it. False if the slot should stop. Throws `WrongReply`. */
  async call(number, intended, secrets) {
    const begun = now();
    try {
      const [ended, check] = await this.unit(number);
      secrets.add(check());
      this.stamps.intended.push(intended);
      this.stamps.started.push(begun);
      this.stamps.done.push(ended);
      this.row = 0;
      return true;
    } catch (error) {
      if (error instanceof WrongReply) throw error;
      const kind = grpc.status[error.code] ?? error.name;
      this.errors[kind] = (this.errors[kind] ?? 0) + 1;
      this.firstError ||= error.message;
      return ++this.row < GIVE_UP_AFTER;
    }
  }
}

class Load {
  clients = [];
  slots = [];
  requests = 0; // calls that the server must have handled, in all cells
  failed = 0;

  async prepare({ address, cell, process: part }) {
    this.close();
    const { work, mode } = cell;
    this.mode = mode;
    this.part = part;
    const connections = share(mode.connections, part, mode.client_processes);
    // Further slots of a burst would have no calls to make.
    const most = mode.kind === "burst" ? Math.ceil(mode.calls / mode.connections) : mode.outstanding;
    const outstanding = Math.min(mode.outstanding, most);
    // Without a pool of its own a client would share the connections of the others.
    const own = { "grpc.use_local_subchannel_pool": 1 };
    for (let at = 0; at < connections; at++) {
      const client = new Lab(address, grpc.credentials.createInsecure(), own);
      this.clients.push(client);
      await promisify(client.waitForReady.bind(client))(Date.now() + 10_000);
    }
    const units = this.clients.map((client) => unitOf(work, client));
    for (let at = 0; at < connections * outstanding; at++) this.slots.push(new Slot(units[at % connections]));
    const first = this.slots.slice(0, connections);
    await this.closed(first, NEVER, () => 1);
    for (const slot of first) if (slot.firstError) throw new Error(slot.firstError);
    const firstCall = first[0].stamps.done[0] - first[0].stamps.started[0];
    let warmed = 0;
    let last;
    for (const length of mode.warmup_s ? [(WARM_UPS - 1) * mode.warmup_s, mode.warmup_s] : []) {
      await this.closed(this.slots, now() + nanoseconds(length), () => Infinity);
      last = this.columns(["started", "done"]);
      warmed += last.rows;
    }
    if (mode.warmup_s && !warmed) throw new Error(this.firstError());
    const told = { first_call_ns: Number(firstCall), warmup_calls: warmed, warmed_up: false, slots: this.slots.length };
    return [told, last?.blob];
  }

  /** Runs all slots at once, and counts what came of their calls. */
  async each(slots, run) {
    await Promise.all(slots.map(run));
  }

  restart() {
    this.secrets = new Set();
    for (const slot of this.slots) slot.restart();
  }

  count() {
    for (const { stamps, errors } of this.slots) {
      this.requests += stamps.done.length;
      for (const count of Object.values(errors)) this.failed += count;
    }
  }

  /** Each slot calls again as soon as it has its reply, at least once. */
  async closed(slots, end, most) {
    this.restart();
    await this.each(slots, async (slot, number) => {
      const limit = most(number);
      for (let made = 0; made < limit; made++) {
        if (!(await slot.call(made, 0n, this.secrets)) || now() >= end) return;
      }
    });
    this.count();
  }

  /** Starts all calls at once; a further burst follows while there is time. */
  async burst(begin) {
    const { calls, client_processes: processes, seconds } = this.mode;
    const own = share(calls, this.part, processes);
    this.restart();
    this.due = 0;
    for (let due = begin; ; due = now()) {
      let taken = 0;
      await this.each(this.slots, async (slot) => {
        while (taken < own) if (!(await slot.call(taken++, due, this.secrets))) return;
      });
      const end = now();
      this.bursts.push(Number(due), Number(end));
      this.due += own;
      if (end >= begin + nanoseconds(seconds) || processes > 1) break;
    }
    this.count();
  }

  async timed(begin) {
    const { kind, calls, seconds, connections, outstanding } = this.mode;
    while (now() < begin) await new Promise((go) => setTimeout(go, Number(begin - now()) / 1e6));
    if (kind === "burst") return this.burst(begin);
    if (!calls) return this.closed(this.slots, begin + nanoseconds(seconds), () => Infinity);
    const before = this.part * this.slots.length;
    return this.closed(this.slots, begin + COUNTED_LIMIT, (at) => share(calls, before + at, connections * outstanding));
  }

  firstError() {
    return this.slots.find((slot) => slot.firstError)?.firstError ?? "no call was done";
  }

  /** The stamps of all slots, one column after the other. */
  columns(names) {
    const columns = names.map((name) => this.slots.flatMap((slot) => slot.stamps[name]));
    const blob = Buffer.from(BigInt64Array.from(columns.flat()).buffer);
    return { columns: names, rows: columns[0].length, blob };
  }

  results() {
    const names = ["started", "done", ...(this.mode.kind === "burst" ? ["intended"] : [])];
    const { columns, rows, blob } = this.columns(names);
    const errors = {};
    for (const slot of this.slots)
      for (const [kind, count] of Object.entries(slot.errors)) errors[kind] = (errors[kind] ?? 0) + count;
    const told = {
      columns, rows, requests: this.requests, failed: this.failed, errors,
      due: this.due, bursts: this.bursts, secrets: [...this.secrets],
    };
    if (Object.keys(errors).length) told.first_error = this.firstError();
    return [told, blob];
  }

  close() {
    for (const client of this.clients) client.close();
    this.clients = [];
    this.slots = [];
    this.bursts = [];
    this.due = 0;
  }
}

/** Returns what carries out the lab's requests. */
export async function drive(say) {
  const load = new Load();
  say({ loaded: true });
  const does = {
    prepare: (request) => load.prepare(request),
    go: async ({ begin_ns: begin }) => {
      await load.timed(BigInt(begin));
      return [{ ran: true }];
    },
    results: () => load.results(),
    stop: () => {
      load.close();
      return [{ stopped: true }];
    },
  };
  return async (request) => {
    const kind = request.do === "prepare" ? request.cell.mode.kind : "closed";
    if (!(request.do in does)) say({ unsupported: request.do });
    else if (!["closed", "burst"].includes(kind)) say({ unsupported: `has no mode ${kind}` });
    else {
      try {
        say(...(await does[request.do](request)));
      } catch (error) {
        say({ error: error.message.split("\n")[0] });
      }
      if (request.do === "stop") process.exit(0);
    }
  };
}
