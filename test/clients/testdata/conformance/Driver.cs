// Does what it is told with the .NET package: see features in conformance_test.go. With "own" among
// the arguments it shows what only the .NET package has.

using System;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Security.Cryptography.X509Certificates;
using System.Threading;
using System.Threading.Tasks;
using Lockproxy;

public static class Driver
{
    sealed class Mine : Exception { }

    static LockClient locks;
    static TcpClient reading; // stands for a client library
    static string host;
    static int port;

    public static int Main(string[] args)
    {
        host = args[0];
        port = int.Parse(args[1]);
        locks = new LockClient(host, port);
        locks.User = Environment.GetEnvironmentVariable("USERNAME");
        locks.Password = Environment.GetEnvironmentVariable("PASSWORD");
        var ca = Environment.GetEnvironmentVariable("CA");
        if (ca != null)
        {
            locks.TlsHost = "localhost";
            var authority = new X509Certificate2(ca);
            locks.CertificateValidation = (sender, certificate, chain, errors) =>
                certificate.Issuer == authority.Subject;
        }
        Run(args.Length > 2).GetAwaiter().GetResult();
        return 0;
    }

    static string[] Told()
    {
        var line = Console.In.ReadLine();
        return line == null ? new string[0] : line.Split(' ');
    }

    static void Say(string line) { Console.WriteLine(line.Replace("\n", " ")); }

    static async Task Run(bool own)
    {
        if (own)
            await Own();
        for (string[] line; !own && (line = Told()).Length > 0;)
        {
            try
            {
                await (line[0] == "lock" ? Lock(line) : Once(line));
            }
            catch (LockNotAcquiredException)
            {
                Say("refused");
            }
            catch (LockLostException)
            {
                Say("lost");
            }
            catch (Mine)
            {
                Say("raised");
            }
            catch (OperationCanceledException)
            {
                Say("cancelled");
            }
            catch (Exception e)
            {
                Say("error " + e.Message);
            }
        }
    }

    static OnceOptions Parse(string[] line)
    {
        var options = new OnceOptions { TimeToLive = key => Task.FromResult(TimeToLive(key)) };
        foreach (var option in line.Select(word => word.Split('=')).Where(o => o.Length > 1))
        {
            var time = TimeSpan.FromSeconds(double.Parse(option[1], CultureInfo.InvariantCulture));
            switch (option[0])
            {
                case "timeout": options.Timeout = time; break;
                case "max": options.Max = time; break;
                case "ttl": options.Ttl = time; break;
                case "early": options.Early = time; break;
                default:
                    options.Wait = time == TimeSpan.Zero ? Timeout.InfiniteTimeSpan : time;
                    break;
            }
        }
        return options;
    }

    static async Task Lock(string[] line)
    {
        var cancel = new CancellationTokenSource();
        if (line.Last() == "cancel")
            new Thread(() =>
            {
                Told();
                cancel.Cancel();
            }).Start();
        await locks.WithLockAsync(line[1], Parse(line), async (held, stop) =>
        {
            Say("held " + held.Token);
            for (string[] next; (next = Told())[0] != "leave";)
                await Step(held, stop, next);
        }, cancel.Token);
        Say("released");
    }

    static async Task Step(HeldLock held, CancellationToken stop, string[] line)
    {
        try
        {
            switch (line[0])
            {
                case "raise": throw new Mine();
                case "fence":
                    Say("reply " + await held.FenceAsync(line.Skip(1).ToArray()));
                    break;
                case "extend":
                    await held.ExtendAsync(TimeSpan.FromSeconds(int.Parse(line[1])));
                    Say("extended");
                    break;
                case "check":
                    held.ThrowIfLost();
                    Say("ok");
                    break;
                case "await":
                    try
                    {
                        await Task.Delay(Timeout.Infinite, stop);
                    }
                    catch (OperationCanceledException)
                    {
                        Say("told");
                    }
                    break;
            }
        }
        catch (LockLostException)
        {
            Say("lost");
        }
        catch (LockServerException e)
        {
            Say("error " + e.Message);
        }
    }

    static async Task Once(string[] line)
    {
        Say("value " + await locks.OnceAsync(line[1], key => Task.FromResult(Get(key)), Parse(line),
            async (claim, stop) =>
            {
                Say("make " + claim.Token);
                for (string[] next; ; await Step(claim, stop, next))
                    if ((next = Told())[0] == "value")
                        return next[1];
            }));
    }

    static string Get(string key) { return Ask("GET " + key) == "$-1" ? null : Line(); }

    static TimeSpan? TimeToLive(string key)
    {
        var left = long.Parse(Ask("PTTL " + key).Substring(1));
        return left < 0 ? (TimeSpan?)null : TimeSpan.FromMilliseconds(left);
    }

    static string Ask(string request)
    {
        if (reading == null)
            reading = new TcpClient(host, port);
        var bytes = System.Text.Encoding.UTF8.GetBytes(request + "\r\n");
        reading.GetStream().Write(bytes, 0, bytes.Length);
        return Line();
    }

    static string Line()
    {
        var line = "";
        for (int b; (b = reading.GetStream().ReadByte()) != '\n';)
            line += (char)b;
        return line.TrimEnd('\r');
    }

    static async Task Own()
    {
        await locks.WithLockAsync("own", null, async (held, stop) =>
        {
            var list = (object[])await held.FenceAsync("MGET", "own:none", "own:none");
            Check("a list of nulls", list.SequenceEqual(new object[] { null, null }));
        });
        Check("a result", await locks.WithLockAsync("own", new LockOptions { Owner = "me" },
            (held, stop) => Task.FromResult(5)) == 5);
        // The program's own cancellation ends the work, and frees the lock.
        var cancel = new CancellationTokenSource();
        await Raises<OperationCanceledException>(() => locks.WithLockAsync("own", null,
            (held, stop) =>
            {
                cancel.Cancel();
                return Task.Delay(Timeout.Infinite, stop);
            }, cancel.Token));
        await locks.WithLockAsync("own", null, (held, stop) => Task.FromResult(0));
        await Raises<OperationCanceledException>(() => locks.WithLockAsync("own", null,
            (held, stop) => Task.FromResult(0), cancel.Token));
        // Work that is cancelled by the loss ends with that.
        await Raises<LockLostException>(() => locks.WithLockAsync("own", null, (held, stop) =>
        {
            Ask("UNLOCK own FORCE");
            return Task.Delay(Timeout.Infinite, stop);
        }));
        await Raises<ArgumentException>(() => locks.OnceAsync("own", key => Task.FromResult("x"),
            new OnceOptions { Early = TimeSpan.FromSeconds(1) }, null));
    }

    static void Check(string what, bool ok)
    {
        if (!ok)
            throw new Exception(what);
    }

    static async Task Raises<E>(Func<Task> step) where E : Exception
    {
        try
        {
            await step();
        }
        catch (E)
        {
            return;
        }
        throw new Exception("no " + typeof(E));
    }
}
