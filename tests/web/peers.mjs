// Calls a server of nearcall with clients of others' make, and prints what came as JSON: one line for each case.
//
//   node peers.mjs URL DESCRIPTORS CLIENT [HTTP-VERSION] [proto|json]
//
// URL is the server's, DESCRIPTORS a file that protoc has made of `nearcall proto`, CLIENT connect, grpc, grpc-web or
// grpc-web-text.
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";

const [baseUrl, descriptors, kind, httpVersion = "1.1", codec = "proto"] = process.argv.slice(2);
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const service = registry.getService("test.v1.Web");
const tell = (name, value) => console.log(JSON.stringify([name, value]));

/** The text that JSON has for numbers of 64 bits. */
const plain = (value) => (typeof value === "bigint" ? Number(value) : value);

async function failure(call) {
  try {
    await call();
    return "no failure";
  } catch (error) {
    return [Code[error.code], error.rawMessage];
  }
}

async function collected(stream) {
  const values = [];
  for await (const message of stream) values.push(plain(message.value));
  return values;
}

async function withTransport() {
  const make = { connect: createConnectTransport, grpc: createGrpcTransport, "grpc-web": createGrpcWebTransport }[kind];
  const options = { baseUrl, httpVersion, useBinaryFormat: codec === "proto" };
  const client = createClient(service, make(options));
  tell("unary", plain((await client.add({ a: 1n, b: 2n })).value));
  tell("zeros", plain((await client.add({})).value));
  tell("text", (await client.greet({ name: "Käse 🦀" })).value);
  tell("failure", await failure(() => client.fail({ why: 'not "here"' })));
  const seen = {};
  const headers = { "x-word": "hello", "x-bytes-bin": "AP8" };
  const onHeader = (head) => { seen.head = head.get("x-word-back"); };
  const onTrailer = (tail) => { seen.tail = [tail.get("x-word-tail"), tail.get("x-bytes-tail-bin")]; };
  await client.metadata({}, { headers, onHeader, onTrailer });
  tell("metadata", [seen.head, ...seen.tail]);
  tell("countdown", await collected(client.countdown({ n: 3n })));
  tell("broken stream", await failure(() => collected(client.breaks({}))));
  tell("deadline", (await failure(() => client.hold({}, { timeoutMs: 100 })))[0]);
  const giveUp = new AbortController();
  setTimeout(() => giveUp.abort(), 100);
  tell("cancel", (await failure(() => client.hold({}, { signal: giveUp.signal })))[0]);
  async function* numbers() {
    for (let x = 1n; x <= 100n; x++) yield { xs: x };
  }
  tell("total", plain((await client.total(numbers())).value));
  if (httpVersion === "2") tell("both", await collected(client.both(numbers())));
  if (kind === "connect") {
    const byGet = createClient(service, make({ ...options, useHttpGet: true }));
    tell("get", plain((await byGet.add({ a: 3n, b: 4n })).value));
    const packed = createClient(service, make({ ...options, sendCompression: (await import("@connectrpc/connect-node")).compressionGzip, compressMinBytes: 1 }));
    tell("compressed", (await packed.greet({ name: "x".repeat(10000) })).value.length);
  }
}

/** Google's client, which speaks base64. */
async function withGoogles() {
  const { default: XMLHttpRequest } = await import("xhr2");
  globalThis.XMLHttpRequest = XMLHttpRequest;
  const { default: web } = await import("grpc-web");
  const { toBinary, create } = await import("@bufbuild/protobuf");
  const client = new web.GrpcWebClientBase({ format: "text" });
  const describe = (method, type) => new web.MethodDescriptor(
    `/test.v1.Web/${method.name}`, type, Object, Object,
    (message) => toBinary(method.input, create(method.input, message)),
    (bytes) => fromBinary(method.output, bytes),
  );
  const named = (name) => service.methods.find((method) => method.name === name);
  const unary = (name, message) => new Promise((good, bad) => {
    const method = describe(named(name), "unary");
    client.rpcCall(`${baseUrl}/test.v1.Web/${name}`, message, {}, method, (error, reply) => (error ? bad(error) : good(reply)));
  });
  tell("unary", plain((await unary("Add", { a: 1n, b: 2n })).value));
  tell("text", (await unary("Greet", { name: "Käse 🦀" })).value);
  tell("failure", await unary("Fail", { why: 'not "here"' }).catch((error) => [Code[error.code], error.message]));
  const stream = client.serverStreaming(`${baseUrl}/test.v1.Web/Countdown`, { n: 3n }, {}, describe(named("Countdown"), "server_streaming"));
  const values = [];
  stream.on("data", (message) => values.push(plain(message.value)));
  await new Promise((good, bad) => { stream.on("end", good); stream.on("error", bad); });
  tell("countdown", values);
}

await (kind === "grpc-web-text" ? withGoogles() : withTransport());
