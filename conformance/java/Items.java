import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** Containers, and their items one by one. */
final class Items {
  private static final PartitionKey A = new PartitionKey("a");

  private final Suite suite;

  private Items(Suite suite) {
    this.suite = suite;
  }

  public static void main(String[] arguments) {
    Suite suite = new Suite();
    Items items = new Items(suite);
    suite.test("containers are read, replaced, listed and deleted", items::containers);
    suite.test("throughput is read and replaced, and raising it divides", items::throughput);
    suite.test("items are created, read, replaced, upserted and deleted", items::items);
    suite.test("conflicts and missing items have their codes", items::conflicts);
    suite.test("a condition that does not hold is refused with 412", items::conditions);
    suite.test("patches change what they name", items::patches);
    suite.test("items expire", items::expiry);
    suite.test("hierarchical keys name items and the partitions above", items::hierarchy);
    suite.test("many items are read at once", items::many);
    suite.test("all items of a key are deleted together", items::deleteByKey);
    suite.test("ids may have any characters that Cosmos DB allows", items::names);
    suite.end();
  }

  private void containers() throws Exception {
    CosmosContainer container = suite.container(400);
    CosmosContainerProperties properties = container.read().getProperties();
    Suite.equal(properties.getPartitionKeyDefinition().getPaths(), List.of("/pk"));
    properties.setDefaultTimeToLiveInSeconds(100);
    Suite.equal(container.replace(properties).getProperties().getDefaultTimeToLiveInSeconds(), 100);
    long found =
        suite.database.readAllContainers().stream()
            .filter(it -> it.getId().equals(container.getId()))
            .count();
    Suite.equal(found, 1L);
    Suite.refused(() -> suite.database.createContainer(properties), 409);
    container.delete();
    Suite.refused(container::read, 404);
  }

  private void throughput() {
    CosmosContainer container = suite.container(400);
    Suite.equal(container.readThroughput().getProperties().getManualThroughput(), 400);
    Suite.equal(container.getFeedRanges().size(), 1);
    container.replaceThroughput(ThroughputProperties.createManualThroughput(11000));
    Suite.equal(container.readThroughput().getProperties().getManualThroughput(), 11000);
    Suite.equal(container.getFeedRanges().size(), 2);
    CosmosContainerProperties properties = new CosmosContainerProperties("auto", "/pk");
    suite.database.createContainer(
        properties, ThroughputProperties.createAutoscaledThroughput(4000));
    ThroughputProperties auto =
        suite.database.getContainer("auto").readThroughput().getProperties();
    Suite.equal(auto.getAutoscaleMaxThroughput(), 4000);
  }

  private void items() throws Exception {
    CosmosContainer container = suite.container(400);
    var created = container.createItem(Suite.item("1", "a", 1));
    Suite.equal(created.getStatusCode(), 201);
    Suite.equal(created.getItem().get("_etag").asText(), created.getETag());
    Suite.equal(read(container, "1").get("n").asInt(), 1);
    container.replaceItem(Suite.item("1", "a", 2), "1", A, null);
    Suite.equal(container.upsertItem(Suite.item("1", "a", 3)).getStatusCode(), 200);
    Suite.equal(container.upsertItem(Suite.item("2", "a", 4)).getStatusCode(), 201);
    Suite.equal(read(container, "1").get("n").asInt(), 3);
    Suite.equal(container.deleteItem("1", A, null).getStatusCode(), 204);
    Suite.refused(() -> read(container, "1"), 404);
    var quiet = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
    Suite.equal(container.createItem(Suite.item("3", "a"), A, quiet).getItem(), null);
  }

  private void conflicts() throws Exception {
    CosmosContainer container = suite.container(400);
    container.createItem(Suite.item("1", "a"));
    Suite.refused(() -> container.createItem(Suite.item("1", "a")), 409);
    Suite.refused(() -> container.deleteItem("2", A, null), 404);
    Suite.refused(() -> container.replaceItem(Suite.item("2", "a"), "2", A, null), 404);
  }

  private void conditions() throws Exception {
    CosmosContainer container = suite.container(400);
    String first = container.createItem(Suite.item("1", "a", 1)).getETag();
    container.upsertItem(Suite.item("1", "a", 2));
    var stale = new CosmosItemRequestOptions().setIfMatchETag(first);
    Suite.refused(() -> container.replaceItem(Suite.item("1", "a", 3), "1", A, stale), 412);
    Suite.refused(() -> container.deleteItem("1", A, stale), 412);
    String second = container.readItem("1", A, ObjectNode.class).getETag();
    var current = new CosmosItemRequestOptions().setIfMatchETag(second);
    container.replaceItem(Suite.item("1", "a", 4), "1", A, current);
    String third = container.readItem("1", A, ObjectNode.class).getETag();
    var unchanged = new CosmosItemRequestOptions().setIfNoneMatchETag(third);
    Suite.equal(container.readItem("1", A, unchanged, ObjectNode.class).getStatusCode(), 304);
  }

