// The change feed in both modes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ChangeFeedMode, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";

import { newContainer, newDatabase, THREE_RANGES, until } from "./client.mjs";

const database = await newDatabase();

// Everything up to the first page without changes.
async function drain(iterator) {
  const found = [];
  let last;
  while (iterator.hasMoreResults) {
    last = await iterator.readNext();
    if (last.statusCode === 304) break;
    found.push(...last.result);
  }
  return { found, token: last.continuationToken };
}

const ids = (items) => items.map((it) => it.id).sort();

test("the latest versions come from the beginning, once, and go on", async () => {
  for (const throughput of [400, THREE_RANGES]) {
    const container = await newContainer(database, { throughput });
    for (let n = 0; n < 20; n += 1) await container.items.create({ id: `${n}`, pk: `${n}`, n });
    await container.items.upsert({ id: "1", pk: "1", n: 100 });
    const from = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 3 };
    const iterator = container.items.getChangeFeedIterator(from);
    const { found, token } = await drain(iterator);
    assert.equal(found.length, 20);
    assert.equal(found.find((it) => it.id === "1").n, 100);
    await container.items.create({ id: "new", pk: "new" });
    assert.deepEqual(ids((await drain(iterator)).found), ["new"]);
    const later = { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(token) };
    const again = container.items.getChangeFeedIterator(later);
    assert.deepEqual(ids((await drain(again)).found), ["new"]);
  }
});

test("it can be read from now, for a key and for a range", async () => {
  const container = await newContainer(database, { throughput: THREE_RANGES });
  await container.items.create({ id: "before", pk: "a" });
  const now = { changeFeedStartFrom: ChangeFeedStartFrom.Now() };
  const iterator = container.items.getChangeFeedIterator(now);
  assert.deepEqual((await drain(iterator)).found, []);
  for (let n = 0; n < 20; n += 1) await container.items.create({ id: `${n}`, pk: `${n}` });
  await container.items.create({ id: "after", pk: "a" });
  assert.equal((await drain(iterator)).found.length, 21);
  const ofKey = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning("a") };
  const found = (await drain(container.items.getChangeFeedIterator(ofKey))).found;
  assert.deepEqual(ids(found), ["after", "before"]);
  let all = 0;
  for (const range of await container.getFeedRanges()) {
    const ofRange = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) };
    all += (await drain(container.items.getChangeFeedIterator(ofRange))).found.length;
  }
  assert.equal(all, 22);
  const time = { changeFeedStartFrom: ChangeFeedStartFrom.Time(new Date(0)) };
  assert.equal((await drain(container.items.getChangeFeedIterator(time))).found.length, 22);
});

test("all versions and deletes come in their order", async () => {
  const changeFeedPolicy = {
    retentionDuration: ChangeFeedRetentionTimeSpan.fromMinutes(5).getRetentionInMinutes(),
  };
  const container = await newContainer(database, { changeFeedPolicy, defaultTtl: -1 });
  const iterator = container.items.getChangeFeedIterator({
    changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes,
    changeFeedStartFrom: ChangeFeedStartFrom.Now(),
  });
  assert.deepEqual((await drain(iterator)).found, []);
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await container.items.upsert({ id: "1", pk: "a", n: 2 });
  await container.item("1", "a").delete();
  const { found } = await drain(iterator);
  assert.deepEqual(
    found.map((it) => it.metadata.operationType),
    ["create", "replace", "delete"],
  );
  assert.deepEqual(
    found.slice(0, 2).map((it) => it.current.n),
    [1, 2],
  );
  assert.equal(found[2].previous.n, 2);
  await container.items.create({ id: "2", pk: "a", ttl: 1 });
  const expired = [];
  await until(async () => {
    expired.push(...(await drain(iterator)).found);
    return expired.some((it) => it.metadata.timeToLiveExpired);
  });
});

test("it goes on after a range was split", async () => {
  const container = await newContainer(database, { throughput: 400 });
  for (let n = 0; n < 20; n += 1) await container.items.create({ id: `${n}`, pk: `${n}` });
  const from = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 4 };
  const iterator = container.items.getChangeFeedIterator(from);
  const found = [...(await iterator.readNext()).result];
  const { offer, resource } = await container.readOffer();
  resource.content.offerThroughput = 11000;
  await offer.replace(resource);
  await container.items.create({ id: "late", pk: "late" });
  found.push(...(await drain(iterator)).found);
  assert.equal(new Set(found.map((it) => it.id)).size, 21);
});
