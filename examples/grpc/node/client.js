// The client of a calculator in any language: node client.js [host:port]
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import { Calculator } from "./service.js";

const calc = new Calculator(process.argv[2] ?? "127.0.0.1:7002", grpc.credentials.createInsecure());
const inTime = (seconds) => ({ deadline: Date.now() + 1000 * seconds });
const call = (name, request) => promisify(calc[name].bind(calc))(request, new grpc.Metadata(), inTime(10));

console.log("1 + 2 =", (await call("Add", { a: 1, b: 2 })).value);
console.log("2 + 5 =", (await call("Add", { a: 2 })).value); // without b, which has a default

const counted = [];
for await (const { value } of calc.Countdown({ n: 3 }, inTime(10))) counted.push(value);
console.log("counting:", ...counted);

const total = await new Promise((resolve, reject) => {
  const adding = calc.Total(inTime(10), (error, reply) => (error ? reject(error) : resolve(reply.value)));
  for (let x = 0; x < 100; x++) adding.write({ xs: x });
  adding.end();
});
console.log("total:", total);

const totals = calc.Totals(inTime(10));
const soFar = [];
totals.write({ xs: 1 });
for await (const { value } of totals) {
  // The next one goes when the one before was answered.
  soFar.push(value);
  if (soFar.length < 3) totals.write({ xs: soFar.length + 1 });
  else totals.end();
}
console.log("totals:", ...soFar);

const caller = new grpc.Metadata();
caller.set("caller", "Node");
await new Promise((resolve, reject) => {
  const hello = calc.Hello({}, caller, inTime(10), (error, reply) => {
    if (error) reject(error);
    else console.log(reply.value);
  });
  hello.on("status", ({ metadata }) => {
    console.log("served by", metadata.get("served-by")[0]);
    resolve();
  });
});

try {
  await call("Divide", { a: 1, b: 0 });
} catch (error) {
  console.log(grpc.status[error.code], error.details);
}

try {
  for await (const _ of calc.Countdown({ n: 1000, pause: 1 }, inTime(0.2)));
} catch (error) {
  console.log(grpc.status[error.code]);
}

const numbers = calc.Countdown({ n: 1_000_000 });
const seen = [];
try {
  for await (const { value } of numbers) {
    if (seen.push(value) === 2) numbers.cancel();
    if (seen.length >= 2) break;
  }
} catch (error) {
  if (error.code !== grpc.status.CANCELLED) throw error;
}
console.log(...seen, "and no more");
calc.close();
