import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchItemRequestOptions;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;

/** Several operations in one request. */
final class Batches {
  private static final PartitionKey A = new PartitionKey("a");

  private final Suite suite;

  private Batches(Suite suite) {
    this.suite = suite;
  }

  public static void main(String[] arguments) {
    Suite suite = new Suite();
    Batches batches = new Batches(suite);
    suite.test("a batch is committed whole", batches::whole);
    suite.test("a batch that is refused changes nothing and says why", batches::refused);
    suite.test("a batch of more than a hundred operations is refused", batches::tooMany);
    suite.test("bulk requests go to the ranges of their keys", batches::bulk);
    suite.end();
  }

  private void whole() {
    CosmosContainer container = suite.container(400);
    container.createItem(Suite.item("old", "a", 1));
    container.createItem(Suite.item("gone", "a"));
    CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
    batch.createItemOperation(Suite.item("1", "a"));
    batch.upsertItemOperation(Suite.item("2", "a"));
    batch.replaceItemOperation("old", Suite.item("old", "a", 2));
    batch.patchItemOperation("old", CosmosPatchOperations.create().increment("/n", 3));
    batch.readItemOperation("old");
    batch.deleteItemOperation("gone");
    CosmosBatchResponse response = container.executeCosmosBatch(batch);
    Suite.equal(response.isSuccessStatusCode(), true);
    Suite.equal(codes(response), List.of(201, 201, 200, 200, 200, 204));
    Suite.equal(response.getResults().get(4).getItem(ObjectNode.class).get("n").asInt(), 5);
  }

  private void refused() throws Exception {
    CosmosContainer container = suite.container(400);
    container.createItem(Suite.item("1", "a"));
    CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
    batch.createItemOperation(Suite.item("2", "a"));
    batch.createItemOperation(Suite.item("1", "a"));
    batch.deleteItemOperation("1");
    CosmosBatchResponse response = container.executeCosmosBatch(batch);
    Suite.equal(response.getStatusCode(), 409);
    Suite.equal(codes(response), List.of(424, 409, 424));
    Suite.refused(() -> container.readItem("2", A, ObjectNode.class), 404);
    CosmosBatch stale = CosmosBatch.createCosmosBatch(A);
    var options = new CosmosBatchItemRequestOptions().setIfMatchETag("\"other\"");
    stale.replaceItemOperation("1", Suite.item("1", "a"), options);
    Suite.equal(codes(container.executeCosmosBatch(stale)), List.of(412));
  }

  private void tooMany() throws Exception {
    CosmosContainer container = suite.container(400);
    CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
    for (int n = 0; n < 101; n += 1) batch.createItemOperation(Suite.item("" + n, "a"));
    Suite.refused(() -> container.executeCosmosBatch(batch), 400);
  }

  private void bulk() {
    CosmosContainer container = suite.container(Suite.THREE_RANGES);
    List<CosmosItemOperation> operations = new ArrayList<>();
    for (int n = 0; n < 300; n += 1) {
      PartitionKey key = new PartitionKey("key " + n);
      operations.add(
          CosmosBulkOperations.getCreateItemOperation(Suite.item("" + n, "key " + n), key));
    }
    Suite.equal(statuses(container, operations).stream().filter(it -> it == 201).count(), 300L);
    PartitionKey one = new PartitionKey("key 1");
    List<CosmosItemOperation> mixed =
        List.of(
            CosmosBulkOperations.getCreateItemOperation(Suite.item("1", "key 1"), one),
            CosmosBulkOperations.getReadItemOperation("1", one),
            CosmosBulkOperations.getDeleteItemOperation("2", new PartitionKey("key 2")),
            CosmosBulkOperations.getUpsertItemOperation(
                Suite.item("3", "key 3"), new PartitionKey("key 3")),
            CosmosBulkOperations.getDeleteItemOperation("none", one));
    Suite.equal(
        statuses(container, mixed).stream().sorted().toList(), List.of(200, 200, 204, 404, 409));
  }

  private static List<Integer> codes(CosmosBatchResponse response) {
    return response.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).toList();
  }

  private static List<Integer> statuses(
      CosmosContainer container, List<CosmosItemOperation> operations) {
    List<Integer> found = new ArrayList<>();
    container
        .executeBulkOperations(operations)
        .forEach(it -> found.add(it.getResponse().getStatusCode()));
    return found;
  }
}
