using System;
using System.Collections.Generic;
using System.Collections.ObjectModel;
using System.IO;
using System.Linq;
using System.Net;
using System.Text;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

/// <summary>Containers, and their items one by one.</summary>
public sealed class Items
{
    private static readonly PartitionKey A = new PartitionKey("a");

    private readonly Suite suite;

    public Items(Suite suite) => this.suite = suite;

    public async Task Run()
    {
        await suite.Test("databases are created, read, listed and queried", Databases);
        await suite.Test("containers are read, replaced, listed and deleted", Containers);
        await suite.Test("what a container is defined by comes back", Definitions);
        await suite.Test("throughput is read and replaced, and raising it divides", Throughput);
        await suite.Test("items are created, read, replaced, upserted and deleted", Single);
        await suite.Test("streams have statuses instead of exceptions", Streams);
        await suite.Test("conflicts and missing items have their codes", Conflicts);
        await suite.Test("a condition that does not hold is refused with 412", Conditions);
        await suite.Test("patches change what they name", Patches);
        await suite.Test("items expire", Expiry);
        await suite.Test("hierarchical keys name items and the partitions above", Hierarchy);
        await suite.Test("keys of every kind find their items", Keys);
        await suite.Test("many items are read at once", Many);
        await suite.Test("ids may have any characters that Cosmos DB allows", Names);
        await suite.Test("a session token of another client is honoured", Sessions);
        await suite.Test("unique keys are kept", Unique);
        await suite.Test("a container that was created again is found by clients that knew it", Again);
    }

    private async Task Databases()
    {
        var client = suite.Database.Client;
        var id = suite.Database.Id;
        Suite.Equal((await client.GetDatabase(id).ReadAsync()).Resource.Id, id);
        Suite.Equal((await client.CreateDatabaseIfNotExistsAsync(id)).StatusCode, HttpStatusCode.OK);
        await Suite.Refused(() => client.CreateDatabaseAsync(id), 409);
        await Suite.Refused(() => client.GetDatabase("none").ReadAsync(), 404);
        var all = await Suite.All(client.GetDatabaseQueryIterator<DatabaseProperties>());
        Suite.Equal(all.Count(it => it.Id == id), 1);
        var query = new QueryDefinition("SELECT * FROM d WHERE d.id = @id").WithParameter("@id", id);
        var found = await Suite.All(client.GetDatabaseQueryIterator<DatabaseProperties>(query));
        Suite.Same(found.Select(it => it.Id), id);
        var account = await client.ReadAccountAsync();
        Suite.Equal(account.Consistency.DefaultConsistencyLevel, ConsistencyLevel.Session);
    }

    private async Task Containers()
    {
        var container = await suite.Container(400);
        ContainerProperties properties = await container.ReadContainerAsync();
        Suite.Equal(properties.PartitionKeyPath, "/pk");
        properties.DefaultTimeToLive = 100;
        ContainerProperties replaced = await container.ReplaceContainerAsync(properties);
        Suite.Equal(replaced.DefaultTimeToLive, 100);
        var all = await Suite.All(suite.Database.GetContainerQueryIterator<ContainerProperties>());
        Suite.Equal(all.Count(it => it.Id == container.Id), 1);
        var query = new QueryDefinition("SELECT * FROM c WHERE c.id = @id");
        query.WithParameter("@id", container.Id);
        all = await Suite.All(suite.Database.GetContainerQueryIterator<ContainerProperties>(query));
        Suite.Equal(all.Count, 1);
        await Suite.Refused(() => suite.Database.CreateContainerAsync(container.Id, "/pk"), 409);
        var same = await suite.Database.CreateContainerIfNotExistsAsync(container.Id, "/pk");
        Suite.Equal(same.StatusCode, HttpStatusCode.OK);
        await container.DeleteContainerAsync();
        await Suite.Refused(() => container.ReadContainerAsync(), 404);
    }

