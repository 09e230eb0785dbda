using System;
using System.Collections.Generic;
using System.Linq;
using System.Net;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

/// <summary>Runs the tests of the file that its argument names.</summary>
public static class Program
{
    public static async Task<int> Main(string[] arguments)
    {
        var suite = await Suite.Start();
        switch (arguments[0])
        {
            case "Items": await new Items(suite).Run(); break;
            case "Batches": await new Batches(suite).Run(); break;
            case "Queries": await new Queries(suite).Run(); break;
            case "Feed": await new Feed(suite).Run(); break;
            default: throw new ArgumentException("there is no file " + arguments[0]);
        }
        return await suite.End();
    }
}

/// <summary>
/// What all files share: a client, a database of their own, and how tests are run and told of.
/// </summary>
public sealed class Suite
{
    /// <summary>Enough for three ranges, so that queries have something to merge.</summary>
    public const int ThreeRanges = 18000;

    public Database Database { get; private set; }
    private CosmosClient client;
    private int failed;

    public static async Task<Suite> Start()
    {
        var suite = new Suite { client = Client() };
        suite.Database = await suite.client.CreateDatabaseAsync("dotnet-" + Guid.NewGuid());
        return suite;
    }

    /// <summary>Gateway mode: the other one speaks to replicas, which are not served.</summary>
    public static CosmosClient Client(bool isBulk = false, RequestHandler watcher = null)
    {
        var options = new CosmosClientOptions
        {
            ConnectionMode = ConnectionMode.Gateway,
            AllowBulkExecution = isBulk,
            // The certificate is of the gateway's own making.
            ServerCertificateCustomValidationCallback = (_, _, _) => true,
        };
        if (watcher != null) options.CustomHandlers.Add(watcher);
        var address = Environment.GetEnvironmentVariable("ACCOUNT_HOST");
        return new CosmosClient(address, Environment.GetEnvironmentVariable("ACCOUNT_KEY"), options);
    }

    /// <summary>
    /// Runs a test and says how it went, in the words of the Test Anything Protocol.
    /// </summary>
    public async Task Test(string name, Func<Task> test)
    {
        try
        {
            await test();
            Console.WriteLine("ok - " + name);
        }
        catch (Exception error)
        {
            failed += 1;
            Console.WriteLine("not ok - " + name);
            Console.WriteLine(error);
        }
    }

    /// <summary>Deletes the database; what the program ends with.</summary>
    public async Task<int> End()
    {
        await Database.DeleteAsync();
        client.Dispose();
        return failed == 0 ? 0 : 1;
    }

    /// <summary>A container partitioned by `/pk`.</summary>
    public Task<Container> Container(int throughput) =>
        Container(new ContainerProperties(Guid.NewGuid().ToString(), "/pk"), throughput);

    public async Task<Container> Container(ContainerProperties properties, int throughput) =>
        await Database.CreateContainerAsync(properties, throughput);

    public static JObject Item(string id, string key, int? number = null)
    {
        var item = new JObject { ["id"] = id, ["pk"] = key };
        if (number != null) item["n"] = number;
        return item;
    }

    public static async Task<List<T>> All<T>(FeedIterator<T> iterator)
    {
        var found = new List<T>();
        while (iterator.HasMoreResults) found.AddRange(await iterator.ReadNextAsync());
        return found;
    }

    public static void Equal<T>(T found, T expected)
    {
        if (!EqualityComparer<T>.Default.Equals(found, expected))
        {
            throw new Exception($"found {found}, expected {expected}");
        }
    }

    public static void Same<T>(IEnumerable<T> found, params T[] expected) =>
        Equal(string.Join(", ", found), string.Join(", ", expected));

    /// <summary>Calls what has to be refused with this status.</summary>
    public static async Task<CosmosException> Refused(Func<Task> call, int status)
    {
        try
        {
            await call();
        }
        catch (CosmosException error) when (error.StatusCode == (HttpStatusCode)status)
        {
            return error;
        }
        throw new Exception("it was not refused");
    }

    /// <summary>Repeats what has to become true, and fails if it does not within a minute.</summary>
    public static async Task Until(Func<Task<bool>> condition)
    {
        for (int tries = 0; tries < 600; tries += 1)
        {
            if (await condition()) return;
            await Task.Delay(100);
        }
        throw new Exception("it did not become true");
    }
}
