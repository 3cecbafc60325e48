// The calculator in Node: node server.js HOST:PORT
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import { Calculator } from "./service.js";

const methods = {
  Add({ request: { a, b = 5 } }, reply) {
    reply(null, { value: a + b });
  },

  Divide({ request: { a, b } }, reply) {
    if (b === 0) reply({ code: grpc.status.INVALID_ARGUMENT, details: "b is zero" });
    else reply(null, { value: a / b });
  },

  async Countdown(call) {
    const { n, pause = 0 } = call.request;
    for (let number = n; number > 0 && !call.cancelled; number--) {
      if (pause) await sleep(1000 * pause);
      // A client that reads slowly is waited for.
      if (!call.write({ value: number })) await new Promise((resolve) => {
        call.once("drain", resolve);
        call.once("cancelled", resolve);
      });
    }
    call.end();
  },

  async Total(call, reply) {
    let total = 0;
    for await (const { xs } of call) total += xs;
    reply(null, { value: total });
  },

  Totals(call) {
    let total = 0;
    // Not `for await`: at its end that closes the direction that replies take, too.
    call.on("data", ({ xs }) => call.write({ value: (total += xs) }));
    call.on("end", () => call.end());
  },

  Hello(call, reply) {
    const [caller = "stranger"] = call.metadata.get("caller");
    const trailer = new grpc.Metadata();
    trailer.set("served-by", "Node");
    reply(null, { value: `hello, ${caller}` }, trailer);
  },
};

const server = new grpc.Server();
server.addService(Calculator.service, methods);
server.bindAsync(process.argv[2], grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
process.on("SIGTERM", () => {
  server.forceShutdown();
  process.exit(0);
});
