import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.IntStream;

/** Queries over one range and over several, which the SDK merges. */
final class Queries {
  private final List<CosmosContainer> containers;

  private Queries(Suite suite) {
    containers = List.of(suite.container(400), suite.container(Suite.THREE_RANGES));
    for (CosmosContainer container : containers) {
      for (int n = 0; n < 60; n += 1) {
        ObjectNode item = Suite.item("" + n, "p" + n % 10, n).put("group", n % 3);
        item.putArray("tags").add("t" + n % 2).add("all");
        container.createItem(item);
      }
    }
  }

  public static void main(String[] arguments) {
    Suite suite = new Suite();
    Queries queries = new Queries(suite);
    suite.test("filters with parameters", queries::filters);
    suite.test("one partition", queries::onePartition);
    suite.test("order", queries::order);
    suite.test("limits", queries::limits);
    suite.test("limits by a parameter", queries::parametrisedLimits);
    suite.test("aggregates", queries::aggregates);
    suite.test("groups", queries::groups);
    suite.test("values that are there once", queries::distinct);
    suite.test("joins", queries::joins);
    suite.test("feed ranges", queries::feedRanges);
    suite.test("pages go on from their continuations", queries::continuations);
    suite.end();
  }

  private void filters() {
    var query =
        new SqlQuerySpec(
            "SELECT VALUE c.n FROM c WHERE @n <= c.n AND ARRAY_CONTAINS(c.tags, @tag)",
            new SqlParameter("@n", 57),
            new SqlParameter("@tag", "t1"));
    for (CosmosContainer container : containers) {
      List<Integer> found = rows(container, query, new CosmosQueryRequestOptions(), Integer.class);
      Suite.equal(found.stream().sorted().toList(), List.of(57, 59));
    }
  }

