// What all files share: a client, and a database of their own that is gone afterwards.

import { randomUUID } from "node:crypto";
import { after } from "node:test";

import { CosmosClient } from "@azure/cosmos";

const endpoint = process.env.ACCOUNT_HOST;
const key = process.env.ACCOUNT_KEY;

export const client = new CosmosClient({ endpoint, key });

// Enough for three ranges, so that queries have something to merge.
export const THREE_RANGES = 18000;

// Makes a database that is deleted after the tests of the file.
export async function newDatabase() {
  const { database } = await client.databases.create({ id: `js-${randomUUID()}` });
  after(async () => {
    await database.delete();
    client.dispose();
  });
  return database;
}

// Makes a container.
export async function newContainer(database, definition = {}) {
  const partitionKey = { paths: ["/pk"] };
  const created = { id: randomUUID(), partitionKey, ...definition };
  return (await database.containers.create(created)).container;
}

// Awaits what has to be refused, and gives the error.
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it was not refused");
}

// Repeats what has to become true, and fails if it does not within a minute.
export async function until(condition) {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("it did not become true");
}
