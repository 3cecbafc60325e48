# The lab's service, as lab.proto says it for gRPC.
@0xb3f1a6e2c9d84705;

struct Order {
  symbol @0 :Text;
  quantity @1 :Int64;
  price @2 :Float64;
  urgent @3 :Bool;
}

struct Fill {
  symbol @0 :Text;
  cost @1 :Float64;
  lots @2 :Int64;
  accepted @3 :Bool;
}

struct Named {
  id @0 :Int64;
  name @1 :Text;
}

interface Lab {
  echo @0 (data :Data) -> (data :Data);
  quote @1 (order :Order) -> (fill :Fill);
  wait @2 (seconds :Float64) -> (named :Named);
}
