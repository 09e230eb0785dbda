using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Microsoft.Azure.Cosmos.Linq;
using Newtonsoft.Json;
using Newtonsoft.Json.Linq;

/// <summary>Queries over one partition and over several ranges, whose rows the SDK merges.</summary>
public sealed class Queries
{
    private const int Count = 120;

    private readonly Suite suite;
    private Container container;

    public Queries(Suite suite) => this.suite = suite;

    /// <summary>An item as an application would have it.</summary>
    public sealed class Order
    {
        [JsonProperty("id")]
        public string Id { get; set; }

        [JsonProperty("pk")]
        public string Customer { get; set; }

        [JsonProperty("n")]
        public int Number { get; set; }

        [JsonProperty("team")]
        public string Team { get; set; }

        [JsonProperty("tags")]
        public List<string> Tags { get; set; }

        [JsonProperty("address")]
        public Address Address { get; set; }
    }

    public sealed class Address
    {
        [JsonProperty("city")]
        public string City { get; set; }
    }

    public async Task Run()
    {
        container = await suite.Container(Suite.ThreeRanges);
        for (int n = 0; n < Count; n += 1)
        {
            await container.CreateItemAsync(new Order
            {
                Id = "" + n,
                Customer = "key " + n % 30,
                Number = n,
                Team = "abc"[n % 3].ToString(),
                Tags = n % 2 == 0 ? new List<string> { "even", "x" + n % 5 } : new List<string> { "odd" },
                Address = new Address { City = n % 4 == 0 ? null : "city " + n % 4 },
            });
        }
        await suite.Test("one partition is queried with parameters", OnePartition);
        await suite.Test("all items come, page by page", Everything);
        await suite.Test("rows of several ranges come in order", Ordered);
        await suite.Test("rows in order go on from any continuation", Continued);
        await suite.Test("several keys of an order are merged", SeveralKeys);
        await suite.Test("TOP and OFFSET LIMIT count over all ranges", Limited);
        await suite.Test("aggregates are of all ranges", Aggregates);
        await suite.Test("distinct rows are distinct over all ranges", Distinct);
        await suite.Test("groups are of all ranges", Groups);
        await suite.Test("arrays are joined, and queried within queries", Arrays);
        await suite.Test("every range can be queried alone", Ranges);
        await suite.Test("LINQ is translated to what is understood", Linq);
        await suite.Test("aggregates of LINQ are values", LinqAggregates);
        await suite.Test("functions of LINQ are understood", LinqFunctions);
        await suite.Test("values that are undefined or of several types have an order", Types);
        await suite.Test("a query goes on after a range was split", Split);
        await suite.Test("what is no query is refused with a reason", Wrong);
        await suite.Test("metrics of queries and of indexes are answered", Metrics);
    }

    private async Task OnePartition()
    {
        var text = "SELECT c.n FROM c WHERE c.n > @low AND c.team IN (@a, 'b') ORDER BY c.n";
        var query = new QueryDefinition(text)
            .WithParameter("@low", 5).WithParameter("@a", "a");
        var options = new QueryRequestOptions { PartitionKey = new PartitionKey("key 3") };
        var rows = await Suite.All(container.GetItemQueryIterator<JObject>(query, null, options));
        Suite.Same(rows.Select(it => (int)it["n"]), 33, 63, 93);
    }

    private async Task Everything()
    {
        var options = new QueryRequestOptions { MaxItemCount = 7 };
        foreach (var text in new[] { null, "SELECT * FROM c", "SELECT * FROM c WHERE c.n >= 0" })
        {
            var rows = await Suite.All(container.GetItemQueryIterator<Order>(text, null, options));
            Suite.Same(rows.Select(it => it.Number).OrderBy(it => it), Enumerable.Range(0, Count).ToArray());
        }
    }

    private async Task Ordered()
    {
        var numbers = await Values<int>("SELECT VALUE c.n FROM c ORDER BY c.n DESC", 10);
        Suite.Same(numbers, Enumerable.Range(0, Count).Reverse().ToArray());
        var cities = await Values<string>("SELECT VALUE c.address.city FROM c ORDER BY c.address.city", 11);
        Suite.Same(cities, cities.OrderBy(it => it, StringComparer.Ordinal).ToArray());
        Suite.Equal(cities.Count, Count);
    }