  private void onePartition() {
    var options = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("p4"));
    for (CosmosContainer container : containers) {
      var query = new SqlQuerySpec("SELECT VALUE c.n FROM c WHERE c.n < 30 ORDER BY c.n");
      Suite.equal(rows(container, query, options, Integer.class), List.of(4, 14, 24));
    }
  }

  private void order() {
    check("SELECT VALUE c.n FROM c ORDER BY c.n", numbers(0, 60));
    List<Integer> down = new ArrayList<>(numbers(0, 60));
    Collections.reverse(down);
    check("SELECT VALUE c.n FROM c ORDER BY c.n DESC", down);
  }

  private void limits() {
    check("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", numbers(0, 5));
    check("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 15", numbers(10, 25));
  }

  private void parametrisedLimits() {
    var query =
        new SqlQuerySpec(
            "SELECT TOP @Top * FROM c WHERE STARTSWITH(c.id, @start) AND c.x <> null",
            new SqlParameter("@Top", 3),
            new SqlParameter("@start", "1"));
    for (CosmosContainer container : containers) {
      var options = new CosmosQueryRequestOptions();
      Suite.equal(rows(container, query, options, ObjectNode.class).size(), 0);
    }
    var some =
        new SqlQuerySpec("SELECT TOP @Top * FROM c WHERE c.n <> null", new SqlParameter("@Top", 3));
    for (CosmosContainer container : containers) {
      Suite.equal(
          rows(container, some, new CosmosQueryRequestOptions(), ObjectNode.class).size(), 3);
    }
  }

  private void aggregates() {
    aggregate("COUNT(1)", 60.0);
    aggregate("SUM(c.n)", 1770.0);
    aggregate("MIN(c.n)", 0.0);
    aggregate("MAX(c.n)", 59.0);
    aggregate("AVG(c.n)", 29.5);
    aggregate("COUNTIF(c.n < 9)", 9.0);
  }

  private void aggregate(String expression, double expected) {
    for (CosmosContainer container : containers) {
      var query = new SqlQuerySpec("SELECT VALUE " + expression + " FROM c");
      var options = new CosmosQueryRequestOptions();
      Suite.equal(rows(container, query, options, Double.class), List.of(expected));
    }
  }

  private void groups() {
    var query =
        new SqlQuerySpec(
            "SELECT c.group, COUNT(1) AS count, SUM(c.n) AS sum FROM c GROUP BY c.group");
    for (CosmosContainer container : containers) {
      List<ObjectNode> found =
          rows(container, query, new CosmosQueryRequestOptions(), ObjectNode.class);
      List<String> texts =
          found.stream()
              .map(
                  it ->
                      it.get("group") + " " + it.get("count").asInt() + " " + it.get("sum").asInt())
              .sorted()
              .toList();
      Suite.equal(texts, List.of("0 20 570", "1 20 590", "2 20 610"));
      var values = new SqlQuerySpec("SELECT VALUE c.group FROM c GROUP BY c.group");
      var options = new CosmosQueryRequestOptions();
      List<Integer> groups = rows(container, values, options, Integer.class);
      Suite.equal(groups.stream().sorted().toList(), List.of(0, 1, 2));
    }
  }

  private void distinct() {
    check("SELECT DISTINCT VALUE c.group FROM c ORDER BY c.group", List.of(0, 1, 2));
    for (CosmosContainer container : containers) {
      var query = new SqlQuerySpec("SELECT DISTINCT VALUE c.group FROM c");
      List<Integer> found = rows(container, query, new CosmosQueryRequestOptions(), Integer.class);
      Suite.equal(found.stream().sorted().toList(), List.of(0, 1, 2));
      for (String counted :
          List.of(
              "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.group FROM c)",
              "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.group FROM c)",
              "SELECT VALUE COUNT(g) FROM (SELECT DISTINCT VALUE c.group FROM c) AS g")) {
        var options = new CosmosQueryRequestOptions();
        Suite.equal(
            rows(container, new SqlQuerySpec(counted), options, Integer.class), List.of(3));
      }
    }
  }

  private void joins() {
    var query = new SqlQuerySpec("SELECT c.n, t AS tag FROM c JOIN t IN c.tags WHERE c.n < 2");
    for (CosmosContainer container : containers) {
      List<ObjectNode> found =
          rows(container, query, new CosmosQueryRequestOptions(), ObjectNode.class);
      List<String> texts =
          found.stream().map(it -> it.get("n") + " " + it.get("tag").asText()).sorted().toList();
      Suite.equal(texts, List.of("0 all", "0 t0", "1 all", "1 t1"));
    }
  }

  private void feedRanges() {
    for (CosmosContainer container : containers) {
      int found = 0;
      for (FeedRange range : container.getFeedRanges()) {
        var options = new CosmosQueryRequestOptions().setFeedRange(range);
        var query = new SqlQuerySpec("SELECT * FROM c");
        found += rows(container, query, options, JsonNode.class).size();
      }
      Suite.equal(found, 60);
    }
  }

  private void continuations() {
    // From a value down, and over several, the SDK asks for other types of values by name.
    for (String order :
        List.of("", " ORDER BY c.n", " ORDER BY c.n DESC", " ORDER BY c.group, c.n DESC")) {
      for (CosmosContainer container : containers) {
        List<Integer> found = new ArrayList<>();
        String continuation = null;
        do {
          var rows =
              container.queryItems(
                  "SELECT VALUE c.n FROM c" + order,
                  new CosmosQueryRequestOptions(),
                  Integer.class);
          FeedResponse<Integer> page = rows.iterableByPage(continuation, 7).iterator().next();
          found.addAll(page.getResults());
          continuation = page.getContinuationToken();
        } while (continuation != null);
        Suite.equal(found.stream().sorted().toList(), numbers(0, 60));
      }
    }
  }

  /** Runs a query over one range and over three. */
  private void check(String query, List<Integer> expected) {
    for (CosmosContainer container : containers) {
      var options = new CosmosQueryRequestOptions();
      Suite.equal(rows(container, new SqlQuerySpec(query), options, Integer.class), expected);
    }
  }

  private static <T> List<T> rows(
      CosmosContainer container,
      SqlQuerySpec query,
      CosmosQueryRequestOptions options,
      Class<T> type) {
    List<T> found = new ArrayList<>();
    container
        .queryItems(query, options, type)
        .iterableByPage(7)
        .forEach(it -> found.addAll(it.getResults()));
    return found;
  }

  private static List<Integer> numbers(int from, int to) {
    return IntStream.range(from, to).boxed().toList();
  }
}