    private async Task Definitions()
    {
        var properties = new ContainerProperties(Guid.NewGuid().ToString(), "/pk")
        {
            PartitionKeyDefinitionVersion = PartitionKeyDefinitionVersion.V2,
            IndexingPolicy = new IndexingPolicy { IndexingMode = IndexingMode.Consistent },
            ComputedProperties = new Collection<ComputedProperty>
            {
                new ComputedProperty { Name = "lower", Query = "SELECT VALUE LOWER(c.name) FROM c" },
            },
        };
        properties.IndexingPolicy.IncludedPaths.Add(new IncludedPath { Path = "/*" });
        properties.IndexingPolicy.ExcludedPaths.Add(new ExcludedPath { Path = "/big/*" });
        properties.IndexingPolicy.CompositeIndexes.Add(new Collection<CompositePath>
        {
            new CompositePath { Path = "/a", Order = CompositePathSortOrder.Ascending },
            new CompositePath { Path = "/b", Order = CompositePathSortOrder.Descending },
        });
        var container = await suite.Container(properties, 400);
        ContainerProperties found = await container.ReadContainerAsync();
        Suite.Equal(found.PartitionKeyDefinitionVersion, PartitionKeyDefinitionVersion.V2);
        Suite.Equal(found.IndexingPolicy.CompositeIndexes[0][1].Path, "/b");
        Suite.Equal(found.IndexingPolicy.ExcludedPaths[0].Path, "/big/*");
        Suite.Equal(found.ComputedProperties[0].Name, "lower");
    }

    private async Task Throughput()
    {
        var container = await suite.Container(400);
        Suite.Equal(await container.ReadThroughputAsync(), 400);
        Suite.Equal((await container.GetFeedRangesAsync()).Count, 1);
        await container.ReplaceThroughputAsync(11000);
        ThroughputResponse read = await container.ReadThroughputAsync(new RequestOptions());
        Suite.Equal(read.Resource.Throughput, 11000);
        Suite.Equal(read.IsReplacePending, false);
        Suite.Equal((await container.GetFeedRangesAsync()).Count, 2);
        var auto = ThroughputProperties.CreateAutoscaleThroughput(4000);
        var properties = new ContainerProperties("auto", "/pk");
        Container second = await suite.Database.CreateContainerAsync(properties, auto);
        read = await second.ReadThroughputAsync(new RequestOptions());
        Suite.Equal(read.Resource.AutoscaleMaxThroughput, 4000);
        Container none = await suite.Database.CreateContainerAsync("none", "/pk");
        await none.CreateItemAsync(Suite.Item("1", "a"));
    }

    private async Task Single()
    {
        var container = await suite.Container(400);
        var created = await container.CreateItemAsync(Suite.Item("1", "a", 1), A);
        Suite.Equal(created.StatusCode, HttpStatusCode.Created);
        Suite.Equal((string)created.Resource["_etag"], created.ETag);
        Suite.Equal(0 < created.RequestCharge, true);
        Suite.Equal((int)(await Read(container, "1"))["n"], 1);
        await container.ReplaceItemAsync(Suite.Item("1", "a", 2), "1", A);
        var upserted = await container.UpsertItemAsync(Suite.Item("1", "a", 3));
        Suite.Equal(upserted.StatusCode, HttpStatusCode.OK);
        upserted = await container.UpsertItemAsync(Suite.Item("2", "a", 4), A);
        Suite.Equal(upserted.StatusCode, HttpStatusCode.Created);
        Suite.Equal((int)(await Read(container, "1"))["n"], 3);
        var deleted = await container.DeleteItemAsync<JObject>("1", A);
        Suite.Equal(deleted.StatusCode, HttpStatusCode.NoContent);
        await Suite.Refused(() => Read(container, "1"), 404);
        var quiet = new ItemRequestOptions { EnableContentResponseOnWrite = false };
        Suite.Equal((await container.CreateItemAsync(Suite.Item("3", "a"), A, quiet)).Resource, null);
    }

