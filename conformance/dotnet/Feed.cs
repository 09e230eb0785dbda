using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Linq.Expressions;
using System.Net;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

/// <summary>
/// The change feed in both modes, pulled, and through the change feed processor with its leases.
/// </summary>
public sealed class Feed
{
    private readonly Suite suite;

    public Feed(Suite suite) => this.suite = suite;

    public async Task Run()
    {
        await suite.Test("the latest versions come from the beginning, once, and go on", Latest);
        await suite.Test("now and a time are places to start at", Starts);
        await suite.Test("a range and a key have feeds of their own", Parts);
        await suite.Test("all versions and deletes come in their order", AllVersions);
        await suite.Test("it goes on after a range was split", Split);
        await suite.Test("a processor sees every item, also after another took over", TakenOver);
        await suite.Test("a processor goes on after a range was split", ProcessorSplit);
        await suite.Test("a processor checkpoints when it is told to", Manual);
        await suite.Test("what a processor has before it is estimated", Estimated);
        await suite.Test("a processor sees all versions and deletes", ProcessorOfVersions);
    }

    private async Task Latest()
    {
        foreach (var throughput in new[] { 400, Suite.ThreeRanges })
        {
            var container = await suite.Container(throughput);
            await Fill(container, 0, 20);
            await container.UpsertItemAsync(Suite.Item("1", "key 1", 100));
            var start = ChangeFeedStartFrom.Beginning();
            var (found, token) = await Drain(container, start, ChangeFeedMode.Incremental, 3);
            Suite.Equal(found.Count, 20);
            await container.CreateItemAsync(Suite.Item("new", "new"));
            var (later, _) = await Drain(
                container, ChangeFeedStartFrom.ContinuationToken(token), ChangeFeedMode.Incremental);
            Suite.Same(later.Select(Id), "new");
        }
    }

    private async Task Starts()
    {
        var container = await suite.Container(400);
        await Fill(container, 0, 5);
        var (none, now) = await Drain(container, ChangeFeedStartFrom.Now(), ChangeFeedMode.LatestVersion);
        Suite.Equal(none.Count, 0);
        await Task.Delay(1100);
        var time = DateTime.UtcNow;
        await Task.Delay(1100);
        await container.CreateItemAsync(Suite.Item("late", "late"));
        var starts = new[] { ChangeFeedStartFrom.ContinuationToken(now), ChangeFeedStartFrom.Time(time) };
        foreach (var start in starts)
        {
            var (found, _) = await Drain(container, start, ChangeFeedMode.LatestVersion);
            Suite.Same(found.Select(Id), "late");
        }
    }

