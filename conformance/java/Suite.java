import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;

/** What all files share: a client, a database of their own, and how tests are run and told of. */
final class Suite {
  /** Enough for three ranges, so that queries have something to merge. */
  static final int THREE_RANGES = 18000;

  private static final ObjectMapper JSON = new ObjectMapper();

  final CosmosDatabase database;
  private final CosmosClient client;
  private int failed;

  /** A test. */
  interface Test {
    void run() throws Exception;
  }

  Suite() {
    client = builder().buildClient();
    String id = "java-" + UUID.randomUUID();
    client.createDatabase(id);
    database = client.getDatabase(id);
  }

  /** Gateway mode: the other one speaks to replicas, which are not served. */
  static CosmosClientBuilder builder() {
    return new CosmosClientBuilder()
        .endpoint(System.getenv("ACCOUNT_HOST"))
        .key(System.getenv("ACCOUNT_KEY"))
        .gatewayMode()
        .contentResponseOnWriteEnabled(true);
  }

  /** Runs a test and says how it went, in the words of the Test Anything Protocol. */
  void test(String name, Test test) {
    try {
      test.run();
      System.out.println("ok - " + name);
    } catch (Throwable error) {
      failed += 1;
      System.out.println("not ok - " + name);
      error.printStackTrace(System.out);
    }
  }

  /** Deletes the database and ends the program. */
  void end() {
    database.delete();
    client.close();
    System.exit(failed == 0 ? 0 : 1);
  }

  /** A container partitioned by `/pk`. */
  CosmosContainer container(int throughput) {
    return container(
        new CosmosContainerProperties(UUID.randomUUID().toString(), "/pk"), throughput);
  }

  CosmosContainer container(CosmosContainerProperties properties, int throughput) {
    database.createContainer(properties, ThroughputProperties.createManualThroughput(throughput));
    return database.getContainer(properties.getId());
  }

  static ObjectNode item(String id, String key) {
    return JSON.createObjectNode().put("id", id).put("pk", key);
  }

  static ObjectNode item(String id, String key, int number) {
    return item(id, key).put("n", number);
  }

  static void equal(Object found, Object expected) {
    if (!Objects.equals(found, expected)) {
      throw new AssertionError("found " + found + ", expected " + expected);
    }
  }

  /** Calls what has to be refused with one of these statuses. */
  static void refused(Callable<?> call, Integer... statuses) throws Exception {
    try {
      call.call();
    } catch (CosmosException error) {
      if (!List.of(statuses).contains(error.getStatusCode())) throw error;
      return;
    }
    throw new AssertionError("it was not refused");
  }

  /** Repeats what has to become true, and fails if it does not within a minute. */
  static void until(Callable<Boolean> condition) throws Exception {
    for (int tries = 0; tries < 600; tries += 1) {
      if (condition.call()) return;
      Thread.sleep(100);
    }
    throw new AssertionError("it did not become true");
  }
}