    private async Task Streams()
    {
        var container = await suite.Container(400);
        Stream Body(string text) => new MemoryStream(Encoding.UTF8.GetBytes(text));
        using var made = await container.CreateItemStreamAsync(
            Body("{\"id\":\"1\",\"pk\":\"a\",\"big\":12345678901234567890}"), A);
        Suite.Equal(made.StatusCode, HttpStatusCode.Created);
        using var again = await container.CreateItemStreamAsync(Body("{\"id\":\"1\",\"pk\":\"a\"}"), A);
        Suite.Equal(again.StatusCode, HttpStatusCode.Conflict);
        using var read = await container.ReadItemStreamAsync("1", A);
        var text = new StreamReader(read.Content).ReadToEnd();
        Suite.Equal(text.Contains("12345678901234567890"), true);
        using var missing = await container.ReadItemStreamAsync("2", A);
        Suite.Equal(missing.StatusCode, HttpStatusCode.NotFound);
        using var broken = await container.CreateItemStreamAsync(Body("{\"id\":"), A);
        Suite.Equal(broken.StatusCode, HttpStatusCode.BadRequest);
        using var other = await container.CreateItemStreamAsync(
            Body("{\"id\":\"3\",\"pk\":\"b\"}"), A);
        Suite.Equal(other.StatusCode, HttpStatusCode.BadRequest);
        using var large = await container.CreateItemStreamAsync(
            Body("{\"id\":\"4\",\"pk\":\"a\",\"t\":\"" + new string('x', 2200000) + "\"}"), A);
        Suite.Equal(large.StatusCode, HttpStatusCode.RequestEntityTooLarge);
    }

    private async Task Conflicts()
    {
        var container = await suite.Container(400);
        await container.CreateItemAsync(Suite.Item("1", "a"), A);
        await Suite.Refused(() => container.CreateItemAsync(Suite.Item("1", "a"), A), 409);
        await Suite.Refused(() => container.DeleteItemAsync<JObject>("2", A), 404);
        await Suite.Refused(() => container.ReplaceItemAsync(Suite.Item("2", "a"), "2", A), 404);
        var error = await Suite.Refused(
            () => container.CreateItemAsync(Suite.Item("3", "b"), A), 400);
        Suite.Equal(error.SubStatusCode, 1001);
    }

    private async Task Conditions()
    {
        var container = await suite.Container(400);
        var first = await container.CreateItemAsync(Suite.Item("1", "a", 1), A);
        await container.UpsertItemAsync(Suite.Item("1", "a", 2), A);
        var stale = new ItemRequestOptions { IfMatchEtag = first.ETag };
        await Suite.Refused(
            () => container.ReplaceItemAsync(Suite.Item("1", "a", 3), "1", A, stale), 412);
        await Suite.Refused(() => container.DeleteItemAsync<JObject>("1", A, stale), 412);
        await Suite.Refused(
            () => container.UpsertItemAsync(Suite.Item("1", "a", 3), A, stale), 412);
        var second = await container.ReadItemAsync<JObject>("1", A);
        var current = new ItemRequestOptions { IfMatchEtag = second.ETag };
        var third = await container.ReplaceItemAsync(Suite.Item("1", "a", 4), "1", A, current);
        var unchanged = new ItemRequestOptions { IfNoneMatchEtag = third.ETag };
        using var read = await container.ReadItemStreamAsync("1", A, unchanged);
        Suite.Equal(read.StatusCode, HttpStatusCode.NotModified);
    }

    private async Task Patches()
    {
        var container = await suite.Container(400);
        await container.CreateItemAsync(Suite.Item("1", "a", 1), A);
        var patched = await container.PatchItemAsync<JObject>("1", A, new[]
        {
            PatchOperation.Set("/name", "x"),
            PatchOperation.Increment("/n", 4),
            PatchOperation.Add("/list", new[] { 1 }),
            PatchOperation.Add("/list/-", 2),
            PatchOperation.Move("/name", "/moved"),
        });
        Suite.Equal((int)patched.Resource["n"], 5);
        Suite.Equal((string)patched.Resource["moved"], "x");
        Suite.Equal(patched.Resource["list"].ToString(Newtonsoft.Json.Formatting.None), "[1,2]");
        var options = new PatchItemRequestOptions { FilterPredicate = "FROM c WHERE c.n = 6" };
        var set = new[] { PatchOperation.Set("/n", 9) };
        await Suite.Refused(() => container.PatchItemAsync<JObject>("1", A, set, options), 412);
        await Suite.Refused(() => container.PatchItemAsync<JObject>("2", A, set), 404);
        var wrong = new[] { PatchOperation.Remove("/none") };
        await Suite.Refused(() => container.PatchItemAsync<JObject>("1", A, wrong), 400);
        var quiet = new PatchItemRequestOptions { EnableContentResponseOnWrite = false };
        Suite.Equal((await container.PatchItemAsync<JObject>("1", A, set, quiet)).Resource, null);
    }

