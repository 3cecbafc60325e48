package example;

import example.v1.CalculatorGrpc;
import example.v1.CalculatorOuterClass.CalculatorAddRequest;
import example.v1.CalculatorOuterClass.CalculatorCountdownRequest;
import example.v1.CalculatorOuterClass.CalculatorDivideRequest;
import example.v1.CalculatorOuterClass.CalculatorHelloRequest;
import example.v1.CalculatorOuterClass.CalculatorTotalRequest;
import example.v1.CalculatorOuterClass.CalculatorTotalResponse;
import example.v1.CalculatorOuterClass.CalculatorTotalsRequest;
import example.v1.CalculatorOuterClass.CalculatorTotalsResponse;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** The client of a calculator in any language: Client [host:port]. */
public final class Client {
  private static final Metadata.Key<String> CALLER = Metadata.Key.of("caller", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> SERVED_BY = Metadata.Key.of("served-by", Metadata.ASCII_STRING_MARSHALLER);

  public static void main(String[] args) throws Exception {
    String target = args.length > 0 ? args[0] : "127.0.0.1:7002";
    ManagedChannel channel = Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
    try {
      run(channel);
    } finally {
      channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    }
  }

  private static void run(ManagedChannel channel) throws Exception {
    var calc = CalculatorGrpc.newBlockingStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);
    var async = CalculatorGrpc.newStub(channel).withDeadlineAfter(10, TimeUnit.SECONDS);

    System.out.println("1 + 2 = " + calc.add(CalculatorAddRequest.newBuilder().setA(1).setB(2).build()).getValue());
    // Without b, which has a default.
    System.out.println("2 + 5 = " + calc.add(CalculatorAddRequest.newBuilder().setA(2).build()).getValue());

    System.out.print("counting:");
    calc.countdown(CalculatorCountdownRequest.newBuilder().setN(3).build())
        .forEachRemaining(number -> System.out.print(" " + number.getValue()));
    System.out.println();

    var total = new CompletableFuture<Long>();
    var adding = async.total(new Replies<CalculatorTotalResponse>(total) {
      @Override
      public void onNext(CalculatorTotalResponse reply) {
        total.complete(reply.getValue());
      }
    });
    for (long x = 0; x < 100; x++) {
      adding.onNext(CalculatorTotalRequest.newBuilder().setXs(x).build());
    }
    adding.onCompleted();
    System.out.println("total: " + total.get());

    BlockingQueue<Long> soFar = new LinkedBlockingQueue<>();
    var end = new CompletableFuture<Long>();
    var totals = async.totals(new Replies<CalculatorTotalsResponse>(end) {
      @Override
      public void onNext(CalculatorTotalsResponse reply) {
        soFar.add(reply.getValue());
      }
    });
    System.out.print("totals:");
    for (long x = 1; x <= 3; x++) {
      totals.onNext(CalculatorTotalsRequest.newBuilder().setXs(x).build());
      System.out.print(" " + soFar.poll(10, TimeUnit.SECONDS)); // one for each, at once
    }
    totals.onCompleted();
    end.get();
    System.out.println();

    Metadata sent = new Metadata();
    sent.put(CALLER, "Java");
    var trailer = new AtomicReference<Metadata>();
    var greeting = calc.withInterceptors(
        MetadataUtils.newAttachHeadersInterceptor(sent),
        MetadataUtils.newCaptureMetadataInterceptor(new AtomicReference<>(), trailer));
    System.out.println(greeting.hello(CalculatorHelloRequest.getDefaultInstance()).getValue());
    System.out.println("served by " + trailer.get().get(SERVED_BY));

    try {
      calc.divide(CalculatorDivideRequest.newBuilder().setA(1).setB(0).build());
    } catch (StatusRuntimeException error) {
      System.out.println(error.getStatus().getCode() + " " + error.getStatus().getDescription());
    }

    try {
      var slow = CalculatorCountdownRequest.newBuilder().setN(1000).setPause(1).build();
      calc.withDeadlineAfter(200, TimeUnit.MILLISECONDS).countdown(slow).next();
    } catch (StatusRuntimeException error) {
      System.out.println(error.getStatus().getCode());
    }

    try (Context.CancellableContext enough = Context.current().withCancellation()) {
      enough.run(() -> {
        var numbers = calc.countdown(CalculatorCountdownRequest.newBuilder().setN(1_000_000).build());
        System.out.println(numbers.next().getValue() + " " + numbers.next().getValue() + " and no more");
      });
    }
  }

  /** What comes back of a call whose end is waited for elsewhere. */
  private abstract static class Replies<T> implements StreamObserver<T> {
    private final CompletableFuture<Long> end;

    Replies(CompletableFuture<Long> end) {
      this.end = end;
    }

    @Override
    public void onError(Throwable error) {
      end.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      end.complete(null);
    }
  }

  private Client() {}
}
