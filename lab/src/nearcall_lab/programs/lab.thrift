// The lab's service, as lab.proto says it for gRPC.

struct Order {
  1: required string symbol
  2: required i64 quantity
  3: required double price
  4: required bool urgent
}

struct Fill {
  1: required string symbol
  2: required double cost
  3: required i64 lots
  4: required bool accepted
}

struct Named {
  1: required i64 id
  2: required string name
}

service Lab {
  binary echo(1: binary data)
  Fill quote(1: Order order)
  Named wait(1: double seconds)
  oneway void send(1: binary data)
}
