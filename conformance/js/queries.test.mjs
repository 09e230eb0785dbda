// Queries over one range and over several, which the SDK merges.

import assert from "node:assert/strict";
import { test } from "node:test";

import { newContainer, newDatabase, THREE_RANGES } from "./client.mjs";

const database = await newDatabase();
const containers = {};

const numbers = (from, to) => Array.from({ length: to - from }, (_, n) => n + from);

for (const [name, throughput] of [
  ["one", 400],
  ["three", THREE_RANGES],
]) {
  const container = await newContainer(database, { throughput });
  const create = (n) => {
    const pk = `p${n % 10}`;
    const resourceBody = { id: `${n}`, pk, n, group: n % 3, tags: [`t${n % 2}`, "all"] };
    return { operationType: "Create", partitionKey: pk, resourceBody };
  };
  await container.items.executeBulkOperations(numbers(0, 60).map(create));
  containers[name] = container;
}

// Runs a query over one range and over three, as a whole and page by page.
async function check(query, expected, options = {}) {
  for (const [name, container] of Object.entries(containers)) {
    const whole = await container.items.query(query, options).fetchAll();
    assert.deepEqual(whole.resources, expected, `${name}, whole`);
    const iterator = container.items.query(query, { maxItemCount: 7, ...options });
    const paged = [];
    while (iterator.hasMoreResults()) {
      const { resources } = await iterator.fetchNext();
      paged.push(...(resources ?? []));
    }
    assert.deepEqual(paged, expected, `${name}, by pages`);
  }
}

test("filters with parameters", async () => {
  const parameters = [
    { name: "@n", value: 57 },
    { name: "@tag", value: "t1" },
  ];
  const query = "SELECT VALUE c.n FROM c WHERE @n <= c.n AND ARRAY_CONTAINS(c.tags, @tag)";
  for (const container of Object.values(containers)) {
    const { resources } = await container.items.query({ query, parameters }).fetchAll();
    assert.deepEqual(resources.sort(), [57, 59]);
  }
});

test("one partition", async () => {
  const query = "SELECT VALUE c.n FROM c WHERE c.n < 30 ORDER BY c.n";
  await check(query, [4, 14, 24], { partitionKey: "p4" });
});

test("order", async () => {
  await check("SELECT VALUE c.n FROM c ORDER BY c.n", numbers(0, 60));
  await check("SELECT VALUE c.n FROM c ORDER BY c.n DESC", numbers(0, 60).reverse());
  const query = "SELECT c.n FROM c WHERE c.n < 6 ORDER BY c.n DESC";
  await check(
    query,
    numbers(0, 6)
      .reverse()
      .map((n) => ({ n })),
  );
});

test("limits", async () => {
  await check("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n", numbers(0, 5));
  await check("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 15", numbers(10, 25));
  for (const container of Object.values(containers)) {
    const { resources } = await container.items.query("SELECT TOP 13 * FROM c").fetchAll();
    assert.equal(resources.length, 13);
  }
});

test("aggregates", async () => {
  await check("SELECT VALUE COUNT(1) FROM c", [60]);
  await check("SELECT VALUE SUM(c.n) FROM c", [1770]);
  await check("SELECT VALUE MIN(c.n) FROM c", [0]);
  await check("SELECT VALUE MAX(c.n) FROM c", [59]);
  await check("SELECT VALUE AVG(c.n) FROM c", [29.5]);
});

test("aggregates beside each other", async () => {
  const expected = [{ low: 0, high: 59, count: 60 }];
  const query = "SELECT MIN(c.n) AS low, MAX(c.n) AS high, COUNT(1) AS count FROM c";
  for (const container of Object.values(containers)) {
    const { resources } = await container.items.query(query).fetchAll();
    assert.deepEqual(resources, expected);
  }
});

test("groups", async () => {
  const query = "SELECT c.group, COUNT(1) AS count, SUM(c.n) AS sum FROM c GROUP BY c.group";
  const expected = [0, 1, 2].map((group) => ({ group, count: 20, sum: 570 + group * 20 }));
  for (const [name, container] of Object.entries(containers)) {
    const { resources } = await container.items.query(query).fetchAll();
    resources.sort((one, two) => one.group - two.group);
    assert.deepEqual(resources, expected, name);
  }
});

test("values that are there once", async () => {
  const keys = numbers(0, 10).map((n) => `p${n}`);
  await check("SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk", keys);
  for (const container of Object.values(containers)) {
    const { resources } = await container.items.query("SELECT DISTINCT c.group FROM c").fetchAll();
    assert.deepEqual(resources.map((it) => it.group).sort(), [0, 1, 2]);
  }
});

test("joins", async () => {
  const query = "SELECT c.n, t AS tag FROM c JOIN t IN c.tags WHERE c.n < 2 ORDER BY c.n";
  for (const container of Object.values(containers)) {
    const { resources } = await container.items.query(query).fetchAll();
    const found = resources.map((it) => `${it.n} ${it.tag}`).sort();
    assert.deepEqual(found, ["0 all", "0 t0", "1 all", "1 t1"]);
  }
});

test("continuations are taken up by another iterator", async () => {
  for (const container of Object.values(containers)) {
    const query = "SELECT VALUE c.n FROM c";
    const found = [];
    let continuationToken;
    do {
      const options = { maxItemCount: 9, continuationToken };
      const page = await container.items.query(query, options).fetchNext();
      found.push(...page.resources);
      continuationToken = page.continuationToken;
    } while (continuationToken);
    assert.deepEqual(
      found.sort((one, two) => one - two),
      numbers(0, 60),
    );
  }
});

test("sorted rows go on from a continuation where the SDK gives one", async () => {
  for (const container of Object.values(containers)) {
    const found = [];
    let continuationToken;
    do {
      const options = { maxItemCount: 9, continuationToken, enableQueryControl: true };
      const query = "SELECT VALUE c.n FROM c ORDER BY c.n DESC";
      const page = await container.items.query(query, options).fetchNext();
      found.push(...page.resources);
      continuationToken = page.continuationToken;
    } while (continuationToken);
    assert.deepEqual(found, numbers(0, 60).reverse());
  }
});

test("what the query plan is asked for first", async () => {
  const options = { forceQueryPlan: true, maxDegreeOfParallelism: 4 };
  await check("SELECT VALUE c.n FROM c WHERE c.n < 9 ORDER BY c.n", numbers(0, 9), options);
  await check("SELECT VALUE COUNT(1) FROM c", [60], options);
  await check("SELECT VALUE COUNTIF(c.n < 9) FROM c", [9], options);
  for (const container of Object.values(containers)) {
    const query = "SELECT VALUE c.group FROM c GROUP BY c.group";
    const { resources } = await container.items.query(query, options).fetchAll();
    assert.deepEqual(resources.sort(), [0, 1, 2]);
  }
});

test("an error of a query says where it is", async () => {
  const failed = containers.one.items.query("SELECT * FORM c").fetchAll();
  await assert.rejects(failed, (error) => error.code === 400);
});