    private async Task Parts()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        await Fill(container, 0, 30);
        var all = new List<string>();
        foreach (var range in await container.GetFeedRangesAsync())
        {
            var start = ChangeFeedStartFrom.Beginning(range);
            var (found, _) = await Drain(container, start, ChangeFeedMode.LatestVersion);
            all.AddRange(found.Select(Id));
        }
        Suite.Equal(all.Distinct().Count(), 30);
        Suite.Equal(all.Count, 30);
        var key = FeedRange.FromPartitionKey(new PartitionKey("key 7"));
        var (own, _) = await Drain(container, ChangeFeedStartFrom.Beginning(key), ChangeFeedMode.LatestVersion);
        Suite.Same(own.Select(Id), "7");
    }

    private async Task AllVersions()
    {
        var container = await WithVersions();
        var (none, token) = await Drain(container, ChangeFeedStartFrom.Now(), AllVersionsAndDeletes);
        Suite.Equal(none.Count, 0);
        await Change(container);
        var later = ChangeFeedStartFrom.ContinuationToken(token);
        var (found, _) = await Drain(container, later, AllVersionsAndDeletes);
        Suite.Same(found.Select(it => (string)it["metadata"]["operationType"]), "create", "replace", "delete");
        Suite.Equal((int)found[1]["current"]["n"], 2);
    }

    private async Task Split()
    {
        var container = await suite.Container(400);
        await Fill(container, 0, 20);
        var options = new ChangeFeedRequestOptions { PageSizeHint = 4 };
        var iterator = container.GetChangeFeedIterator<JObject>(
            ChangeFeedStartFrom.Beginning(), ChangeFeedMode.LatestVersion, options);
        var page = await iterator.ReadNextAsync();
        var found = page.Select(Id).ToList();
        await container.ReplaceThroughputAsync(11000);
        await container.CreateItemAsync(Suite.Item("late", "late"));
        var later = ChangeFeedStartFrom.ContinuationToken(page.ContinuationToken);
        var (rest, _) = await Drain(container, later, ChangeFeedMode.LatestVersion);
        found.AddRange(rest.Select(Id));
        Suite.Equal(found.Distinct().Count(), 21);
        var same = new List<string>(page.Select(Id));
        while (true)
        {
            page = await iterator.ReadNextAsync();
            if (page.StatusCode == HttpStatusCode.NotModified) break;
            same.AddRange(page.Select(Id));
        }
        Suite.Equal(same.Distinct().Count(), 21);
    }

    private async Task TakenOver()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        var leases = await Leases();
        var seen = new ConcurrentDictionary<string, string>();
        Container.ChangeFeedHandler<JObject> handler = (context, changes, _) =>
        {
            foreach (var change in changes) seen[Id(change)] = context.LeaseToken;
            return Task.CompletedTask;
        };
        ChangeFeedProcessor Instance(string name) =>
            Quick(container.GetChangeFeedProcessorBuilder("reader", handler), name, leases).Build();
        await Fill(container, 0, 30);
        var first = Instance("first");
        await first.StartAsync();
        await Suite.Until(() => Task.FromResult(seen.Count == 30));
        Suite.Equal(seen.Values.Distinct().Count(), 3);
        var second = Instance("second");
        await second.StartAsync();
        await Suite.Until(async () => (await Owners(leases)).Contains("second"));
        await first.StopAsync();
        await Fill(container, 30, 30);
        await Suite.Until(() => Task.FromResult(seen.Count == 60));
        await second.StopAsync();
    }

    private async Task ProcessorSplit()
    {
        var container = await suite.Container(400);
        var leases = await Leases();
        var seen = new ConcurrentDictionary<string, bool>();
        var processor = Quick(container.GetChangeFeedProcessorBuilder<JObject>("reader", (changes, _) =>
        {
            foreach (var change in changes) seen[Id(change)] = true;
            return Task.CompletedTask;
        }), "one", leases).Build();
        await processor.StartAsync();
        await Fill(container, 0, 10);
        await Suite.Until(() => Task.FromResult(seen.Count == 10));
        await container.ReplaceThroughputAsync(21000);
        await Fill(container, 10, 30);
        await Suite.Until(() => Task.FromResult(seen.Count == 40));
        Suite.Equal((await Owners(leases)).Count, 3);
        await processor.StopAsync();
    }

    private async Task Manual()
    {
        var container = await suite.Container(400);
        var leases = await Leases();
        var seen = new ConcurrentQueue<string>();
        ChangeFeedProcessor Instance(bool checkpoints)
        {
            Container.ChangeFeedStreamHandlerWithManualCheckpoint handler = async (_, changes, checkpoint, _) =>
            {
                var text = await new StreamReader(changes).ReadToEndAsync();
                foreach (var change in JObject.Parse(text)["Documents"]) seen.Enqueue((string)change["id"]);
                if (checkpoints) await checkpoint();
            };
            var builder = container.GetChangeFeedProcessorBuilderWithManualCheckpoint("reader", handler);
            return Quick(builder, "one", leases).Build();
        }
        await Fill(container, 0, 3);
        foreach (var (checkpoints, count) in new[] { (false, 3), (true, 6), (true, 6) })
        {
            var processor = Instance(checkpoints);
            await processor.StartAsync();
            await Suite.Until(() => Task.FromResult(count <= seen.Count));
            await Task.Delay(500);
            await processor.StopAsync();
            Suite.Equal(seen.Count, count);
        }
    }

    private async Task Estimated()
    {
        var container = await suite.Container(Suite.ThreeRanges);
        var leases = await Leases();
        var seen = new ConcurrentDictionary<string, bool>();
        var processor = Quick(container.GetChangeFeedProcessorBuilder<JObject>("reader", (changes, _) =>
        {
            foreach (var change in changes) seen[Id(change)] = true;
            return Task.CompletedTask;
        }), "one", leases).Build();
        await Fill(container, 0, 10);
        await processor.StartAsync();
        await Suite.Until(() => Task.FromResult(seen.Count == 10));
        var estimator = container.GetChangeFeedEstimator("reader", leases);
        async Task<List<ChangeFeedProcessorState>> States() =>
            await Suite.All(estimator.GetCurrentStateIterator());
        await Suite.Until(async () => (await States()).Sum(it => it.EstimatedLag) == 0);
        await processor.StopAsync();
        await Fill(container, 10, 25);
        var states = await States();
        Suite.Equal(states.Count, 3);
        Suite.Equal(states.Sum(it => it.EstimatedLag), 25L);
        long told = -1;
        var watch = container.GetChangeFeedEstimatorBuilder("reader", (lag, _) =>
        {
            Interlocked.Exchange(ref told, lag);
            return Task.CompletedTask;
        }, TimeSpan.FromMilliseconds(200)).WithLeaseContainer(leases).Build();
        await watch.StartAsync();
        await Suite.Until(() => Task.FromResult(Interlocked.Read(ref told) == 25));
        await watch.StopAsync();
    }

    private async Task ProcessorOfVersions()
    {
        var container = await WithVersions();
        var leases = await Leases();
        var seen = new ConcurrentQueue<string>();
        var change = Sdk.GetType("Microsoft.Azure.Cosmos.ChangeFeedItem`1").MakeGenericType(typeof(JObject));
        var handler = typeof(Container).GetNestedType("ChangeFeedHandler`1").MakeGenericType(change);
        Func<IEnumerable<object>, Task> note = changes =>
        {
            foreach (var one in changes) seen.Enqueue(Property(Property(one, "Metadata"), "OperationType").ToString());
            return Task.CompletedTask;
        };
        // A handler of a type that only the SDK can name.
        var parameters = handler.GetMethod("Invoke").GetParameters()
            .Select(it => Expression.Parameter(it.ParameterType)).ToArray();
        var body = Expression.Invoke(Expression.Constant(note), parameters[1]);
        var typed = Expression.Lambda(handler, body, parameters).Compile();
        var make = container.GetType().GetMethods(Hidden)
            .First(it => it.Name == "GetChangeFeedProcessorBuilderWithAllVersionsAndDeletes");
        var builder = (ChangeFeedProcessorBuilder)make.MakeGenericMethod(typeof(JObject))
            .Invoke(container, new object[] { "versions", typed });
        var processor = Quick(builder, "one", leases, fromBeginning: false).Build();
        await processor.StartAsync();
        // It begins with what comes after it has looked for the first time.
        var probes = 0;
        await Suite.Until(async () =>
        {
            await container.CreateItemAsync(Suite.Item($"probe {probes++}", "a", 0));
            return !seen.IsEmpty;
        });
        await Change(container);
        await Suite.Until(() => Task.FromResult(seen.Contains("Delete")));
        await processor.StopAsync();
        Suite.Same(seen.TakeLast(3), "Create", "Replace", "Delete");
    }

    // The other mode is public in previews of the SDK only; the code is in every one.

    private const BindingFlags Hidden =
        BindingFlags.Instance | BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic;

    private static Assembly Sdk => typeof(Container).Assembly;

    private static object Property(object of, string name) =>
        of.GetType().GetProperty(name, Hidden).GetValue(of);

    private static ChangeFeedMode AllVersionsAndDeletes =>
        (ChangeFeedMode)typeof(ChangeFeedMode).GetProperty("AllVersionsAndDeletes", Hidden).GetValue(null);

    private async Task<Container> WithVersions()
    {
        var properties = new ContainerProperties(Guid.NewGuid().ToString(), "/pk");
        var property = typeof(ContainerProperties).GetProperty("ChangeFeedPolicy", Hidden);
        var policy = Activator.CreateInstance(property.PropertyType);
        var retention = property.PropertyType.GetProperty("FullFidelityRetention", Hidden);
        retention.SetValue(policy, TimeSpan.FromMinutes(5));
        property.SetValue(properties, policy);
        return await suite.Container(properties, 400);
    }

    private static async Task Change(Container container)
    {
        await container.CreateItemAsync(Suite.Item("1", "a", 1));
        await container.UpsertItemAsync(Suite.Item("1", "a", 2));
        await container.DeleteItemAsync<JObject>("1", new PartitionKey("a"));
    }

    private async Task<Container> Leases() =>
        await suite.Container(new ContainerProperties(Guid.NewGuid().ToString(), "/id"), 400);

    private static ChangeFeedProcessorBuilder Quick(
        ChangeFeedProcessorBuilder builder, string name, Container leases, bool fromBeginning = true)
    {
        builder.WithInstanceName(name).WithLeaseContainer(leases)
            .WithPollInterval(TimeSpan.FromMilliseconds(100))
            .WithLeaseConfiguration(TimeSpan.FromSeconds(1), TimeSpan.FromSeconds(6), TimeSpan.FromSeconds(1));
        return fromBeginning ? builder.WithStartTime(DateTime.MinValue.ToUniversalTime()) : builder;
    }

    private static async Task<List<string>> Owners(Container leases)
    {
        var query = "SELECT * FROM c WHERE IS_DEFINED(c.Owner) AND c.Owner != null";
        var found = await Suite.All(leases.GetItemQueryIterator<JObject>(query));
        return found.Select(it => (string)it["Owner"]).ToList();
    }

    private static async Task Fill(Container container, int from, int count)
    {
        for (int n = from; n < from + count; n += 1)
        {
            await container.CreateItemAsync(Suite.Item("" + n, "key " + n, n));
        }
    }

    private static string Id(JObject item) => (string)item["id"];

    /// <summary>Reads until there is nothing new; what was found, and where to go on.</summary>
    private static async Task<(List<JObject>, string)> Drain(
        Container container, ChangeFeedStartFrom start, ChangeFeedMode mode, int pageSize = 100)
    {
        var options = new ChangeFeedRequestOptions { PageSizeHint = pageSize };
        using var iterator = container.GetChangeFeedIterator<JObject>(start, mode, options);
        var found = new List<JObject>();
        while (true)
        {
            var page = await iterator.ReadNextAsync();
            if (page.StatusCode == HttpStatusCode.NotModified) return (found, page.ContinuationToken);
            found.AddRange(page);
        }
    }
}
