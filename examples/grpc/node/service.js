// What both sides know of the service: calculator.proto, read when the program starts.
import grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

// Numbers of 64 bits become numbers, which are exact up to 2 ** 53.
const options = { longs: Number, defaults: true };
const definition = loadSync(new URL("calculator.proto", import.meta.url).pathname, options);

export const { Calculator } = grpc.loadPackageDefinition(definition).example.v1;
