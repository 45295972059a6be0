// clients/dotnet/Lockproxy.cs.
//
// usage: mono LockproxyTest.exe HOST PORT            every step
//        mono LockproxyTest.exe HOST PORT hold KEY   holds KEY until it is killed; wait KEY SECONDS waits

using System;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

public static class LockproxyTest
{
    const string Prefix = "helper:dotnet:";
    static Func<Task<Stream>> to;
    static string host;
    static int port;

    public static int Main(string[] args)
    {
        host = args[0];
        port = int.Parse(args[1]);
        to = Lockproxy.Tcp(host, port);
        if (args.Length > 2)
        {
            var options = Waits(args.Length > 4 ? double.Parse(args[4]) : (double?)null);
            Lockproxy.With(to, args[3], options, async held =>
            {
                Console.WriteLine("held");
                await Task.Delay(Timeout.Infinite, held.Lost);
            }).Wait();
        }
        Step("acquire", Acquire);
        Step("wait", Waits);
        Step("exception", Throws);
        Step("fence", Fence);
        Step("lost", Loses);
        Step("longest", Longest);
        Step("once", Makes);
        return 0;
    }

    static void Step(string name, Func<Task> run)
    {
        run().GetAwaiter().GetResult();
        Console.WriteLine("ok " + name);
    }

    static Lockproxy.Options Waits(double? seconds)
    {
        return new Lockproxy.Options { Timeout = 600, Wait = seconds };
    }

    static readonly Func<Lockproxy, Task> nothing = held => Task.FromResult(true);

    static void Check(string what, object got, object want)
    {
        if (!Equals(got, want))
            throw new Exception(what + ": got " + (got ?? "null") + ", want " + (want ?? "null"));
    }

    static async Task Raises<E>(string what, Func<Task> step) where E : Exception
    {
        try
        {
            await step();
        }
        catch (E)
        {
            return;
        }
        throw new Exception(what + ": no " + typeof(E));
    }

    static async Task Acquire()
    {
        var key = Prefix + "acquire";
        long first = 0;
        await Lockproxy.With(to, key, Waits(null), async held =>
        {
            first = held.Token;
            Check("token", first > 0, true);
            await Raises<Lockproxy.NotAcquiredException>("a second one",
                () => Lockproxy.With(to, key, Waits(null), nothing));
            await Raises<Lockproxy.NotAcquiredException>("a wait that ends",
                () => Lockproxy.With(to, key, Waits(0.1), nothing));
            held.Check();
        });
        var next = await Lockproxy.With(to, key, Waits(null), h => Task.FromResult(h.Token));
        Check("the next token is greater", next > first, true);
        await Raises<Lockproxy.RedisException>("a bad request", () => Lockproxy.With(to, key,
            new Lockproxy.Options { Timeout = -1 }, nothing));
        await Raises<Lockproxy.RedisException>("a bad password", () => Lockproxy.With(to, key,
            new Lockproxy.Options { Auth = new[] { "secret" } }, nothing));
        await Raises<SocketException>("nobody listens", () => Lockproxy.With(
            Lockproxy.Tcp("127.0.0.1", 1), key, Waits(null), nothing));
    }

    static async Task Waits()
    {
        var key = Prefix + "wait";
        Task<long> second = null;
        long first = 0;
        await Lockproxy.With(to, key, Waits(null), async held =>
        {
            first = held.Token;
            second = Lockproxy.With(to, key, Waits(0), other => Task.FromResult(other.Token));
            while (Ask("LOCKINFO " + key + " WAITERS").StartsWith("*0"))
                await Task.Delay(10);
            Check("given meanwhile", second.IsCompleted, false);
        });
        Check("the waiter's token is greater", await second > first, true);
    }

    static async Task Throws()
    {
        var key = Prefix + "exception";
        await Raises<InvalidOperationException>("the work's own error", () =>
            Lockproxy.With(to, key, Waits(null), held =>
            {
                throw new InvalidOperationException();
            }));
        await Lockproxy.With(to, key, Waits(null), nothing); // it is free
    }

    static async Task Fence()
    {
        var key = Prefix + "fence:value";
        await Lockproxy.With(to, Prefix + "fence", Waits(null), async held =>
        {
            Check("FENCE", await held.Fence("SET", key, "one"), "OK");
            Check("what is written", await held.Fence("GET", key), "one");
            Check("null", await held.Fence("GET", Prefix + "none"), null);
            var list = (object[])await held.Fence("MGET", key, Prefix + "none");
            Check("a list", list.SequenceEqual(new object[] { "one", null }), true);
            await Raises<Lockproxy.RedisException>("an error of the command",
                () => held.Fence("INCR", key));
        });
    }

