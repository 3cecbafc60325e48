// connect-node's server and client of the test service, over gRPC: a program that knows nothing of nearcall; common.mjs
// says how it runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, connectNodeAdapter, createGrpcTransport } from "@connectrpc/connect-node";
import {
  ASKED, AT_A_TIME, INITIAL, LARGE, MESSAGE, PATIENCE_MS, SENT, SPECIAL, TRAILING, asking, failure, folder, main, sum, zeros,
} from "./common.mjs";

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(`${folder}/descriptors`)));
const service = registry.getService("grpc.testing.TestService");

// The server.

const methods = {
  emptyCall: () => ({}),

  unaryCall({ responseSize, responseStatus }, context) {
    echoMetadata(context);
    failAsAsked(responseStatus);
    return { payload: zeros(responseSize) };
  },

  streamingOutputCall: (request) => answers(request),

  async streamingInputCall(requests) {
    let size = 0;
    for await (const { payload } of requests) size += payload?.body.length ?? 0;
    return { aggregatedPayloadSize: size };
  },

  async *fullDuplexCall(requests, context) {
    echoMetadata(context);
    for await (const request of requests) yield* answers(request);
  },
};

async function* answers({ responseStatus, responseParameters }) {
  failAsAsked(responseStatus);
  for (const { size, intervalUs } of responseParameters) {
    if (intervalUs) await sleep(intervalUs / 1000);
    yield { payload: zeros(size) };
  }
}

function failAsAsked(status) {
  if (status?.code) throw new ConnectError(status.message, status.code);
}

function echoMetadata({ requestHeader, responseHeader, responseTrailer }) {
  for (const [name, to] of [[INITIAL, responseHeader], [TRAILING, responseTrailer]]) {
    if (requestHeader.has(name)) to.set(name, requestHeader.get(name));
  }
}

function serve(port, keys) {
  const adapter = connectNodeAdapter({ routes: (router) => router.service(service, methods) });
  const server = keys ? http2.createSecureServer(keys, adapter) : http2.createServer(adapter);
  server.listen(port, "127.0.0.1");
}

// The client.

