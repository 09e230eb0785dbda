// Several operations in one request.

import assert from "node:assert/strict";
import { test } from "node:test";

import { BulkOperationType } from "@azure/cosmos";

import { newContainer, newDatabase, THREE_RANGES } from "./client.mjs";

const database = await newDatabase();

const codes = (results) => results.map((it) => it.statusCode);

test("a batch is committed whole", async () => {
  const container = await newContainer(database);
  await container.items.create({ id: "old", pk: "a", n: 1 });
  await container.items.create({ id: "gone", pk: "a" });
  const { result, code } = await container.items.batch(
    [
      { operationType: BulkOperationType.Create, resourceBody: { id: "1", pk: "a" } },
      { operationType: BulkOperationType.Upsert, resourceBody: { id: "2", pk: "a" } },
      {
        operationType: BulkOperationType.Replace,
        id: "old",
        resourceBody: { id: "old", pk: "a", n: 2 },
      },
      {
        operationType: BulkOperationType.Patch,
        id: "old",
        resourceBody: { operations: [{ op: "incr", path: "/n", value: 3 }] },
      },
      { operationType: BulkOperationType.Read, id: "old" },
      { operationType: BulkOperationType.Delete, id: "gone" },
    ],
    "a",
  );
  assert.equal(code, 200);
  assert.deepEqual(codes(result), [201, 201, 200, 200, 200, 204]);
  assert.equal(result[4].resourceBody.n, 5);
});

test("a batch that is refused changes nothing and says why", async () => {
  const container = await newContainer(database);
  await container.items.create({ id: "1", pk: "a" });
  const { result, code } = await container.items.batch(
    [
      { operationType: BulkOperationType.Create, resourceBody: { id: "2", pk: "a" } },
      { operationType: BulkOperationType.Create, resourceBody: { id: "1", pk: "a" } },
      { operationType: BulkOperationType.Delete, id: "1" },
    ],
    "a",
  );
  assert.equal(code, 207);
  assert.deepEqual(codes(result), [424, 409, 424]);
  assert.equal((await container.item("2", "a").read()).statusCode, 404);
  const { resource } = await container.item("1", "a").read();
  const stale = await container.items.batch(
    [{ operationType: "Replace", id: "1", ifMatch: '"other"', resourceBody: { id: "1", pk: "a" } }],
    "a",
  );
  assert.deepEqual(codes(stale.result), [412]);
  const current = await container.items.batch(
    [
      {
        operationType: "Replace",
        id: "1",
        ifMatch: resource._etag,
        resourceBody: { id: "1", pk: "a" },
      },
    ],
    "a",
  );
  assert.deepEqual(codes(current.result), [200]);
});

test("bulk requests go to the ranges of their keys", async () => {
  const container = await newContainer(database, { throughput: THREE_RANGES });
  const create = (n) => ({
    operationType: BulkOperationType.Create,
    partitionKey: `key ${n}`,
    resourceBody: { id: `${n}`, pk: `key ${n}`, n },
  });
  const creates = Array.from({ length: 300 }, (_, n) => create(n));
  const created = await container.items.executeBulkOperations(creates);
  assert.ok(created.every((it) => it.response.statusCode === 201));
  const mixed = await container.items.executeBulkOperations([
    create(1),
    { operationType: "Read", id: "2", partitionKey: "key 2" },
    { operationType: "Delete", id: "3", partitionKey: "key 3" },
    {
      operationType: "Patch",
      id: "4",
      partitionKey: "key 4",
      resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] },
    },
    { operationType: "Upsert", partitionKey: "key 5", resourceBody: { id: "5", pk: "key 5" } },
    { operationType: "Delete", id: "none", partitionKey: "key 6" },
  ]);
  const found = mixed.map((it) => it.response?.statusCode ?? it.error?.code);
  assert.deepEqual(found, [409, 200, 204, 200, 200, 404]);
});

test("the older bulk call goes on after an operation that failed", async () => {
  const container = await newContainer(database, { throughput: THREE_RANGES });
  const create = (n) => ({
    operationType: BulkOperationType.Create,
    resourceBody: { id: `${n}`, pk: `key ${n}` },
  });
  const operations = [create(1), create(1), create(2), create(3)];
  const results = await container.items.bulk(operations, { continueOnError: true });
  assert.deepEqual(codes(results), [201, 409, 201, 201]);
});
