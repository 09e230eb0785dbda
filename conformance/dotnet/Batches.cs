using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

/// <summary>Several operations in one request, which this SDK writes in HybridRow.</summary>
public sealed class Batches
{
    private static readonly PartitionKey A = new PartitionKey("a");

    private readonly Suite suite;

    public Batches(Suite suite) => this.suite = suite;

    public async Task Run()
    {
        await suite.Test("a batch is committed whole", Whole);
        await suite.Test("a batch that is refused changes nothing and says why", Refused);
        await suite.Test("conditions hold within a batch", Conditions);
        await suite.Test("a batch of more than a hundred operations is refused", TooMany);
        await suite.Test("a batch of more than 2 MiB is refused", TooLarge);
        await suite.Test("a batch takes every kind of key", Keys);
        await suite.Test("a batch may ask for no items in its answer", Quiet);
        await suite.Test("bulk requests go to the ranges of their keys", Bulk);
        await suite.Test("bulk requests go on after a range was split", BulkSplit);
        await suite.Test("bulk reads of more than an answer can hold all come", BulkLarge);
    }

    private async Task Whole()
    {
        var container = await suite.Container(400);
        await container.CreateItemAsync(Suite.Item("old", "a", 1), A);
        await container.CreateItemAsync(Suite.Item("gone", "a"), A);
        var response = await container.CreateTransactionalBatch(A)
            .CreateItem(Suite.Item("1", "a"))
            .UpsertItem(Suite.Item("2", "a"))
            .ReplaceItem("old", Suite.Item("old", "a", 2))
            .PatchItem("old", new[] { PatchOperation.Increment("/n", 3) })
            .ReadItem("old")
            .DeleteItem("gone")
            .ExecuteAsync();
        Suite.Equal(response.IsSuccessStatusCode, true);
        Suite.Same(Codes(response), 201, 201, 200, 200, 200, 204);
        var read = response.GetOperationResultAtIndex<JObject>(4);
        Suite.Equal((int)read.Resource["n"], 5);
        Suite.Equal((string)read.Resource["_etag"], read.ETag);
        Suite.Equal(0 < response.RequestCharge, true);
        var alone = await container.ReadItemAsync<JObject>("1", A);
        Suite.Equal(alone.ETag, response[0].ETag);
    }

    private async Task Refused()
    {
        var container = await suite.Container(400);
        await container.CreateItemAsync(Suite.Item("1", "a"), A);
        var response = await container.CreateTransactionalBatch(A)
            .CreateItem(Suite.Item("2", "a"))
            .CreateItem(Suite.Item("1", "a"))
            .DeleteItem("1")
            .ExecuteAsync();
        Suite.Equal(response.StatusCode, HttpStatusCode.Conflict);
        var reason = await new StreamReader(response[1].ResourceStream).ReadToEndAsync();
        Suite.Equal(reason.Contains("Conflict"), true);
        Suite.Same(Codes(response), 424, 409, 424);
        using var missing = await container.ReadItemStreamAsync("2", A);
        Suite.Equal(missing.StatusCode, HttpStatusCode.NotFound);
        var other = await container.CreateTransactionalBatch(A)
            .CreateItem(Suite.Item("3", "a"))
            .CreateItem(Suite.Item("4", "b"))
            .ExecuteAsync();
        Suite.Equal(other.StatusCode, HttpStatusCode.BadRequest);
        using var nothing = await container.ReadItemStreamAsync("3", A);
        Suite.Equal(nothing.StatusCode, HttpStatusCode.NotFound);
    }

