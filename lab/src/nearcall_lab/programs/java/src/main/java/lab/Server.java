package lab;

import com.google.gson.JsonObject;
import io.grpc.InsecureServerCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import nearcall_lab.LabGrpc;
import nearcall_lab.LabOuterClass.Fill;
import nearcall_lab.LabOuterClass.Named;
import nearcall_lab.LabOuterClass.Order;
import nearcall_lab.LabOuterClass.Pause;

final class Server extends LabGrpc.LabImplBase {
  private final AtomicLong served = new AtomicLong();
  private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
  private volatile long secret;

  @Override
  public void quote(Order order, StreamObserver<Fill> reply) {
    served.incrementAndGet();
    reply.onNext(
        Fill.newBuilder()
            .setSymbol(order.getSymbol())
            .setCost(order.getQuantity() * order.getPrice())
            .setLots(order.getQuantity() / 100 + secret)
            .setAccepted(!order.getUrgent())
            .build());
    reply.onCompleted();
  }

  @Override
  public void wait(Pause pause, StreamObserver<Named> reply) {
    served.incrementAndGet();
    double seconds = pause.getSeconds();
    if (seconds > 0) {
      timer.schedule(() -> waited(seconds, reply), Math.round(seconds * 1e9), TimeUnit.NANOSECONDS);
    } else {
      waited(seconds, reply);
    }
  }

  private void waited(double seconds, StreamObserver<Named> reply) {
    int id = (int) (Math.round(seconds * 1e6) + secret);
    reply.onNext(Named.newBuilder().setId(id).setName(Client.nameOf(seconds)).build());
    reply.onCompleted();
  }

  static void serve(Main.Lab lab) throws Exception {
    Server service = new Server();
    var address = new InetSocketAddress("127.0.0.1", 0);
    io.grpc.Server server =
        NettyServerBuilder.forAddress(address, InsecureServerCredentials.create())
            .executor(new ForkJoinPool(Runtime.getRuntime().availableProcessors()))
            .addService(service)
            .build()
            .start();
    lab.say("ready", "127.0.0.1:" + server.getPort());
    for (JsonObject request = lab.next(); request != null; request = lab.next()) {
      String asked = request.get("do").getAsString();
      switch (asked) {
        case "stop" -> {
          return;
        }
        case "secret" -> {
          service.secret = request.get("value").getAsLong();
          lab.say("secret", true);
        }
        case "served" -> lab.say("served", service.served.get());
        default -> lab.say("unsupported", asked);
      }
    }
  }
}
