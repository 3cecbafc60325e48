// A server of Connect's own make, which clients of nearcall's call.
//
//   node server.mjs DESCRIPTORS
//
// DESCRIPTORS is a file that protoc has made of `nearcall proto`. It prints two ports of 127.0.0.1 as JSON: one of HTTP/1.1
// and one of HTTP/2. It ends with its standard input.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema, StringValueSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(process.argv[2])));
const service = registry.getService("test.v1.Web");
let given_up = 0;

const web = {
  add: ({ a, b }) => ({ value: a + b }),
  greet: ({ name }) => ({ value: name }),
  fail({ why }) {
    const detail = { desc: StringValueSchema, value: create(StringValueSchema, { value: "more" }) };
    throw new ConnectError(why, Code.FailedPrecondition, { "x-tail": "of the error" }, [detail]);
  },
  metadata(_, context) {
    const [word, data] = ["x-word", "x-bytes-bin"].map((name) => context.requestHeader.get(name));
    context.responseHeader.set("x-word-back", word);
    context.responseTrailer.set("x-word-tail", word);
    context.responseTrailer.set("x-bytes-tail-bin", data);
    return {};
  },
  async *countdown({ n }) {
    for (let at = n; at > 0n; at--) yield { value: at };
  },
  async *breaks() {
    yield { value: 1n };
    throw new ConnectError("enough", Code.Aborted);
  },
  async hold(_, context) {
    await new Promise((done) => context.signal.addEventListener("abort", done));
    given_up++;
    // The client may be late to notice its own deadline, and hears of it here.
    throw new ConnectError("given up", Code.DeadlineExceeded);
  },
  async total(requests) {
    let value = 0n;
    for await (const { xs } of requests) value += xs;
    return { value };
  },
  async *both(requests) {
    for await (const { xs } of requests) yield { value: -xs };
  },
  givenUp: () => ({ value: BigInt(given_up) }),
  method: (_, context) => ({ value: context.requestMethod }),
};

const adapter = connectNodeAdapter({ routes: (router) => router.service(service, web) });
const listening = (server) => new Promise((done) => server.listen(0, "127.0.0.1", () => done(server.address().port)));
const ports = await Promise.all([createServer(adapter), createHttp2Server(adapter)].map(listening));
console.log(JSON.stringify(ports));
process.stdin.on("end", () => process.exit(0)).resume();
