package lab;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import io.grpc.ConnectivityState;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import nearcall_lab.LabGrpc;
import nearcall_lab.LabOuterClass.Fill;
import nearcall_lab.LabOuterClass.Named;
import nearcall_lab.LabOuterClass.Order;
import nearcall_lab.LabOuterClass.Pause;

/** Connects, makes timed calls, checks every reply. */
final class Client {
  private static final long MOST_SECRET = 1_000_000;

  /** Failed calls in a row: the connection is dead. */
  private static final int GIVE_UP_AFTER = 100;

  /** For a cell that ends by a number of calls. */
  private static final long COUNTED_LIMIT_NS = 120_000_000_000L;

  /** Times warmup_s; what the last one saw shows whether the times have settled. */
  private static final int WARM_UPS = 5;

  private static final Gson GSON = new Gson();

  /** The cell, as far as it matters here; the names are those of the lab. */
  record Work(String operation, double delay_s) {}

  record Mode(
      String kind, int connections, int outstanding, int client_processes, int calls, double seconds, double warmup_s) {}

  /** Whether a slot may make its next call, and when that was due; null if it may not. */
  interface Next {
    Long due(Slot slot);
  }

  private final ForkJoinPool pool = new ForkJoinPool(Runtime.getRuntime().availableProcessors());
  private final List<ManagedChannel> channels = new ArrayList<>();
  private final List<Slot> slots = new ArrayList<>();
  private final List<Long> bursts = new ArrayList<>();
  private Work work;
  private Mode mode;
  private int process;
  private int due;

  /** Calls that the server must have handled, in all cells. */
  private long requests;

  private long failed;

  static String nameOf(double seconds) {
    return "waited " + BigDecimal.valueOf(seconds).stripTrailingZeros().toPlainString() + " s";
  }

  private static int share(int total, int part, int parts) {
    return (total - part + parts - 1) / parts;
  }

  /** System.nanoTime() is CLOCK_MONOTONIC here. */
  private static long now() {
    return System.nanoTime();
  }

  /** Numbers that grow without an object for each. */
  static final class Stamps {
    private long[] values = new long[16];
    private int size;

    void add(long value) {
      if (size == values.length) {
        values = Arrays.copyOf(values, 2 * size);
      }
      values[size++] = value;
    }
  }

  /** One call at a time: the next begins when the reply to the one before has been checked. */
  final class Slot implements StreamObserver<Object> {
    private final LabGrpc.LabStub stub;
    private final int number;
    private final Map<String, Stamps> stamps = new HashMap<>();
    private final Map<String, Integer> errors = new HashMap<>();
    private final Set<Long> secrets = new TreeSet<>();
    private Stamps intended;
    private Stamps started;
    private Stamps done;
    private String firstError;
    private String wrong;
    private int made;
    private int row;
    private Next next;
    private CountDownLatch ended;
    private long dueNow;
    private long begun;
    private long replied;
    private Object argument;
    private Object reply;

    Slot(LabGrpc.LabStub stub, int number) {
      this.stub = stub;
      this.number = number;
      restart();
    }

    void restart() {
      stamps.put("intended", intended = new Stamps());
      stamps.put("started", started = new Stamps());
      stamps.put("done", done = new Stamps());
      errors.clear();
      secrets.clear();
      firstError = wrong = null;
      made = row = 0;
    }

    void run(Next next, CountDownLatch ended) {
      this.next = next;
      this.ended = ended;
      call();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void call() {
      Long at = wrong == null && row < GIVE_UP_AFTER ? next.due(this) : null;
      if (at == null) {
        ended.countDown();
        return;
      }
      dueNow = at;
      begun = now();
      if (work.operation.equals("wait")) {
        argument = null;
        stub.wait(Pause.newBuilder().setSeconds(work.delay_s).build(), (StreamObserver) this);
      } else {
        int one = made % 4 + 1;
        Order order =
            Order.newBuilder()
                .setSymbol("SYM" + one)
                .setQuantity(100 * one + 7)
                .setPrice(1.25 * one)
                .setUrgent(one % 2 == 0)
                .build();
        argument = order;
        stub.quote(order, (StreamObserver) this);
      }
    }

    @Override
    public void onNext(Object reply) {
      replied = now();
      this.reply = reply;
    }

    @Override
    public void onCompleted() {
      long secret = secretOf(reply);
      if (secret < 0 || secret > MOST_SECRET) {
        wrong = "wrong reply: " + reply.toString().replace('\n', ' ');
      } else {
        secrets.add(secret);
        intended.add(dueNow);
        started.add(begun);
        done.add(replied);
        row = 0;
      }
      made++;
      call();
    }

    @Override
    public void onError(Throwable error) {
      Status status = Status.fromThrowable(error);
      errors.merge(status.getCode().name(), 1, Integer::sum);
      if (firstError == null) {
        firstError = status.getCode() + ": " + status.getDescription();
      }
      row++;
      made++;
      call();
    }

    /** -1 where a value of the reply is not what it must be. */
    private long secretOf(Object reply) {
      if (reply instanceof Named named) {
        return named.getName().equals(nameOf(work.delay_s)) ? named.getId() - Math.round(work.delay_s * 1e6) : -1;
      }
      Fill fill = (Fill) reply;
      Order order = (Order) argument;
      boolean right =
          fill.getSymbol().equals(order.getSymbol())
              && fill.getCost() == order.getQuantity() * order.getPrice()
              && fill.getAccepted() != order.getUrgent();
      return right ? fill.getLots() - order.getQuantity() / 100 : -1;
    }
  }

