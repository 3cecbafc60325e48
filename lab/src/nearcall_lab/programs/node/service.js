// The service's description, from lab.proto, which lies beside this file.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const file = fileURLToPath(new URL("lab.proto", import.meta.url));
// Fields keep their names; a 64-bit integer becomes a number, since none here is larger than a number can be.
const loaded = loadSync(file, { keepCase: true, longs: Number, defaults: true });
export const Lab = grpc.loadPackageDefinition(loaded).nearcall_lab.Lab;