    private async Task Continued()
    {
        var texts = new[]
        {
            "SELECT VALUE c.n FROM c ORDER BY c.n",
            "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
            "SELECT VALUE c.n FROM c ORDER BY c.team, c.n DESC",
            "SELECT VALUE c.n FROM c",
            "SELECT TOP 50 VALUE c.n FROM c ORDER BY c.n",
            "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 50",
            "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team",
        };
        foreach (var text in texts)
        {
            var atOnce = await Values<string>(text, 100);
            var found = new List<string>();
            string token = null;
            do
            {
                var options = new QueryRequestOptions { MaxItemCount = 7 };
                using var pages = container.GetItemQueryIterator<string>(text, token, options);
                var page = await pages.ReadNextAsync();
                found.AddRange(page);
                token = page.ContinuationToken;
            }
            while (token != null);
            Suite.Same(found, atOnce.ToArray());
        }
    }

    private async Task SeveralKeys()
    {
        var rows = await Values<int>("SELECT VALUE c.n FROM c ORDER BY c.team ASC, c.n DESC", 9);
        var expected = Enumerable.Range(0, Count).OrderBy(it => it % 3).ThenByDescending(it => it);
        Suite.Same(rows, expected.ToArray());
    }

    private async Task Limited()
    {
        Suite.Same(
            await Values<int>("SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n DESC"), 119, 118, 117, 116, 115);
        Suite.Same(
            await Values<int>("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 4", 3), 10, 11, 12, 13);
        Suite.Equal((await Values<int>("SELECT TOP 17 VALUE c.n FROM c", 5)).Count, 17);
        Suite.Equal((await Values<int>("SELECT VALUE c.n FROM c OFFSET 100 LIMIT 50", 6)).Count, 20);
    }

    private async Task Aggregates()
    {
        Suite.Same(await Values<int>("SELECT VALUE COUNT(1) FROM c"), Count);
        Suite.Same(await Values<int>("SELECT VALUE SUM(c.n) FROM c"), 7140);
        Suite.Same(await Values<double>("SELECT VALUE AVG(c.n) FROM c"), 59.5);
        Suite.Same(await Values<int>("SELECT VALUE MAX(c.n) FROM c WHERE c.n < 50"), 49);
        Suite.Same(await Values<string>("SELECT VALUE MIN(c.team) FROM c"), "a");
        var rows = await Values<JObject>("SELECT COUNT(1) AS count, MAX(c.n) AS most FROM c");
        Suite.Same(rows.Select(it => it.ToString(Formatting.None)), "{\"count\":120,\"most\":119}");
        var lists = await Values<List<int>>("SELECT VALUE MAKELIST(c.n) FROM c");
        Suite.Same(lists.Single().OrderBy(it => it), Enumerable.Range(0, Count).ToArray());
        var sets = await Values<List<string>>("SELECT VALUE MAKESET(c.team) FROM c");
        Suite.Same(sets.Single().OrderBy(it => it), "a", "b", "c");
    }

    private async Task Distinct()
    {
        var teams = await Values<string>("SELECT DISTINCT VALUE c.team FROM c", 4);
        Suite.Same(teams.OrderBy(it => it), "a", "b", "c");
        teams = await Values<string>("SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team DESC", 4);
        Suite.Same(teams, "c", "b", "a");
        var rows = await Values<JObject>("SELECT DISTINCT c.team, c.address.city FROM c", 5);
        Suite.Equal(rows.Count, 12);
    }

    private async Task Groups()
    {
        var rows = await Values<JObject>(
            "SELECT c.team AS name, COUNT(1) AS count, SUM(c.n) AS total, AVG(c.n) AS mean, MIN(c.n) AS least "
            + "FROM c GROUP BY c.team");
        Suite.Same(
            rows.OrderBy(it => (string)it["name"])
                .Select(it => $"{it["name"]} {it["count"]} {it["total"]} {it["mean"]} {it["least"]}"),
            "a 40 2340 58.5 0", "b 40 2380 59.5 1", "c 40 2420 60.5 2");
        var names = await Values<string>("SELECT VALUE c.team FROM c GROUP BY c.team");
        Suite.Same(names.OrderBy(it => it), "a", "b", "c");
        rows = await Values<JObject>(
            "SELECT c.team AS name, MAKELIST(c.n) AS all, MAKESET(c.n % 2) AS rests FROM c GROUP BY c.team");
        Suite.Same(
            rows.OrderBy(it => (string)it["name"])
                .Select(it => $"{it["name"]} {it["all"].Count()} {string.Join(",", it["rests"].Select(it => (int)it).OrderBy(it => it))}"),
            "a 40 0,1", "b 40 0,1", "c 40 0,1");
    }