    private async Task Expiry()
    {
        var properties = new ContainerProperties(Guid.NewGuid().ToString(), "/pk");
        properties.DefaultTimeToLive = -1;
        var container = await suite.Container(properties, 400);
        var brief = Suite.Item("1", "a");
        brief["ttl"] = 1;
        await container.CreateItemAsync(brief, A);
        await container.CreateItemAsync(Suite.Item("2", "a"), A);
        await Suite.Until(async () =>
        {
            var all = await Suite.All(container.GetItemQueryIterator<JObject>());
            return all.Count == 1 && (string)all[0]["id"] == "2";
        });
        await container.CreateItemAsync(Suite.Item("1", "a"), A);
    }

    private async Task Hierarchy()
    {
        var paths = new List<string> { "/tenant", "/user", "/session" };
        var container = await suite.Container(
            new ContainerProperties(Guid.NewGuid().ToString(), paths), Suite.ThreeRanges);
        PartitionKey Key(params string[] parts)
        {
            var builder = new PartitionKeyBuilder();
            foreach (var part in parts) builder.Add(part);
            return builder.Build();
        }
        var keys = new[] { ("t", "u", "1"), ("t", "u", "2"), ("t", "v", "1"), ("s", "u", "1") };
        foreach (var (tenant, user, session) in keys)
        {
            var item = new JObject
            {
                ["id"] = "i", ["tenant"] = tenant, ["user"] = user, ["session"] = session,
            };
            await container.CreateItemAsync(item, Key(tenant, user, session));
        }
        var read = await container.ReadItemAsync<JObject>("i", Key("t", "u", "2"));
        Suite.Equal((string)read.Resource["session"], "2");
        foreach (var (key, count) in new[] { (Key("t"), 3), (Key("t", "u"), 2), (Key("t", "u", "1"), 1) })
        {
            var options = new QueryRequestOptions { PartitionKey = key };
            var found = await Suite.All(
                container.GetItemQueryIterator<JObject>("SELECT * FROM c", null, options));
            Suite.Equal(found.Count, count);
        }
        await Suite.Refused(() => container.ReadItemAsync<JObject>("i", Key("t", "u")), 400);
    }