    private async Task Conditions()
    {
        var container = await suite.Container(400);
        var created = await container.CreateItemAsync(Suite.Item("1", "a", 1), A);
        var unchanged = new TransactionalBatchItemRequestOptions { IfNoneMatchEtag = created.ETag };
        var current = new TransactionalBatchItemRequestOptions { IfMatchEtag = created.ETag };
        var done = await container.CreateTransactionalBatch(A)
            .ReadItem("1", unchanged)
            .ReplaceItem("1", Suite.Item("1", "a", 2), current)
            .ExecuteAsync();
        Suite.Same(Codes(done), 304, 200);
        var stale = await container.CreateTransactionalBatch(A)
            .CreateItem(Suite.Item("2", "a"))
            .DeleteItem("1", current)
            .ExecuteAsync();
        Suite.Same(Codes(stale), 424, 412);
        var filter = new TransactionalBatchPatchItemRequestOptions
        {
            FilterPredicate = "FROM c WHERE c.n = 1",
        };
        var patch = await container.CreateTransactionalBatch(A)
            .PatchItem("1", new[] { PatchOperation.Set("/n", 5) }, filter)
            .ExecuteAsync();
        Suite.Same(Codes(patch), 412);
    }

    private async Task TooMany()
    {
        var container = await suite.Container(400);
        var batch = container.CreateTransactionalBatch(A);
        for (int n = 0; n < 101; n += 1) batch.CreateItem(Suite.Item("" + n, "a"));
        var response = await batch.ExecuteAsync();
        Suite.Equal(response.StatusCode, HttpStatusCode.BadRequest);
        using var nothing = await container.ReadItemStreamAsync("0", A);
        Suite.Equal(nothing.StatusCode, HttpStatusCode.NotFound);
    }

    private async Task TooLarge()
    {
        var container = await suite.Container(400);
        var batch = container.CreateTransactionalBatch(A);
        for (int n = 0; n < 3; n += 1) batch.CreateItem(Large("" + n, "a", 900_000));
        var response = await batch.ExecuteAsync();
        Suite.Equal(response.StatusCode, HttpStatusCode.RequestEntityTooLarge);
    }