  private void connect(String address, int connections) throws InterruptedException {
    for (int at = 0; at < connections; at++) {
      ManagedChannel channel =
          NettyChannelBuilder.forTarget(address, InsecureChannelCredentials.create()).executor(pool).build();
      channels.add(channel);
      for (long end = now() + 10_000_000_000L; ; ) {
        ConnectivityState state = channel.getState(true);
        if (state == ConnectivityState.READY) {
          break;
        }
        CountDownLatch changed = new CountDownLatch(1);
        channel.notifyWhenStateChanged(state, changed::countDown);
        if (!changed.await(end - now(), TimeUnit.NANOSECONDS)) {
          throw new IllegalStateException("no connection to " + address + " within 10 s");
        }
      }
    }
  }

  private byte[] prepare(JsonObject request, JsonObject told) throws InterruptedException {
    close();
    JsonObject cell = request.getAsJsonObject("cell");
    work = GSON.fromJson(cell.get("work"), Work.class);
    mode = GSON.fromJson(cell.get("mode"), Mode.class);
    process = request.get("process").getAsInt();
    int connections = share(mode.connections, process, mode.client_processes);
    // Further slots of a burst would have no calls to make.
    int most = mode.kind.equals("burst") ? share(mode.calls, 0, mode.connections) : mode.outstanding;
    connect(request.get("address").getAsString(), connections);
    for (int at = 0; at < connections * Math.min(mode.outstanding, most); at++) {
      slots.add(new Slot(LabGrpc.newStub(channels.get(at % connections)), at));
    }
    closed(connections, Long.MAX_VALUE, slot -> 1);
    for (Slot slot : slots.subList(0, connections)) {
      if (slot.firstError != null) {
        throw new IllegalStateException(slot.firstError);
      }
    }
    long first = slots.get(0).done.values[0] - slots.get(0).started.values[0];
    int warmed = 0;
    byte[] last = new byte[0];
    for (int part = 0; part < 2 && mode.warmup_s > 0; part++) {
      double length = mode.warmup_s * (part == 0 ? WARM_UPS - 1 : 1);
      closed(slots.size(), now() + (long) (length * 1e9), slot -> Integer.MAX_VALUE);
      last = columns(List.of("started", "done"));
      warmed += last.length / 16;
    }
    if (mode.warmup_s > 0 && warmed == 0) {
      throw new IllegalStateException(firstError());
    }
    told.addProperty("first_call_ns", first);
    told.addProperty("warmup_calls", warmed);
    told.addProperty("warmed_up", false);
    told.addProperty("slots", slots.size());
    return last;
  }

  /** Runs the first slots at once, and returns after the last call. */
  private void each(int count, Next next) throws InterruptedException {
    CountDownLatch ended = new CountDownLatch(count);
    for (Slot slot : slots.subList(0, count)) {
      slot.run(next, ended);
    }
    ended.await();
  }

  private void count() {
    for (Slot slot : slots) {
      requests += slot.done.size;
      failed += slot.errors.values().stream().mapToInt(Integer::intValue).sum();
      if (slot.wrong != null) {
        throw new IllegalStateException(slot.wrong);
      }
    }
  }

  interface Limit {
    int of(Slot slot);
  }

