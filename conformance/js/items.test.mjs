// Items one by one.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PatchOperationType } from "@azure/cosmos";

import { newContainer, newDatabase, refusal, until } from "./client.mjs";

const database = await newDatabase();

test("items are created, read, replaced, upserted and deleted", async () => {
  const container = await newContainer(database);
  const created = await container.items.create({ id: "1", pk: "a", n: 1 });
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource._etag, created.etag);
  assert.ok(0 < created.requestCharge);
  const item = container.item("1", "a");
  assert.equal((await item.read()).resource.n, 1);
  assert.equal((await item.replace({ id: "1", pk: "a", n: 2 })).resource.n, 2);
  assert.equal((await container.items.upsert({ id: "1", pk: "a", n: 3 })).statusCode, 200);
  assert.equal((await container.items.upsert({ id: "2", pk: "a", n: 4 })).statusCode, 201);
  assert.equal((await item.read()).resource.n, 3);
  assert.equal((await item.delete()).statusCode, 204);
  const gone = await item.read();
  assert.equal(gone.statusCode, 404);
  assert.equal(gone.resource, undefined);
});

test("an item without an id gets one", async () => {
  const container = await newContainer(database);
  const { resource } = await container.items.create({ pk: "a" });
  assert.match(resource.id, /^[0-9a-f-]{36}$/);
});

test("ids and keys may have any characters that Cosmos DB allows", async () => {
  const container = await newContainer(database);
  for (const id of ["ü é", "a b+c=d&e%f", "雪", "a..b", "'\"`", "colls"]) {
    await container.items.create({ id, pk: id });
    assert.equal((await container.item(id, id).read()).resource.id, id);
    assert.equal((await container.item(id, id).delete()).statusCode, 204);
  }
});

test("keys may be of every type", async () => {
  const container = await newContainer(database);
  for (const pk of ["", 0, -1.5, true, false, null]) {
    await container.items.create({ id: "1", pk });
    assert.deepEqual((await container.item("1", pk).read()).resource.pk, pk);
  }
  await container.items.create({ id: "1" });
  assert.equal((await container.item("1", undefined).read()).resource.id, "1");
});

test("conflicts and missing items have their codes", async () => {
  const container = await newContainer(database);
  await container.items.create({ id: "1", pk: "a" });
  assert.equal((await refusal(container.items.create({ id: "1", pk: "a" }))).code, 409);
  assert.equal((await refusal(container.item("2", "a").delete())).code, 404);
  assert.equal((await refusal(container.item("2", "a").replace({ id: "2", pk: "a" }))).code, 404);
  const wrong = container.item("1", "b").replace({ id: "1", pk: "a" });
  assert.ok([400, 404].includes((await refusal(wrong)).code));
});

test("a condition that does not hold is refused with 412", async () => {
  const container = await newContainer(database);
  const { resource } = await container.items.create({ id: "1", pk: "a", n: 1 });
  const item = container.item("1", "a");
  await item.replace({ id: "1", pk: "a", n: 2 });
  const accessCondition = { type: "IfMatch", condition: resource._etag };
  const stale = { accessCondition };
  assert.equal((await refusal(item.replace({ id: "1", pk: "a", n: 3 }, stale))).code, 412);
  assert.equal((await refusal(item.delete(stale))).code, 412);
  const { etag } = await item.read();
  const unchanged = { accessCondition: { type: "IfNoneMatch", condition: etag } };
  assert.equal((await item.read(unchanged)).statusCode, 304);
  const current = { accessCondition: { type: "IfMatch", condition: etag } };
  assert.equal((await item.replace({ id: "1", pk: "a", n: 4 }, current)).resource.n, 4);
});

test("patches change what they name, and only if their condition holds", async () => {
  const container = await newContainer(database);
  await container.items.create({ id: "1", pk: "a", n: 1, list: [1, 2], gone: true });
  const item = container.item("1", "a");
  const { resource } = await item.patch([
    { op: PatchOperationType.set, path: "/name", value: "x" },
    { op: PatchOperationType.incr, path: "/n", value: 4 },
    { op: PatchOperationType.add, path: "/list/-", value: 3 },
    { op: PatchOperationType.remove, path: "/gone" },
    { op: PatchOperationType.replace, path: "/list/0", value: 0 },
  ]);
  assert.deepEqual([resource.name, resource.n, resource.list], ["x", 5, [0, 2, 3]]);
  assert.equal("gone" in resource, false);
  const operations = [{ op: "set", path: "/n", value: 9 }];
  const condition = "from c where c.n = 5";
  assert.equal((await item.patch({ condition, operations })).resource.n, 9);
  assert.equal((await refusal(item.patch({ condition, operations }))).code, 412);
});

test("items expire", async () => {
  const container = await newContainer(database, { defaultTtl: -1 });
  await container.items.create({ id: "1", pk: "a", ttl: 1 });
  await container.items.create({ id: "2", pk: "a" });
  await until(async () => (await container.item("1", "a").read()).statusCode === 404);
  const { resources } = await container.items.readAll().fetchAll();
  assert.deepEqual(
    resources.map((it) => it.id),
    ["2"],
  );
  assert.equal((await container.items.create({ id: "1", pk: "a" })).statusCode, 201);
});

test("hierarchical keys name items, and their prefixes the partitions above", async () => {
  const paths = ["/tenant", "/user"];
  const partitionKey = { paths, kind: "MultiHash", version: 2 };
  const container = await newContainer(database, { partitionKey });
  for (const user of ["x", "y"]) {
    await container.items.create({ id: "1", tenant: "a", user });
    await container.items.create({ id: "1", tenant: "b", user });
  }
  assert.equal((await container.item("1", ["a", "x"]).read()).resource.user, "x");
  const options = { partitionKey: ["a", "y"] };
  const { resources } = await container.items
    .query("SELECT VALUE c.user FROM c", options)
    .fetchAll();
  assert.deepEqual(resources, ["y"]);
  const prefix = "SELECT VALUE c.user FROM c WHERE c.tenant = 'b' ORDER BY c.user";
  assert.deepEqual((await container.items.query(prefix).fetchAll()).resources, ["x", "y"]);
  assert.equal((await container.item("1", ["a", "x"]).delete()).statusCode, 204);
});

test("all items of a key are deleted together", async () => {
  const container = await newContainer(database);
  for (const id of ["1", "2", "3"]) await container.items.create({ id, pk: "a" });
  await container.items.create({ id: "1", pk: "b" });
  await container.deleteAllItemsForPartitionKey("a");
  const { resources } = await container.items.readAll().fetchAll();
  assert.deepEqual(
    resources.map((it) => it.pk),
    ["b"],
  );
});

test("an item that is too large is refused with 413", async () => {
  const container = await newContainer(database);
  const long = "x".repeat(2 * 1024 * 1024);
  assert.equal((await refusal(container.items.create({ id: "1", pk: "a", long }))).code, 413);
});
