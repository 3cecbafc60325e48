// grpc-node's server and client of the test service, a program that knows nothing of nearcall; common.mjs says how it runs.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import {
  ASKED, AT_A_TIME, INITIAL, LARGE, MESSAGE, PATIENCE_MS, SENT, SPECIAL, TRAILING, asking, failure, folder, main, sum, zeros,
} from "./common.mjs";

const { TestService } = grpc.loadPackageDefinition(loadSync(`${folder}/test_service.proto`)).grpc.testing;

// The server.

const methods = {
  EmptyCall: (_, reply) => reply(null, {}),

  UnaryCall(call, reply) {
    const { responseSize, responseStatus } = call.request;
    reply(failed(responseStatus), { payload: zeros(responseSize ?? 0) }, echoMetadata(call));
  },

  async StreamingOutputCall(call) {
    await answer(call, call.request);
    call.end();
  },

  async StreamingInputCall(call, reply) {
    let size = 0;
    try {
      for await (const { payload } of call) size += payload?.body.length ?? 0;
    } catch {
      return; // the call was given up
    }
    reply(null, { aggregatedPayloadSize: size });
  },

  FullDuplexCall(call) {
    const trailers = echoMetadata(call);
    let answered = Promise.resolve();
    call.on("data", (request) => (answered = answered.then(() => answer(call, request))));
    call.on("end", () => answered.then(() => call.end(trailers)));
  },
};

const failed = (status) => (status?.code ? { code: status.code, details: status.message } : null);

async function answer(call, { responseStatus, responseParameters = [] }) {
  if (failed(responseStatus)) call.emit("error", failed(responseStatus));
  for (const { size, intervalUs } of responseParameters) {
    if (intervalUs) await sleep(intervalUs / 1000);
    call.write({ payload: zeros(size) });
  }
}

function echoMetadata(call) {
  const [ahead, atEnd] = [INITIAL, TRAILING].map((name) => {
    const metadata = new grpc.Metadata();
    for (const value of call.metadata.get(name)) metadata.add(name, value);
    return metadata;
  });
  call.sendMetadata(ahead);
  return atEnd;
}

async function serve(port, keys) {
  const server = new grpc.Server();
  server.addService(TestService.service, methods);
  const credentials = keys
    ? grpc.ServerCredentials.createSsl(null, [{ cert_chain: keys.cert, private_key: keys.key }])
    : grpc.ServerCredentials.createInsecure();
  await promisify(server.bindAsync.bind(server))(`127.0.0.1:${port}`, credentials);
}

// The client.

