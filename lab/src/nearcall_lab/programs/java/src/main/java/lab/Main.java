package lab;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** One side of the lab's gRPC service in Java: Main server|client CONFIG. Speaks the lab's line protocol. */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    JsonObject config = JsonParser.parseString(arguments[1]).getAsJsonObject();
    Lab lab = new Lab(descriptor(config, "read_fd"), descriptor(config, "write_fd"));
    if (arguments[0].equals("server")) {
      Server.serve(lab);
    } else {
      Client.drive(lab);
    }
    System.exit(0);
  }

  /** Java has no public way to take up a descriptor that the parent opened, and one of them is a socket. */
  private static FileDescriptor descriptor(JsonObject config, String name) throws ReflectiveOperationException {
    var made = FileDescriptor.class.getDeclaredConstructor(int.class);
    made.setAccessible(true);
    return made.newInstance(config.get(name).getAsInt());
  }

  /** The lab's requests and this program's answers. */
  static final class Lab {
    private final BufferedReader requests;
    private final FileOutputStream answers;

    Lab(FileDescriptor requests, FileDescriptor answers) {
      var bytes = new InputStreamReader(new FileInputStream(requests), StandardCharsets.UTF_8);
      this.requests = new BufferedReader(bytes);
      this.answers = new FileOutputStream(answers);
    }

    /** The next request; null when the lab is gone. */
    JsonObject next() throws IOException {
      String line = requests.readLine();
      return line == null ? null : JsonParser.parseString(line).getAsJsonObject();
    }

    void say(JsonObject message) throws IOException {
      say(message, new byte[0]);
    }

    /** Sends an answer and the blob that follows it. */
    void say(JsonObject message, byte[] blob) throws IOException {
      if (blob.length > 0) {
        message.addProperty("blob", blob.length);
      }
      answers.write((message + "\n").getBytes(StandardCharsets.UTF_8));
      answers.write(blob);
    }

    void say(String key, Object value) throws IOException {
      JsonObject message = new JsonObject();
      if (value instanceof Number number) {
        message.addProperty(key, number);
      } else if (value instanceof Boolean truth) {
        message.addProperty(key, truth);
      } else {
        message.addProperty(key, value.toString());
      }
      say(message);
    }
  }
}