  /** Each slot calls again as soon as it has its reply, at least once. */
  private void closed(int count, long end, Limit most) throws InterruptedException {
    slots.forEach(Slot::restart);
    each(count, slot -> slot.made < most.of(slot) && (slot.made == 0 || now() < end) ? 0L : null);
    count();
  }

  /** Starts all calls at once; a further burst follows while there is time. */
  private void burst(long begin) throws InterruptedException {
    int calls = share(mode.calls, process, mode.client_processes);
    slots.forEach(Slot::restart);
    for (long due = begin; ; due = now()) {
      AtomicInteger taken = new AtomicInteger();
      long intended = due;
      each(slots.size(), slot -> taken.getAndIncrement() < calls ? intended : null);
      long end = now();
      bursts.addAll(List.of(due, end));
      this.due += calls;
      if (end >= begin + (long) (mode.seconds * 1e9) || mode.client_processes > 1) {
        break;
      }
    }
    count();
  }

  private void timed(long begin) throws InterruptedException {
    TimeUnit.NANOSECONDS.sleep(begin - now());
    if (mode.kind.equals("burst")) {
      burst(begin);
    } else if (mode.calls == 0) {
      closed(slots.size(), begin + (long) (mode.seconds * 1e9), slot -> Integer.MAX_VALUE);
    } else {
      int everybody = mode.connections * mode.outstanding;
      int before = process * slots.size();
      closed(slots.size(), begin + COUNTED_LIMIT_NS, slot -> share(mode.calls, before + slot.number, everybody));
    }
  }

  private String firstError() {
    return slots.stream().map(slot -> slot.firstError).filter(one -> one != null).findFirst().orElse("no call was done");
  }

  /** The stamps of all slots, one column after the other. */
  private byte[] columns(List<String> names) {
    int rows = slots.stream().mapToInt(slot -> slot.done.size).sum();
    ByteBuffer blob = ByteBuffer.allocate(8 * rows * names.size()).order(ByteOrder.LITTLE_ENDIAN);
    for (String name : names) {
      for (Slot slot : slots) {
        Stamps stamps = slot.stamps.get(name);
        for (int at = 0; at < stamps.size; at++) {
          blob.putLong(stamps.values[at]);
        }
      }
    }
    return blob.array();
  }

  private byte[] results(JsonObject told) {
    List<String> names = mode.kind.equals("burst") ? List.of("started", "done", "intended") : List.of("started", "done");
    Map<String, Integer> errors = new HashMap<>();
    Set<Long> secrets = new TreeSet<>();
    for (Slot slot : slots) {
      slot.errors.forEach((kind, count) -> errors.merge(kind, count, Integer::sum));
      secrets.addAll(slot.secrets);
    }
    byte[] blob = columns(names);
    told.add("columns", GSON.toJsonTree(names));
    told.addProperty("rows", blob.length / 8 / names.size());
    told.addProperty("requests", requests);
    told.addProperty("failed", failed);
    told.add("errors", GSON.toJsonTree(errors));
    told.addProperty("due", due);
    told.add("bursts", GSON.toJsonTree(bursts));
    told.add("secrets", GSON.toJsonTree(secrets));
    if (!errors.isEmpty()) {
      told.addProperty("first_error", firstError());
    }
    return blob;
  }

  private void close() {
    channels.forEach(ManagedChannel::shutdownNow);
    channels.clear();
    slots.clear();
    bursts.clear();
    due = 0;
  }

  static void drive(Main.Lab lab) throws Exception {
    Client client = new Client();
    lab.say("loaded", true);
    for (JsonObject request = lab.next(); request != null; request = lab.next()) {
      String asked = request.get("do").getAsString();
      JsonObject told = new JsonObject();
      byte[] blob = new byte[0];
      try {
        switch (asked) {
          case "prepare" -> {
            String kind = request.getAsJsonObject("cell").getAsJsonObject("mode").get("kind").getAsString();
            if (kind.equals("closed") || kind.equals("burst")) {
              blob = client.prepare(request, told);
            } else {
              told.addProperty("unsupported", "has no mode " + kind);
            }
          }
          case "go" -> {
            client.timed(request.get("begin_ns").getAsLong());
            told.addProperty("ran", true);
          }
          case "results" -> blob = client.results(told);
          case "stop" -> {
            client.close();
            lab.say("stopped", true);
            return;
          }
          default -> told.addProperty("unsupported", asked);
        }
      } catch (IllegalStateException failure) {
        told = new JsonObject();
        told.addProperty("error", failure.getMessage());
        blob = new byte[0];
      }
      lab.say(told, blob);
    }
  }
}
