import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { Lab } from "./service.js";

let served = 0;
let secret = 0;

function quote({ request: order }, reply) {
  served++;
  const { symbol, quantity, price, urgent } = order;
  reply(null, { symbol, cost: quantity * price, lots: Math.floor(quantity / 100) + secret, accepted: !urgent });
}

function wait({ request: { seconds } }, reply) {
  served++;
  const named = { id: Math.round(seconds * 1e6) + secret, name: `waited ${seconds} s` };
  // Timers are in whole milliseconds.
  if (seconds > 0) setTimeout(() => reply(null, named), Math.ceil(seconds * 1e3));
  else reply(null, named);
}

/** Serves, and returns what answers the lab's requests. */
export async function serve(say) {
  const server = new grpc.Server();
  server.addService(Lab.service, { Quote: quote, Wait: wait });
  const bind = promisify(server.bindAsync.bind(server));
  say({ ready: `127.0.0.1:${await bind("127.0.0.1:0", grpc.ServerCredentials.createInsecure())}` });
  return (request) => {
    if (request.do === "stop") process.exit(0);
    else if (request.do === "served") say({ served });
    else if (request.do === "secret") {
      secret = request.value;
      say({ secret: true });
    } else say({ unsupported: request.do });
  };
}
