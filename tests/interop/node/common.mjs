// What the programs of both libraries share: the numbers of the cases, and the command line.
//
//   node LIBRARY.mjs server PORT [CERTIFICATE KEY]   serves until its input ends
//   node LIBRARY.mjs client CASE PORT [AUTHORITY]    exit status 0 if the case holds
//
// The environment's SERVICE names a folder with what `nearcall proto` prints, and what protoc has made of it.
import { readFileSync } from "node:fs";

export const SENT = [27182, 8, 1828, 45904];
export const ASKED = [31415, 9, 2653, 58979];
export const LARGE = { request: 271828, reply: 314159 };
export const AT_A_TIME = 200; // a thousand keep Node busy for half a minute
export const PATIENCE_MS = 30_000;
export const INITIAL = "x-grpc-test-echo-initial";
export const TRAILING = "x-grpc-test-echo-trailing-bin";
export const MESSAGE = "test status message";
export const SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";

export const folder = process.env.SERVICE;
export const zeros = (size) => ({ body: Buffer.alloc(size) });
export const sum = (sizes) => sizes.reduce((a, b) => a + b);
export const asking = (payload, ...sizes) => ({
  payload: zeros(payload),
  responseParameters: sizes.map((size) => ({ size })),
});

/** The error that the promise fails with. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the call did not fail");
}

/** Runs the command line. */
export async function main(serve, cases) {
  const [role, name, ...rest] = process.argv.slice(2);
  if (role === "server") {
    process.stdin.on("end", () => process.exit(0)).resume();
    const [certificate, key] = rest.map((file) => readFileSync(file));
    await serve(Number(name), key && { cert: certificate, key });
  } else {
    const [port, authority] = rest;
    await cases(Number(port), authority && readFileSync(authority))[name]();
    process.exit(0); // whatever is still open
  }
}