    private async Task Keys()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        var keys = new (PartitionKey, JToken)[]
        {
            (new PartitionKey("ünï 😀"), "ünï 😀"),
            (new PartitionKey(-1.5), -1.5),
            (new PartitionKey(false), false),
            (PartitionKey.Null, JValue.CreateNull()),
            (PartitionKey.None, null),
        };
        foreach (var (key, value) in keys)
        {
            var item = new JObject { ["id"] = "same" };
            if (value != null) item["pk"] = value;
            var response = await container.CreateTransactionalBatch(key)
                .CreateItem(item).ReadItem("same").ExecuteAsync();
            Suite.Same(Codes(response), 201, 200);
        }
        var paths = new List<string> { "/tenant", "/user" };
        var deep = await suite.Container(new ContainerProperties(Guid.NewGuid().ToString(), paths), 400);
        var both = new PartitionKeyBuilder().Add("t").Add("u").Build();
        var made = await deep.CreateTransactionalBatch(both)
            .CreateItem(new JObject { ["id"] = "1", ["tenant"] = "t", ["user"] = "u" })
            .ReadItem("1")
            .ExecuteAsync();
        Suite.Same(Codes(made), 201, 200);
    }

    private async Task Quiet()
    {
        var container = await suite.Container(400);
        var quiet = new TransactionalBatchItemRequestOptions { EnableContentResponseOnWrite = false };
        var response = await container.CreateTransactionalBatch(A)
            .CreateItem(Suite.Item("1", "a"), quiet)
            .UpsertItem(Suite.Item("2", "a"))
            .ExecuteAsync();
        Suite.Equal(response[0].ResourceStream, null);
        Suite.Equal(response[1].ResourceStream != null, true);
    }

    private async Task Bulk()
    {
        using var client = Suite.Client(isBulk: true);
        var made = await suite.Container(Suite.ThreeRanges);
        var container = client.GetContainer(suite.Database.Id, made.Id);
        var numbers = Enumerable.Range(0, 500);
        var creates = numbers.Select(
            n => container.CreateItemAsync(Suite.Item("" + n, "key " + n, n), new PartitionKey("key " + n)));
        var created = await Task.WhenAll(creates);
        Suite.Equal(created.All(it => it.StatusCode == HttpStatusCode.Created), true);
        Suite.Equal(created.All(it => it.ETag == (string)it.Resource["_etag"]), true);
        var one = new PartitionKey("key 1");
        var increment = new[] { PatchOperation.Increment("/n", 1) };
        var codes = await Task.WhenAll(
            Code(container.ReadItemAsync<JObject>("1", one)),
            Code(container.CreateItemAsync(Suite.Item("2", "key 2"), new PartitionKey("key 2"))),
            Code(container.DeleteItemAsync<JObject>("3", new PartitionKey("key 3"))),
            Code(container.UpsertItemAsync(Suite.Item("4", "key 4"), new PartitionKey("key 4"))),
            Code(container.PatchItemAsync<JObject>("5", new PartitionKey("key 5"), increment)),
            Code(container.ReplaceItemAsync(Suite.Item("6", "key 6"), "6", new PartitionKey("key 6"))),
            Code(container.DeleteItemAsync<JObject>("none", one)));
        Suite.Same(codes, 200, 409, 204, 200, 200, 200, 404);
    }

    private async Task BulkSplit()
    {
        using var client = Suite.Client(isBulk: true);
        var made = await suite.Container(400);
        var container = client.GetContainer(suite.Database.Id, made.Id);
        async Task Write(int from)
        {
            var upserts = Enumerable.Range(from, 200).Select(
                n => container.UpsertItemAsync(Suite.Item("" + n, "key " + n), new PartitionKey("key " + n)));
            var done = await Task.WhenAll(upserts);
            Suite.Equal(done.All(it => it.StatusCode == HttpStatusCode.Created), true);
        }
        await Write(0);
        await made.ReplaceThroughputAsync(21000);
        await Write(200);
        Suite.Equal((await Suite.All(made.GetItemQueryIterator<JObject>())).Count, 400);
    }

    private async Task BulkLarge()
    {
        var counter = new Counter();
        using var client = Suite.Client(isBulk: true, counter);
        var made = await suite.Container(400);
        var container = client.GetContainer(suite.Database.Id, made.Id);
        for (int n = 0; n < 12; n += 1) await made.CreateItemAsync(Large("" + n, "key " + n, 1_000_000));
        var reads = Enumerable.Range(0, 12).Select(
            n => container.ReadItemAsync<JObject>("" + n, new PartitionKey("key " + n)));
        foreach (var read in await Task.WhenAll(reads)) Suite.Equal(read.StatusCode, HttpStatusCode.OK);
        // An answer holds four of them, and the SDK asks again for the others.
        Suite.Equal(3 <= counter.Count, true);
        var patches = Enumerable.Range(0, 12).Select(n => container.PatchItemAsync<JObject>(
            "" + n, new PartitionKey("key " + n), new[] { PatchOperation.Add("/n", n) }));
        var patched = await Task.WhenAll(patches);
        Suite.Same(patched.Select(it => (int)it.Resource["n"]), Enumerable.Range(0, 12).ToArray());
    }

    private sealed class Counter : RequestHandler
    {
        public int Count;

        public override Task<ResponseMessage> SendAsync(RequestMessage request, CancellationToken cancellation)
        {
            Interlocked.Increment(ref Count);
            return base.SendAsync(request, cancellation);
        }
    }

    private static JObject Large(string id, string key, int bytes)
    {
        var item = Suite.Item(id, key);
        item["text"] = new string('x', bytes);
        return item;
    }

    private static IEnumerable<int> Codes(TransactionalBatchResponse response) =>
        response.Select(it => (int)it.StatusCode);

    private static async Task<int> Code<T>(Task<ItemResponse<T>> call)
    {
        try
        {
            return (int)(await call).StatusCode;
        }
        catch (CosmosException error)
        {
            return (int)error.StatusCode;
        }
    }
}