    private async Task Arrays()
    {
        var tags = await Values<string>("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags");
        Suite.Same(tags.OrderBy(it => it), "even", "odd", "x0", "x1", "x2", "x3", "x4");
        var found = await Values<int>("SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(c.tags, 'x2')");
        Suite.Equal(found.Count, 12);
        found = await Values<int>(
            "SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'odd')");
        Suite.Equal(found.Count, 60);
        var rows = await Values<JObject>(
            "SELECT c.id, ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) AS big, "
            + "(SELECT VALUE COUNT(1) FROM t IN c.tags) AS count FROM c WHERE c.n = 2");
        Suite.Same(
            rows.Select(it => it.ToString(Formatting.None)),
            "{\"id\":\"2\",\"big\":[\"EVEN\",\"X2\"],\"count\":2}");
    }

    private async Task Ranges()
    {
        var ranges = await container.GetFeedRangesAsync();
        Suite.Equal(ranges.Count, 3);
        var found = new List<int>();
        foreach (var range in ranges)
        {
            var query = new QueryDefinition("SELECT VALUE c.n FROM c ORDER BY c.n");
            var rows = await Suite.All(container.GetItemQueryIterator<int>(range, query));
            Suite.Same(rows, rows.OrderBy(it => it).ToArray());
            found.AddRange(rows);
        }
        Suite.Same(found.OrderBy(it => it), Enumerable.Range(0, Count).ToArray());
    }

    private async Task Linq()
    {
        var orders = container.GetItemLinqQueryable<Order>();
        var found = await Suite.All(orders
            .Where(it => it.Number < 20 && it.Team == "a" && it.Tags.Contains("even"))
            .OrderByDescending(it => it.Number)
            .Select(it => new { it.Id, Double = it.Number * 2 })
            .ToFeedIterator());
        Suite.Same(found.Select(it => it.Id + " " + it.Double), "18 36", "12 24", "6 12", "0 0");
        var skipped = await Suite.All(
            orders.OrderBy(it => it.Number).Skip(5).Take(3).Select(it => it.Number).ToFeedIterator());
        Suite.Same(skipped, 5, 6, 7);
        var tags = await Suite.All(orders
            .Where(it => it.Number == 2)
            .SelectMany(it => it.Tags.Where(tag => tag != "even"))
            .ToFeedIterator());
        Suite.Same(tags, "x2");
        var wanted = new[] { 3, 5, 500 };
        var listed = await Suite.All(orders.Where(it => wanted.Contains(it.Number)).ToFeedIterator());
        Suite.Same(listed.Select(it => it.Number).OrderBy(it => it), 3, 5);
        var groups = await Suite.All(orders.Select(it => it.Team).Distinct().ToFeedIterator());
        Suite.Same(groups.OrderBy(it => it), "a", "b", "c");
        var any = await Suite.All(orders.Where(it => it.Tags.Any(tag => tag == "x3")).ToFeedIterator());
        Suite.Equal(any.Count, 12);
        var two = await Suite.All(
            orders.OrderBy(it => it.Team).ThenByDescending(it => it.Number).Take(2).ToFeedIterator());
        Suite.Same(two.Select(it => it.Number), 117, 114);
        var many = Enumerable.Range(0, 1000).ToArray();
        var all = await Suite.All(orders.Where(it => many.Contains(it.Number)).ToFeedIterator());
        Suite.Equal(all.Count, Count);
    }

    private async Task LinqAggregates()
    {
        var orders = container.GetItemLinqQueryable<Order>();
        Suite.Equal(await orders.CountAsync(), Count);
        Suite.Equal(await orders.Where(it => it.Team == "b").CountAsync(), 40);
        Suite.Equal(await orders.Select(it => it.Number).SumAsync(), 7140);
        Suite.Equal(await orders.Select(it => it.Number).MaxAsync(), 119);
        Suite.Equal(await orders.Select(it => it.Number).MinAsync(), 0);
        Suite.Equal(await orders.Select(it => (double)it.Number).AverageAsync(), 59.5);
    }

