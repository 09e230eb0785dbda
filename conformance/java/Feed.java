import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedOperationType;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;

/** The change feed in both modes, pulled, and through the change feed processor with its leases. */
final class Feed {
  private final Suite suite;

  private Feed(Suite suite) {
    this.suite = suite;
  }

  public static void main(String[] arguments) {
    Suite suite = new Suite();
    Feed feed = new Feed(suite);
    suite.test("the latest versions come from the beginning, once, and go on", feed::latest);
    suite.test("all versions and deletes come in their order", feed::allVersions);
    suite.test("it goes on after a range was split", feed::split);
    suite.test("a processor sees every item, also after another took over", feed::processor);
    suite.test("so does one whose leases name keys", feed::processorByKeys);
    suite.test("a processor goes on after a range was split", feed::processorSplit);
    suite.test("a processor sees all versions and deletes", feed::processorOfVersions);
    suite.end();
  }

  private void latest() {
    for (int throughput : new int[] {400, Suite.THREE_RANGES}) {
      CosmosContainer container = suite.container(throughput);
      for (int n = 0; n < 20; n += 1) container.createItem(Suite.item("" + n, "key " + n, n));
      container.upsertItem(Suite.item("1", "key 1", 100));
      List<JsonNode> found = new ArrayList<>();
      FeedRange whole = FeedRange.forFullRange();
      var options = CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(whole);
      String token = drain(container, options.setMaxItemCount(3), found);
      Suite.equal(found.size(), 20);
      container.createItem(Suite.item("new", "new"));
      List<JsonNode> later = new ArrayList<>();
      drain(
          container,
          CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token),
          later);
      Suite.equal(later.stream().map(it -> it.get("id").asText()).toList(), List.of("new"));
    }
  }

  private void allVersions() {
    CosmosContainer container = withVersions();
    List<JsonNode> found = new ArrayList<>();
    var now = CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange());
    String token = drain(container, now.allVersionsAndDeletes(), found);
    Suite.equal(found.size(), 0);
    change(container);
    var later = CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token);
    drain(container, later.allVersionsAndDeletes(), found);
    List<String> kinds =
        found.stream().map(it -> it.get("metadata").get("operationType").asText()).toList();
    Suite.equal(kinds, List.of("create", "replace", "delete"));
  }

  private void split() {
    CosmosContainer container = suite.container(400);
    for (int n = 0; n < 20; n += 1) container.createItem(Suite.item("" + n, "key " + n));
    List<JsonNode> found = new ArrayList<>();
    FeedRange whole = FeedRange.forFullRange();
    var options =
        CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(whole).setMaxItemCount(4);
    FeedResponse<JsonNode> page =
        container.queryChangeFeed(options, JsonNode.class).iterableByPage().iterator().next();
    found.addAll(page.getResults());
    container.replaceThroughput(ThroughputProperties.createManualThroughput(11000));
    container.createItem(Suite.item("late", "late"));
    String token = page.getContinuationToken();
    drain(
        container,
        CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(token),
        found);
    Suite.equal(found.stream().map(it -> it.get("id").asText()).distinct().count(), 21L);
  }

  private void processor() throws Exception {
    Set<String> seen = ConcurrentHashMap.newKeySet();
    takeOver(
        seen,
        builder ->
            builder.handleChanges(
                changes -> changes.forEach(it -> seen.add(it.get("id").asText()))));
  }

  private void processorByKeys() throws Exception {
    Set<String> seen = ConcurrentHashMap.newKeySet();
    takeOver(
        seen,
        builder ->
            builder.handleLatestVersionChanges(
                changes -> changes.forEach(it -> seen.add(it.getCurrent().get("id").asText()))));
  }

  private void takeOver(Set<String> seen, Consumer<ChangeFeedProcessorBuilder> handle)
      throws Exception {
    CosmosContainer container = suite.container(Suite.THREE_RANGES);
    CosmosContainer leases = leases();
    for (int n = 0; n < 20; n += 1) container.createItem(Suite.item("first " + n, "key " + n));
    try (CosmosAsyncClient client = Suite.builder().buildAsyncClient()) {
      ChangeFeedProcessor one = start(client, container, leases, "one", true, handle);
      Suite.until(() -> seen.size() == 20);
      one.stop().block();
      for (int n = 0; n < 20; n += 1) container.createItem(Suite.item("second " + n, "key " + n));
      ChangeFeedProcessor two = start(client, container, leases, "two", true, handle);
      Suite.until(() -> seen.size() == 40);
      Suite.until(
          () -> two.getCurrentState().block().stream().allMatch(it -> it.getEstimatedLag() == 0));
      two.stop().block();
    }
  }

  private void processorSplit() throws Exception {
    CosmosContainer container = suite.container(400);
    Set<String> seen = ConcurrentHashMap.newKeySet();
    try (CosmosAsyncClient client = Suite.builder().buildAsyncClient()) {
      ChangeFeedProcessor processor =
          start(
              client,
              container,
              leases(),
              "one",
              true,
              builder ->
                  builder.handleChanges(
                      changes -> changes.forEach(it -> seen.add(it.get("id").asText()))));
      for (int n = 0; n < 10; n += 1) container.createItem(Suite.item("first " + n, "key " + n));
      Suite.until(() -> seen.size() == 10);
      container.replaceThroughput(ThroughputProperties.createManualThroughput(11000));
      for (int n = 0; n < 10; n += 1) container.createItem(Suite.item("second " + n, "key " + n));
      Suite.until(() -> seen.size() == 20);
      processor.stop().block();
    }
  }

  private void processorOfVersions() throws Exception {
    CosmosContainer container = withVersions();
    List<ChangeFeedOperationType> kinds = new CopyOnWriteArrayList<>();
    try (CosmosAsyncClient client = Suite.builder().buildAsyncClient()) {
      ChangeFeedProcessor processor =
          start(
              client,
              container,
              leases(),
              "one",
              false,
              builder ->
                  builder.handleAllVersionsAndDeletesChanges(
                      (List<ChangeFeedProcessorItem> changes) ->
                          changes.forEach(
                              it -> kinds.add(it.getChangeFeedMetaData().getOperationType()))));
      // It starts from now, and when that is it decides itself.
      Suite.until(
          () -> {
            container.upsertItem(Suite.item("probe", "probe"));
            return !kinds.isEmpty();
          });
      container.createItem(Suite.item("1", "a"));
      container.deleteItem("1", new PartitionKey("a"), null);
      Suite.until(() -> kinds.contains(ChangeFeedOperationType.DELETE));
      processor.stop().block();
    }
  }

  private ChangeFeedProcessor start(
      CosmosAsyncClient client,
      CosmosContainer container,
      CosmosContainer leases,
      String host,
      boolean fromBeginning,
      Consumer<ChangeFeedProcessorBuilder> handle) {
    var database = client.getDatabase(suite.database.getId());
    CosmosAsyncContainer feed = database.getContainer(container.getId());
    CosmosAsyncContainer lease = database.getContainer(leases.getId());
    var options =
        new ChangeFeedProcessorOptions()
            .setStartFromBeginning(fromBeginning)
            .setFeedPollDelay(Duration.ofMillis(200))
            .setLeaseAcquireInterval(Duration.ofSeconds(1))
            .setLeaseRenewInterval(Duration.ofSeconds(2))
            .setLeaseExpirationInterval(Duration.ofSeconds(10));
    var builder =
        new ChangeFeedProcessorBuilder()
            .hostName(host)
            .feedContainer(feed)
            .leaseContainer(lease)
            .options(options);
    handle.accept(builder);
    ChangeFeedProcessor processor = builder.buildChangeFeedProcessor();
    processor.start().block();
    return processor;
  }

  private CosmosContainer leases() {
    var properties = new CosmosContainerProperties(UUID.randomUUID().toString(), "/id");
    return suite.container(properties, 400);
  }

  private CosmosContainer withVersions() {
    var properties = new CosmosContainerProperties(UUID.randomUUID().toString(), "/pk");
    properties.setChangeFeedPolicy(
        ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(5)));
    return suite.container(properties, 400);
  }

  private static void change(CosmosContainer container) {
    container.createItem(Suite.item("1", "a", 1));
    container.upsertItem(Suite.item("1", "a", 2));
    container.deleteItem("1", new PartitionKey("a"), null);
  }

  /** Reads up to the first page without changes, and gives where to go on. */
  private static String drain(
      CosmosContainer container, CosmosChangeFeedRequestOptions options, List<JsonNode> found) {
    String token = null;
    for (FeedResponse<JsonNode> page :
        container.queryChangeFeed(options, JsonNode.class).iterableByPage()) {
      found.addAll(page.getResults());
      token = page.getContinuationToken();
      if (page.getResults().isEmpty()) break;
    }
    return token;
  }
}