    private async Task Keys()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        var keys = new (PartitionKey, JToken)[]
        {
            (new PartitionKey("text"), "text"),
            (new PartitionKey("ünï → 😀"), "ünï → 😀"),
            (new PartitionKey(12.5), 12.5),
            (new PartitionKey(true), true),
            (PartitionKey.Null, JValue.CreateNull()),
            (PartitionKey.None, null),
        };
        foreach (var (key, value) in keys)
        {
            var item = new JObject { ["id"] = "same" };
            if (value != null) item["pk"] = value;
            await container.CreateItemAsync(item, key);
            var read = await container.ReadItemAsync<JObject>("same", key);
            Suite.Equal(JToken.DeepEquals(read.Resource["pk"], value), true);
            var options = new QueryRequestOptions { PartitionKey = key };
            var query = container.GetItemQueryIterator<JObject>("SELECT * FROM c", null, options);
            Suite.Equal((await Suite.All(query)).Count, 1);
        }
        Suite.Equal((await Suite.All(container.GetItemQueryIterator<JObject>())).Count, keys.Length);
    }

    private async Task Many()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        var wanted = new List<(string, PartitionKey)>();
        for (int n = 0; n < 200; n += 1)
        {
            var key = "key " + n % 20;
            await container.CreateItemAsync(Suite.Item("" + n, key, n), new PartitionKey(key));
            wanted.Add(("" + n, new PartitionKey(key)));
        }
        wanted.Add(("none", A));
        var found = await container.ReadManyItemsAsync<JObject>(wanted);
        Suite.Same(
            found.Select(it => (int)it["n"]).OrderBy(it => it), Enumerable.Range(0, 200).ToArray());
    }

    private async Task Names()
    {
        var container = await suite.Container(400);
        var ids = new[]
        {
            "with space", "ä€😀", "a+b&c=d", "100%", "a:b;c,d@e", "'\"<>|", "{}[]^`~", "dots...", "what?", "?", "=.-_",
        };
        foreach (var id in ids)
        {
            await container.CreateItemAsync(Suite.Item(id, "a"), A);
            Suite.Equal((string)(await Read(container, id))["id"], id);
            await container.ReplaceItemAsync(Suite.Item(id, "a", 1), id, A);
            await container.DeleteItemAsync<JObject>(id, A);
        }
    }

    private async Task Sessions()
    {
        var container = await suite.Container(400);
        var created = await container.CreateItemAsync(Suite.Item("1", "a"), A);
        using var other = Suite.Client();
        var same = other.GetContainer(suite.Database.Id, container.Id);
        var options = new ItemRequestOptions { SessionToken = created.Headers.Session };
        Suite.Equal((await same.ReadItemAsync<JObject>("1", A, options)).StatusCode, HttpStatusCode.OK);
        options.SessionToken = "0:-1#1000000";
        var refused = await Suite.Refused(() => same.ReadItemAsync<JObject>("1", A, options), 404);
        Suite.Equal(refused.SubStatusCode, 1002);
        // What a refused batch and a query of all ranges have seen can be read by others.
        var batch = await container.CreateTransactionalBatch(A).ReadItem("none").ExecuteAsync();
        var pages = container.GetItemQueryIterator<JObject>("SELECT * FROM c");
        var page = await pages.ReadNextAsync();
        foreach (var token in new[] { batch.Headers.Session, page.Headers.Session })
        {
            options.SessionToken = token;
            var read = await same.ReadItemAsync<JObject>("1", A, options);
            Suite.Equal(read.StatusCode, HttpStatusCode.OK);
        }
    }

    private async Task Unique()
    {
        var properties = new ContainerProperties(Guid.NewGuid().ToString(), "/pk");
        var unique = new UniqueKey();
        unique.Paths.Add("/mail");
        properties.UniqueKeyPolicy.UniqueKeys.Add(unique);
        var container = await suite.Container(properties, 400);
        JObject With(string id, string key, string mail)
        {
            var item = Suite.Item(id, key);
            item["mail"] = mail;
            return item;
        }
        await container.CreateItemAsync(With("1", "a", "x"), A);
        await Suite.Refused(() => container.CreateItemAsync(With("2", "a", "x"), A), 409);
        await container.CreateItemAsync(With("2", "b", "x"));
    }

    private async Task Again()
    {
        var container = await suite.Container(400);
        await container.CreateItemAsync(Suite.Item("1", "a"), A);
        using (var other = Suite.Client())
        {
            var same = other.GetContainer(suite.Database.Id, container.Id);
            await same.DeleteContainerAsync();
            var database = other.GetDatabase(suite.Database.Id);
            await database.CreateContainerAsync(container.Id, "/pk", Suite.ThreeRanges);
        }
        await Suite.Refused(() => Read(container, "1"), 404);
        for (int n = 0; n < 10; n += 1) await container.CreateItemAsync(Suite.Item("" + n, "key " + n));
        var found = await Suite.All(
            container.GetItemQueryIterator<JObject>("SELECT * FROM c ORDER BY c.id"));
        Suite.Equal(found.Count, 10);
    }

    private static async Task<JObject> Read(Container container, string id) =>
        await container.ReadItemAsync<JObject>(id, A);
}
