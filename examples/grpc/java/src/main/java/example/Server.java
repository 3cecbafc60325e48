package example;

import example.v1.CalculatorGrpc.CalculatorImplBase;
import example.v1.CalculatorOuterClass.CalculatorAddRequest;
import example.v1.CalculatorOuterClass.CalculatorAddResponse;
import example.v1.CalculatorOuterClass.CalculatorCountdownRequest;
import example.v1.CalculatorOuterClass.CalculatorCountdownResponse;
import example.v1.CalculatorOuterClass.CalculatorDivideRequest;
import example.v1.CalculatorOuterClass.CalculatorDivideResponse;
import example.v1.CalculatorOuterClass.CalculatorHelloRequest;
import example.v1.CalculatorOuterClass.CalculatorHelloResponse;
import example.v1.CalculatorOuterClass.CalculatorTotalRequest;
import example.v1.CalculatorOuterClass.CalculatorTotalResponse;
import example.v1.CalculatorOuterClass.CalculatorTotalsRequest;
import example.v1.CalculatorOuterClass.CalculatorTotalsResponse;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;

/** The calculator in Java: Server HOST:PORT. */
public final class Server extends CalculatorImplBase {
  private static final Metadata.Key<String> CALLER = Metadata.Key.of("caller", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> SERVED_BY = Metadata.Key.of("served-by", Metadata.ASCII_STRING_MARSHALLER);
  private static final Context.Key<String> WHO = Context.keyWithDefault("who", "stranger");

  @Override
  public void add(CalculatorAddRequest in, StreamObserver<CalculatorAddResponse> out) {
    long b = in.hasB() ? in.getB() : 5; // the default, which is not in the .proto
    out.onNext(CalculatorAddResponse.newBuilder().setValue(in.getA() + b).build());
    out.onCompleted();
  }

  @Override
  public void divide(CalculatorDivideRequest in, StreamObserver<CalculatorDivideResponse> out) {
    if (in.getB() == 0) {
      out.onError(Status.INVALID_ARGUMENT.withDescription("b is zero").asRuntimeException());
      return;
    }
    out.onNext(CalculatorDivideResponse.newBuilder().setValue(in.getA() / in.getB()).build());
    out.onCompleted();
  }

  @Override
  public void countdown(CalculatorCountdownRequest in, StreamObserver<CalculatorCountdownResponse> out) {
    var call = (ServerCallStreamObserver<CalculatorCountdownResponse>) out;
    call.setOnCancelHandler(() -> {}); // from here on, a client that is gone is no exception
    long[] next = {in.getN()};
    // Called whenever the client has room for more.
    call.setOnReadyHandler(() -> {
      while (call.isReady() && !call.isCancelled() && next[0] > 0) {
        sleep(in.getPause());
        call.onNext(CalculatorCountdownResponse.newBuilder().setValue(next[0]--).build());
      }
      if (next[0] == 0) {
        next[0] = -1;
        call.onCompleted();
      }
    });
  }

  @Override
  public StreamObserver<CalculatorTotalRequest> total(StreamObserver<CalculatorTotalResponse> out) {
    return new Items<>(out) {
      private long total;

      @Override
      public void onNext(CalculatorTotalRequest in) {
        total += in.getXs();
      }

      @Override
      public void onCompleted() {
        out.onNext(CalculatorTotalResponse.newBuilder().setValue(total).build());
        out.onCompleted();
      }
    };
  }

  @Override
  public StreamObserver<CalculatorTotalsRequest> totals(StreamObserver<CalculatorTotalsResponse> out) {
    return new Items<>(out) {
      private long total;

      @Override
      public void onNext(CalculatorTotalsRequest in) {
        total += in.getXs();
        out.onNext(CalculatorTotalsResponse.newBuilder().setValue(total).build());
      }

      @Override
      public void onCompleted() {
        out.onCompleted();
      }
    };
  }

  @Override
  public void hello(CalculatorHelloRequest in, StreamObserver<CalculatorHelloResponse> out) {
    out.onNext(CalculatorHelloResponse.newBuilder().setValue("hello, " + WHO.get()).build());
    out.onCompleted();
  }

  /** A stream of the client's; one that breaks off is nothing to answer. */
  private abstract static class Items<I, O> implements StreamObserver<I> {
    protected final StreamObserver<O> out;

    Items(StreamObserver<O> out) {
      this.out = out;
    }

    @Override
    public void onError(Throwable error) {}
  }

  /** Metadata is for interceptors: this one hands the caller's name on, and says who has served. */
  private static final class Names implements ServerInterceptor {
    @Override
    public <I, O> ServerCall.Listener<I> interceptCall(
        ServerCall<I, O> call, Metadata sent, ServerCallHandler<I, O> next) {
      var named = new SimpleForwardingServerCall<I, O>(call) {
        @Override
        public void close(Status status, Metadata trailer) {
          trailer.put(SERVED_BY, "Java");
          super.close(status, trailer);
        }
      };
      Context context = Context.current();
      if (sent.containsKey(CALLER)) {
        context = context.withValue(WHO, sent.get(CALLER));
      }
      return Contexts.interceptCall(context, named, sent, next);
    }
  }

  private static void sleep(double seconds) {
    try {
      Thread.sleep((long) (1000 * seconds));
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  public static void main(String[] args) throws Exception {
    String[] place = args[0].split(":");
    var address = new InetSocketAddress(place[0], Integer.parseInt(place[1]));
    NettyServerBuilder.forAddress(address, InsecureServerCredentials.create())
        .addService(new Server())
        .intercept(new Names())
        .build()
        .start()
        .awaitTermination();
  }

  private Server() {}
}
