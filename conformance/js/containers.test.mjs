// Databases, containers and their throughput.

import assert from "node:assert/strict";
import { test } from "node:test";

import { client, newContainer, newDatabase, refusal, THREE_RANGES } from "./client.mjs";

const database = await newDatabase();

test("the account can be read", async () => {
  const { resource } = await client.getDatabaseAccount();
  assert.equal(resource.consistencyPolicy, "Session");
  assert.ok(0 < (await client.getReadEndpoints()).length);
});

test("databases are created once, read, listed, queried and deleted", async () => {
  const id = `${database.id}-more`;
  const { database: more } = await client.databases.createIfNotExists({ id });
  await client.databases.createIfNotExists({ id });
  assert.equal((await refusal(client.databases.create({ id }))).code, 409);
  assert.equal((await more.read()).resource.id, id);
  const { resources: all } = await client.databases.readAll().fetchAll();
  assert.ok(all.some((it) => it.id === id));
  const query = {
    query: "SELECT * FROM d WHERE d.id = @id",
    parameters: [{ name: "@id", value: id }],
  };
  const { resources: found } = await client.databases.query(query).fetchAll();
  assert.deepEqual(
    found.map((it) => it.id),
    [id],
  );
  assert.equal((await more.delete()).statusCode, 204);
  assert.equal((await refusal(more.read())).code, 404);
});

test("containers are created once, read, listed, queried, replaced and deleted", async () => {
  const container = await newContainer(database, { defaultTtl: 100 });
  const { id } = container;
  const { resource } = await container.read();
  assert.equal(resource.defaultTtl, 100);
  assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
  assert.equal((await refusal(newContainer(database, { id }))).code, 409);
  await database.containers.createIfNotExists({ id, partitionKey: "/pk" });
  const { resource: replaced } = await container.replace({ ...resource, defaultTtl: 200 });
  assert.equal(replaced.defaultTtl, 200);
  const { resources: all } = await database.containers.readAll().fetchAll();
  assert.ok(all.some((it) => it.id === id));
  const query = `SELECT VALUE c.id FROM c WHERE c.id = "${id}"`;
  assert.deepEqual((await database.containers.query(query).fetchAll()).resources, [id]);
  assert.equal((await container.delete()).statusCode, 204);
  assert.equal((await refusal(container.read())).code, 404);
});

test("throughput is read and replaced, and raising it divides the container", async () => {
  const container = await newContainer(database, { throughput: 400 });
  const { offer, resource } = await container.readOffer();
  assert.equal(resource.content.offerThroughput, 400);
  assert.equal((await container.readPartitionKeyRanges().fetchAll()).resources.length, 1);
  resource.content.offerThroughput = 11000;
  const { resource: replaced } = await offer.replace(resource);
  assert.equal(replaced.content.offerThroughput, 11000);
  assert.equal((await container.readPartitionKeyRanges().fetchAll()).resources.length, 2);
});

test("the most of autoscale is kept", async () => {
  const container = await newContainer(database, { maxThroughput: 4000 });
  const { resource } = await container.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
});

test("a container has a range for every 6,000 request units", async () => {
  const container = await newContainer(database, { throughput: THREE_RANGES });
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.equal(resources.length, 3);
  const feedRanges = await container.getFeedRanges();
  assert.equal(feedRanges.length, 3);
});

test("a wrong key is refused", async () => {
  const { CosmosClient } = await import("@azure/cosmos");
  const key = Buffer.from("not the key").toString("base64");
  const stranger = new CosmosClient({ endpoint: process.env.ACCOUNT_HOST, key });
  assert.equal((await refusal(stranger.databases.readAll().fetchAll())).code, 401);
  stranger.dispose();
});
