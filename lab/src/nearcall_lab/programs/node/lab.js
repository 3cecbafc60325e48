// One side of the lab's gRPC service in Node.js: node lab.js server|client CONFIG. Speaks the lab's line protocol.
import fs from "node:fs";
import net from "node:net";
import readline from "node:readline";
import { serve } from "./server.js";
import { drive } from "./client.js";

const [role, text] = process.argv.slice(2);
const config = JSON.parse(text);
const requests = readline.createInterface({ input: new net.Socket({ fd: config.read_fd, readable: true }) });

/** Sends an answer and the blob that follows it. */
function say(message, blob = Buffer.alloc(0)) {
  if (blob.length) message.blob = blob.length;
  const data = Buffer.concat([Buffer.from(`${JSON.stringify(message)}\n`), blob]);
  try {
    for (let sent = 0; sent < data.length; ) sent += fs.writeSync(config.write_fd, data, sent);
  } catch {
    process.exit(0); // the lab is gone
  }
}

requests.on("close", () => process.exit(0));
const answer = await (role === "server" ? serve(say) : drive(say));
// One request is answered before the next is looked at: the lab asks for one thing at a time.
requests.on("line", (line) => answer(JSON.parse(line)));
requests.resume();