function cases(port, authority) {
  const [baseUrl, nodeOptions] = authority
    ? [`https://127.0.0.1:${port}`, { ca: authority }]
    : [`http://127.0.0.1:${port}`, {}];
  const transport = (options) => createGrpcTransport({ baseUrl, nodeOptions, defaultTimeoutMs: PATIENCE_MS, ...options });
  const plain = transport();
  const test = createClient(service, plain);
  const compressing = () =>
    createClient(service, transport({ sendCompression: compressionGzip, compressMinBytes: 1024 }));
  const large = (more) => ({ responseSize: LARGE.reply, payload: zeros(LARGE.request), ...more });
  const isLarge = (reply) => assert.equal(Buffer.alloc(LARGE.reply).compare(reply.payload.body), 0);
  const size = (reply) => reply.payload.body.length;

  async function sizes(stream) {
    const found = [];
    for await (const reply of stream) found.push(size(reply));
    return found;
  }

  async function fails(call, code, message) {
    const error = await failure(call);
    assert.equal(error.code, code, error);
    if (message !== undefined) assert.equal(error.rawMessage, message);
  }

  async function* all(messages) {
    yield* messages;
  }

  /** Requests that stay open after these. */
  async function* open(...messages) {
    yield* messages;
    await sleep(PATIENCE_MS);
  }

  function unimplemented(typeName) {
    const method = { ...service.method.emptyCall, name: "UnimplementedCall", parent: { ...service, typeName } };
    return fails(plain.unary(method, undefined, undefined, {}, {}), Code.Unimplemented);
  }

  /** The call's options that send the test's metadata, and what checks that it came back. */
  function marked() {
    const came = {};
    const headers = { [INITIAL]: "test_initial_metadata_value", [TRAILING]: "q6ur" };
    const onHeader = (head) => (came.ahead = head.get(INITIAL));
    const onTrailer = (tail) => (came.atEnd = tail.get(TRAILING));
    const check = () => assert.deepEqual(came, { ahead: headers[INITIAL], atEnd: headers[TRAILING] });
    return [{ headers, onHeader, onTrailer }, check];
  }

  return {
    empty_unary: () => test.emptyCall({}),
    large_unary: async () => isLarge(await test.unaryCall(large())),

    async client_streaming() {
      const reply = await test.streamingInputCall(all(SENT.map((size) => ({ payload: zeros(size) }))));
      assert.equal(reply.aggregatedPayloadSize, sum(SENT));
    },

    server_streaming: async () => assert.deepEqual(await sizes(test.streamingOutputCall(asking(0, ...ASKED))), ASKED),

    async ping_pong() {
      let replied = () => {};
      async function* requests() {
        for (const [number, size] of SENT.entries()) {
          const reply = new Promise((resolve) => (replied = resolve));
          yield asking(size, ASKED[number]);
          await reply;
        }
      }
      const found = [];
      for await (const reply of test.fullDuplexCall(requests())) {
        found.push(size(reply));
        replied();
      }
      assert.deepEqual(found, ASKED);
    },

    empty_stream: async () => assert.deepEqual(await sizes(test.fullDuplexCall(all([]))), []),

    async custom_metadata() {
      const [ofUnary, checkUnary] = marked();
      isLarge(await test.unaryCall(large(), ofUnary));
      checkUnary();
      const [ofStream, checkStream] = marked();
      const replies = test.fullDuplexCall(all([asking(LARGE.request, LARGE.reply)]), ofStream);
      assert.deepEqual(await sizes(replies), [LARGE.reply]);
      checkStream();
    },

    async status_code_and_message() {
      const responseStatus = { code: Code.Unknown, message: MESSAGE };
      await fails(test.unaryCall({ responseStatus }), Code.Unknown, MESSAGE);
      await fails(sizes(test.fullDuplexCall(all([{ responseStatus }]))), Code.Unknown, MESSAGE);
    },

    special_status_message: () =>
      fails(test.unaryCall({ responseStatus: { code: Code.Unknown, message: SPECIAL } }), Code.Unknown, SPECIAL),

    unimplemented_method: () => unimplemented("grpc.testing.TestService"),
    unimplemented_service: () => unimplemented("grpc.testing.UnimplementedService"),

    async cancel_after_begin() {
      const giveUp = new AbortController();
      const call = test.streamingInputCall(open(), { signal: giveUp.signal });
      giveUp.abort();
      await fails(call, Code.Canceled);
      await test.emptyCall({});
    },

    async cancel_after_first_response() {
      const giveUp = new AbortController();
      const replies = test.fullDuplexCall(open(asking(SENT[0], ASKED[0])), { signal: giveUp.signal });
      const next = replies[Symbol.asyncIterator]();
      assert.equal(size((await next.next()).value), ASKED[0]);
      giveUp.abort();
      await fails(next.next(), Code.Canceled);
      await test.emptyCall({});
    },

    timeout_on_sleeping_server: () =>
      fails(sizes(test.fullDuplexCall(open(asking(SENT[0])), { timeoutMs: 1 })), Code.DeadlineExceeded),

    async concurrent_large_unary() {
      const calls = Array.from({ length: AT_A_TIME }, () => test.unaryCall(large()));
      (await Promise.all(calls)).forEach(isLarge);
    },

    async client_compressed_unary() {
      const expecting = (value) => large({ expectCompressed: { value } });
      await fails(test.unaryCall(expecting(true)), Code.InvalidArgument);
      isLarge(await compressing().unaryCall(expecting(true)));
      isLarge(await test.unaryCall(expecting(false)));
    },

    // connect-node compresses what is long enough; here the second message is not.
    async client_compressed_streaming() {
      const expecting = (size, value) => ({ payload: zeros(size), expectCompressed: { value } });
      const both = () => all([expecting(SENT[0], true), expecting(SENT[1], false)]);
      await fails(test.streamingInputCall(both()), Code.InvalidArgument);
      assert.equal((await compressing().streamingInputCall(both())).aggregatedPayloadSize, SENT[0] + SENT[1]);
    },

    async server_compressed_unary() {
      for (const value of [true, false]) isLarge(await test.unaryCall(large({ responseCompressed: { value } })));
    },

    async server_compressed_streaming() {
      const request = asking(0, ASKED[0], 92653);
      request.responseParameters.forEach((asked, number) => (asked.compressed = { value: number === 0 }));
      assert.deepEqual(await sizes(test.streamingOutputCall(request)), [ASKED[0], 92653]);
    },
  };
}

await main(serve, cases);