    private async Task LinqFunctions()
    {
        var orders = container.GetItemLinqQueryable<Order>();
        var first = orders.Where(it => it.Number == 1);
        var row = (await Suite.All(first.Select(it => new
        {
            Upper = it.Customer.ToUpper(),
            Part = it.Customer.Substring(4, 1),
            Place = it.Customer.IndexOf("1"),
            Absolute = Math.Abs(it.Number - 5),
            Power = Math.Pow(it.Number + 1, 3),
            Whether = it.Customer.StartsWith("key") ? "yes" : "no",
            Tags = it.Tags.Count(),
            Defined = it.Address.City.IsDefined(),
            Both = it.Team + it.Id,
        }).ToFeedIterator())).Single();
        Suite.Equal(
            row.ToString(),
            "{ Upper = KEY 1, Part = 1, Place = 4, Absolute = 4, Power = 8, Whether = yes, Tags = 1, "
            + "Defined = True, Both = b1 }");
        var nulls = await Suite.All(orders.Where(it => it.Address.City.IsNull()).ToFeedIterator());
        Suite.Equal(nulls.Count, 30);
        var ends = await Suite.All(orders
            .Where(it => it.Customer.EndsWith("KEY 9", StringComparison.OrdinalIgnoreCase))
            .ToFeedIterator());
        Suite.Equal(ends.Count, 4);
    }

    private async Task Types()
    {
        var mixed = await suite.Container(Suite.ThreeRanges);
        var values = new JToken[] { null, JValue.CreateNull(), false, true, -1, 2.5, "", "text" };
        for (int n = 0; n < values.Length; n += 1)
        {
            var item = Suite.Item("" + n, "key " + n);
            if (values[n] != null) item["v"] = values[n];
            await mixed.CreateItemAsync(item);
        }
        var options = new QueryRequestOptions { MaxItemCount = 2 };
        foreach (var (direction, expected) in new[] { ("ASC", "0 1 2 3 4 5 6 7"), ("DESC", "7 6 5 4 3 2 1 0") })
        {
            var text = "SELECT VALUE c.id FROM c ORDER BY c.v " + direction;
            var rows = await Suite.All(mixed.GetItemQueryIterator<string>(text, null, options));
            Suite.Equal(string.Join(" ", rows), expected);
        }
        var kinds = await Suite.All(mixed.GetItemQueryIterator<string>(
            "SELECT DISTINCT VALUE (IS_NUMBER(c.v) ? 'number' : 'other') FROM c"));
        Suite.Same(kinds.OrderBy(it => it), "number", "other");
    }

    private async Task Split()
    {
        var own = await suite.Container(400);
        for (int n = 0; n < 40; n += 1) await own.CreateItemAsync(Suite.Item("" + n, "key " + n, n));
        foreach (var text in new[] { "SELECT VALUE c.n FROM c ORDER BY c.n", "SELECT VALUE c.n FROM c" })
        {
            var options = new QueryRequestOptions { MaxItemCount = 6 };
            var iterator = own.GetItemQueryIterator<int>(text, null, options);
            var found = new List<int>(await iterator.ReadNextAsync());
            var ranges = (await own.GetFeedRangesAsync()).Count;
            await own.ReplaceThroughputAsync(10000 * ranges + 1000);
            found.AddRange(await Suite.All(iterator));
            Suite.Same(found.OrderBy(it => it), Enumerable.Range(0, 40).ToArray());
        }
    }

    private async Task Wrong()
    {
        var texts = new[]
        {
            "SELECT", "SELECT * FROM c WHERE", "SELECT nothing(c) FROM c", "SELECT * FROM c ORDER BY",
        };
        foreach (var text in texts)
        {
            var error = await Suite.Refused(() => Values<JObject>(text), 400);
            Suite.Equal(string.IsNullOrEmpty(error.ResponseBody), false);
        }
    }

    private async Task Metrics()
    {
        var options = new QueryRequestOptions { PopulateIndexMetrics = true, MaxItemCount = 10 };
        using var pages = container.GetItemQueryIterator<JObject>(
            "SELECT * FROM c WHERE c.n > 3", null, options);
        var page = await pages.ReadNextAsync();
        Suite.Equal(page.IndexMetrics != null, true);
        Suite.Equal(page.Diagnostics.GetQueryMetrics() != null, true);
        Suite.Equal(page.Diagnostics.GetQueryMetrics().CumulativeMetrics.OutputDocumentCount, 10L);
    }

    private async Task<List<T>> Values<T>(string text, int pageSize = 100)
    {
        var options = new QueryRequestOptions { MaxItemCount = pageSize };
        return await Suite.All(container.GetItemQueryIterator<T>(text, null, options));
    }
}