    static async Task Loses()
    {
        var key = Prefix + "lost";
        await Raises<Lockproxy.LostException>("the end", () =>
            Lockproxy.With(to, key, Waits(null), async held =>
            {
                Check("UNLOCK FORCE", Ask("UNLOCK " + key + " FORCE"), ":1\r\n+OK\r\n");
                await Raises<OperationCanceledException>("what takes its token",
                    () => Task.Delay(Timeout.Infinite, held.Lost));
                await Raises<Lockproxy.LostException>("check", () =>
                {
                    held.Check();
                    return Task.FromResult(true);
                });
                await Raises<Lockproxy.LostException>("FENCE", () => held.Fence("SET", key, "1"));
            }));
        await Raises<Lockproxy.LostException>("work that is cancelled", () =>
            Lockproxy.With(to, key, Waits(null), async held =>
            {
                Ask("UNLOCK " + key + " FORCE");
                await Task.Delay(Timeout.Infinite, held.Lost);
            }));
    }

    static async Task Longest()
    {
        var options = new Lockproxy.Options { Timeout = 600, Max = 0.3, Owner = "me" };
        await Raises<Lockproxy.LostException>("the end", () => Lockproxy.With(to, Prefix + "max",
            options, held => Task.Delay(Timeout.Infinite, held.Lost)));
    }

    /// <summary>What a proxy answers to one request.</summary>
    static string Ask(string request)
    {
        using (var client = new TcpClient(host, port))
        using (var stream = client.GetStream())
        {
            var bytes = System.Text.Encoding.UTF8.GetBytes(request + "\r\nQUIT\r\n");
            stream.Write(bytes, 0, bytes.Length);
            return new StreamReader(stream).ReadToEnd();
        }
    }

    static string ClaimOf(string key)
    {
        var scan = Ask("LOCKSCAN 0 MATCH " + key + ":once:* COUNT 100000");
        return scan.Substring(scan.IndexOf(key)).Split('\r')[0];
    }

    static async Task Makes()
    {
        var key = Prefix + "once";
        var none = new Lockproxy.Options();
        Func<Lockproxy, Task<string>> fails = claim => { throw new InvalidOperationException(); };
        Task<string> second = null;
        var stores = new Lockproxy.Options { Ttl = 300 };
        Check("made", await Lockproxy.Once(to, key, stores, async claim =>
        {
            Check("token", claim.Token > 0, true);
            await Raises<Lockproxy.NotAcquiredException>("a second maker",
                () => Lockproxy.Once(to, key, none, fails));
            second = Lockproxy.Once(to, key, Waits(0), fails);
            while (Ask("LOCKINFO " + ClaimOf(key) + " WAITERS").StartsWith("*0"))
                await Task.Delay(10);
            return "the value";
        }), "the value");
        Check("given", await second, "the value");
        Check("there", await Lockproxy.Once(to, key, none, fails), "the value");
        Check("how long it lives", string.CompareOrdinal(Ask("TTL " + key), ":200") > 0, true);
        var early = new Lockproxy.Options { Early = 400, Ttl = 600 };
        Check("soon gone", await Lockproxy.Once(to, key, early, async claim =>
        {
            Check("while it is made again", await Lockproxy.Once(to, key, early, fails),
                "the value");
            return "newer";
        }), "newer");
        Check("stored", await Lockproxy.Once(to, key, none, fails), "newer");

        key += ":2";
        await Raises<InvalidOperationException>("the maker's own error",
            () => Lockproxy.Once(to, key, none, fails));
        await Raises<Lockproxy.LostException>("the end of a lost claim", () =>
            Lockproxy.Once(to, key, Waits(null), async claim =>
            {
                Ask("UNLOCK " + ClaimOf(key) + " FORCE");
                await Raises<OperationCanceledException>("the claim's token",
                    () => Task.Delay(Timeout.Infinite, claim.Lost));
                return "late";
            }));
        Check("what a lost claim stores", Ask("GET " + key), "$-1\r\n+OK\r\n");
        await Raises<Lockproxy.RedisException>("what DONE says", () => Lockproxy.Once(to, key,
            new Lockproxy.Options { Ttl = 0 }, claim => Task.FromResult("1")));
    }
}