  private void patches() throws Exception {
    CosmosContainer container = suite.container(400);
    container.createItem(Suite.item("1", "a", 1));
    var operations =
        CosmosPatchOperations.create()
            .set("/name", "x")
            .increment("/n", 4)
            .add("/list", List.of(1))
            .add("/list/-", 2);
    ObjectNode patched = container.patchItem("1", A, operations, ObjectNode.class).getItem();
    Suite.equal(patched.get("n").asInt(), 5);
    Suite.equal(patched.get("list").toString(), "[1,2]");
    var options = new CosmosPatchItemRequestOptions();
    options.setFilterPredicate("from c where c.n = 6");
    var set = CosmosPatchOperations.create().set("/n", 9);
    Suite.refused(() -> container.patchItem("1", A, set, options, ObjectNode.class), 412);
  }

  private void expiry() throws Exception {
    var properties = new CosmosContainerProperties(UUID.randomUUID().toString(), "/pk");
    properties.setDefaultTimeToLiveInSeconds(-1);
    CosmosContainer container = suite.container(properties, 400);
    container.createItem(Suite.item("1", "a").put("ttl", 1));
    container.createItem(Suite.item("2", "a"));
    Suite.until(
        () -> {
          List<String> found = new ArrayList<>();
          container
              .readAllItems(A, ObjectNode.class)
              .forEach(it -> found.add(it.get("id").asText()));
          return found.equals(List.of("2"));
        });
    container.createItem(Suite.item("1", "a"));
  }

  private void hierarchy() throws Exception {
    var definition = new PartitionKeyDefinition();
    definition.setPaths(List.of("/tenant", "/user"));
    definition.setKind(PartitionKind.MULTI_HASH);
    definition.setVersion(PartitionKeyDefinitionVersion.V2);
    var properties = new CosmosContainerProperties(UUID.randomUUID().toString(), definition);
    CosmosContainer container = suite.container(properties, Suite.THREE_RANGES);
    for (String user : List.of("x", "y")) {
      container.createItem(Suite.item("1", "").put("tenant", "a").put("user", user));
      container.createItem(Suite.item("1", "").put("tenant", "b").put("user", user));
    }
    PartitionKey key = new PartitionKeyBuilder().add("a").add("x").build();
    ObjectNode read = container.readItem("1", key, ObjectNode.class).getItem();
    Suite.equal(read.get("user").asText(), "x");
    var options = new CosmosQueryRequestOptions();
    options.setPartitionKey(new PartitionKeyBuilder().add("b").build());
    var rows =
        container.queryItems("SELECT VALUE c.user FROM c ORDER BY c.user", options, String.class);
    Suite.equal(rows.stream().toList(), List.of("x", "y"));
  }

  private void many() throws Exception {
    CosmosContainer container = suite.container(Suite.THREE_RANGES);
    List<CosmosItemIdentity> wanted = new ArrayList<>();
    for (int n = 0; n < 40; n += 1) {
      container.createItem(Suite.item("id " + n, "key " + n, n));
      wanted.add(new CosmosItemIdentity(new PartitionKey("key " + n), "id " + n));
    }
    wanted.add(new CosmosItemIdentity(A, "none"));
    Suite.equal(container.readMany(wanted, ObjectNode.class).getResults().size(), 40);
  }

  private void deleteByKey() throws Exception {
    CosmosContainer container = suite.container(400);
    for (int n = 0; n < 5; n += 1) container.createItem(Suite.item("" + n, "a"));
    container.createItem(Suite.item("1", "b"));
    container.deleteAllItemsByPartitionKey(A, new CosmosItemRequestOptions());
    Suite.equal(container.readAllItems(A, ObjectNode.class).stream().count(), 0L);
  }

  private void names() {
    CosmosContainer container = suite.container(400);
    for (String id : List.of("ü é", "a b+c=d&e%f", "雪", "a..b", "'\"`", "colls")) {
      container.createItem(Suite.item(id, id));
      var key = new PartitionKey(id);
      Suite.equal(container.readItem(id, key, ObjectNode.class).getItem().get("id").asText(), id);
      Suite.equal(container.deleteItem(id, key, null).getStatusCode(), 204);
    }
  }

  private static ObjectNode read(CosmosContainer container, String id) {
    return container.readItem(id, A, ObjectNode.class).getItem();
  }
}