function cases(port, authority) {
  const credentials = authority ? grpc.credentials.createSsl(authority) : grpc.credentials.createInsecure();
  const connected = (options) => new TestService(`127.0.0.1:${port}`, credentials, options);
  const test = connected();
  const compressing = () => connected({ "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip });
  const inTime = () => ({ deadline: Date.now() + PATIENCE_MS });
  const unary = (name, request, client = test) => promisify(client[name].bind(client))(request, inTime());
  const large = (more) => ({ responseSize: LARGE.reply, payload: zeros(LARGE.request), ...more });
  const isLarge = (reply) => assert.equal(Buffer.alloc(LARGE.reply).compare(reply.payload.body), 0);
  const size = (reply) => reply.payload.body.length;

  async function sizes(stream) {
    const found = [];
    for await (const reply of stream) found.push(size(reply));
    return found;
  }

  /** Sends requests, each with its flags; the promise of the reply. */
  function streamed(requests, client = test) {
    return new Promise((resolve, reject) => {
      const call = client.StreamingInputCall(inTime(), (error, reply) => (error ? reject(error) : resolve(reply)));
      for (const [request, flags] of requests) call.write(request, flags);
      call.end();
    });
  }

  const fails = async (call, code, message) => {
    const error = await failure(call);
    assert.equal(error.code, code, error);
    if (message !== undefined) assert.equal(error.details, message);
  };

  function unimplemented(service) {
    const [bytes, path] = [(value) => value, `/grpc.testing.${service}/UnimplementedCall`];
    const call = promisify(test.makeUnaryRequest.bind(test))(path, bytes, bytes, Buffer.alloc(0));
    return fails(call, grpc.status.UNIMPLEMENTED);
  }

  const marked = () => {
    const metadata = new grpc.Metadata();
    metadata.set(INITIAL, "test_initial_metadata_value");
    metadata.set(TRAILING, Buffer.alloc(3, 0xab));
    return metadata;
  };

  /** Resolves when both have come back. */
  async function cameBack(call) {
    const [ahead, { metadata: atEnd }] = await Promise.all(
      ["metadata", "status"].map((event) => new Promise((resolve) => call.once(event, resolve))),
    );
    assert.deepEqual(ahead.get(INITIAL), ["test_initial_metadata_value"]);
    assert.deepEqual(atEnd.get(TRAILING), [Buffer.alloc(3, 0xab)]);
  }

  return {
    empty_unary: () => unary("EmptyCall", {}),
    large_unary: async () => isLarge(await unary("UnaryCall", large())),

    async client_streaming() {
      const reply = await streamed(SENT.map((size) => [{ payload: zeros(size) }]));
      assert.equal(reply.aggregatedPayloadSize, sum(SENT));
    },

    server_streaming: async () =>
      assert.deepEqual(await sizes(test.StreamingOutputCall(asking(0, ...ASKED), inTime())), ASKED),

    async ping_pong() {
      const call = test.FullDuplexCall(inTime());
      const found = [];
      const next = () => (found.length < 4 ? call.write(asking(SENT[found.length], ASKED[found.length])) : call.end());
      next();
      for await (const reply of call) {
        found.push(size(reply));
        next();
      }
      assert.deepEqual(found, ASKED);
    },

    async empty_stream() {
      const call = test.FullDuplexCall(inTime());
      call.end();
      assert.deepEqual(await sizes(call), []);
    },

    async custom_metadata() {
      let call;
      const replied = new Promise((resolve, reject) => {
        call = test.UnaryCall(large(), marked(), inTime(), (error, reply) => (error ? reject(error) : resolve(reply)));
      });
      isLarge((await Promise.all([replied, cameBack(call)]))[0]);
      const stream = test.FullDuplexCall(marked(), inTime());
      stream.end(asking(LARGE.request, LARGE.reply));
      assert.deepEqual((await Promise.all([sizes(stream), cameBack(stream)]))[0], [LARGE.reply]);
    },

    async status_code_and_message() {
      const responseStatus = { code: grpc.status.UNKNOWN, message: MESSAGE };
      await fails(unary("UnaryCall", { responseStatus }), grpc.status.UNKNOWN, MESSAGE);
      const call = test.FullDuplexCall(inTime());
      call.end({ responseStatus });
      await fails(sizes(call), grpc.status.UNKNOWN, MESSAGE);
    },

    special_status_message: () =>
      fails(unary("UnaryCall", { responseStatus: { code: 2, message: SPECIAL } }), grpc.status.UNKNOWN, SPECIAL),

    unimplemented_method: () => unimplemented("TestService"),
    unimplemented_service: () => unimplemented("UnimplementedService"),

    async cancel_after_begin() {
      const ended = new Promise((resolve) => test.StreamingInputCall(inTime(), resolve).cancel());
      assert.equal((await ended).code, grpc.status.CANCELLED);
      await unary("EmptyCall", {});
    },

    async cancel_after_first_response() {
      const call = test.FullDuplexCall(inTime());
      call.write(asking(SENT[0], ASKED[0]));
      call.once("data", () => call.cancel());
      assert.equal((await new Promise((resolve) => call.once("error", resolve))).code, grpc.status.CANCELLED);
      await unary("EmptyCall", {});
    },

    async timeout_on_sleeping_server() {
      const call = test.FullDuplexCall({ deadline: Date.now() + 1 });
      call.write(asking(SENT[0]));
      await fails(sizes(call), grpc.status.DEADLINE_EXCEEDED);
    },

    async concurrent_large_unary() {
      const calls = Array.from({ length: AT_A_TIME }, () => unary("UnaryCall", large()));
      (await Promise.all(calls)).forEach(isLarge);
    },

    async client_compressed_unary() {
      const expecting = (value) => large({ expectCompressed: { value } });
      await fails(unary("UnaryCall", expecting(true)), grpc.status.INVALID_ARGUMENT);
      isLarge(await unary("UnaryCall", expecting(true), compressing()));
      isLarge(await unary("UnaryCall", expecting(false)));
    },

    async client_compressed_streaming() {
      const expecting = (size, value) => ({ payload: zeros(size), expectCompressed: { value } });
      await fails(streamed([[expecting(SENT[0], true)]]), grpc.status.INVALID_ARGUMENT);
      const NOT_COMPRESSED = 2; // gRPC's flag of a message
      const both = [[expecting(SENT[0], true)], [expecting(SENT[3], false), NOT_COMPRESSED]];
      assert.equal((await streamed(both, compressing())).aggregatedPayloadSize, SENT[0] + SENT[3]);
    },

    async server_compressed_unary() {
      for (const value of [true, false]) isLarge(await unary("UnaryCall", large({ responseCompressed: { value } })));
    },

    async server_compressed_streaming() {
      const request = asking(0, ASKED[0], 92653);
      request.responseParameters.forEach((asked, number) => (asked.compressed = { value: number === 0 }));
      assert.deepEqual(await sizes(test.StreamingOutputCall(request, inTime())), [ASKED[0], 92653]);
    },
  };
}

await main(serve, cases);
