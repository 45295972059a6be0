using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

/// <summary>
/// Locks of lockproxy: copy this file into your program. It needs no package, since a lock has a
/// connection of its own; next to StackExchange.Redis use it as it is.
/// <code>
/// var to = Lockproxy.Tcp("127.0.0.1", 6380);
/// await Lockproxy.With(to, "report", new Lockproxy.Options { Wait = 5 }, async held => {
///     await held.Fence("SET", "report:state", "done"); // refused if the lock was lost
///     await Work(held.Lost);                           // cancelled as soon as the lock is lost
/// });
/// </code>
/// The lock lasts until the work ends, however that is, or until the program dies. Once() makes a
/// value once for all who ask for it.
/// </summary>
public sealed class Lockproxy : IDisposable
{
    /// <summary>Another client has the lock, or still had it when the wait ended.</summary>
    public sealed class NotAcquiredException : Exception
    {
        internal NotAcquiredException(string does, string key)
            : base("another client " + does + " \"" + key + "\"") { }
    }

    /// <summary>The lock was lost while it was in use: another client can hold it.</summary>
    public sealed class LostException : Exception
    {
        internal LostException(string key) : base("the lock \"" + key + "\" was lost") { }
    }

    /// <summary>An error reply.</summary>
    public sealed class RedisException : Exception
    {
        internal RedisException(string text) : base(text) { }
    }

    /// <summary>What LOCK is asked for. Times are in seconds.</summary>
    public sealed class Options
    {
        /// <summary>How long a crashed proxy can leave the lock behind.</summary>
        public double Timeout = 10;
        /// <summary>0 waits forever. Without it a held lock is refused at once.</summary>
        public double? Wait;
        /// <summary>How long the lock is held at most, also if the work hangs.</summary>
        public double? Max;
        /// <summary>For Once: how long the value is stored; without it until deleted.</summary>
        public double? Ttl;
        /// <summary>For Once: so long before it expires one client makes it again.</summary>
        public double? Early;
        /// <summary>Who holds the lock, for people; by default program, host, process.</summary>
        public string Owner;
        /// <summary>A password, or a user and a password.</summary>
        public string[] Auth = { };
    }

    const double AnswerWithin = 10, PingEvery = 1; // seconds: balancers cut what is idle
    const double AwayWithin = 30; // seconds: a proxy that is being restarted is back by then

    /// <summary>Rises with every acquisition: it fences other databases too.</summary>
    public long Token { get; private set; }

    /// <summary>Is cancelled as soon as the lock is lost.</summary>
    public CancellationToken Lost { get { return lost.Token; } }

    string made; // the value that ONCE has answered
    readonly string key;
    readonly Stream stream;
    readonly Queue<TaskCompletionSource<object>> owed = new Queue<TaskCompletionSource<object>>();
    readonly SemaphoreSlim writing = new SemaphoreSlim(1);
    readonly CancellationTokenSource lost = new CancellationTokenSource();
    readonly CancellationTokenSource closing = new CancellationTokenSource();
    readonly Stopwatch clock = Stopwatch.StartNew();
    readonly byte[] buffer = new byte[4096];
    int at, end;     // what has been read of buffer
    bool ended;      // guarded by owed, as is heard
    TimeSpan heard;
    double? most;    // seconds without an answer; then it is lost. None while LOCK waits

    /// <summary>Connects without TLS. For TLS return an SslStream instead.</summary>
    public static Func<Task<Stream>> Tcp(string host, int port)
    {
        return async () =>
        {
            var client = new TcpClient { NoDelay = true };
            await client.ConnectAsync(host, port).ConfigureAwait(false);
            return client.GetStream();
        };
    }

    /// <summary>Holds a lock while work runs. If it is lost, work is cancelled by its token, and
    /// the end throws LostException.</summary>
    public static async Task<T> With<T>(Func<Task<Stream>> to, string key, Options options,
        Func<Lockproxy, Task<T>> work)
    {
        using (var held = await Asking(to, key, options, "LOCK", key, Number(options.Timeout))
            .ConfigureAwait(false))
        {
            if (held.Token == 0)
                throw new NotAcquiredException("holds the lock", key);
            var result = await held.Run(work, "UNLOCK").ConfigureAwait(false);
            await held.Finish("UNLOCK", key, Number(held.Token)).ConfigureAwait(false);
            return result;
        }
    }

    /// <summary>The same for work without a result.</summary>
    public static Task With(Func<Task<Stream>> to, string key, Options options,
        Func<Lockproxy, Task> work)
    {
        return With(to, key, options, async held =>
        {
            await work(held).ConfigureAwait(false);
            return true;
        });
    }

    /// <summary>
    /// Returns the value of key. If there is none, one client makes it, and all have it. It has a
    /// connection of its own: ask your client library for the value first. If make throws, the
    /// claim is given up. Clients that ask meanwhile wait for the value, as long as options say;
    /// then NotAcquiredException is thrown. If the claim is lost nothing is stored.
    /// </summary>
    public static async Task<string> Once(Func<Task<Stream>> to, string key, Options options,
        Func<Lockproxy, Task<string>> make)
    {
        var words = new List<string> { "ONCE", key, Number(options.Timeout) };
        if (options.Early != null)
            words.AddRange(new[] { "EARLY", Number(options.Early.Value) });
        using (var claim = await Asking(to, key, options, words.ToArray()).ConfigureAwait(false))
        {
            if (claim.made != null)
                return claim.made;
            if (claim.Token == 0)
                throw new NotAcquiredException("makes the value of", key);
            var value = await claim.Run(make, "DONE").ConfigureAwait(false);
            words = new List<string> { "DONE", key, Number(claim.Token), value };
            if (options.Ttl != null)
                words.AddRange(new[] { "PX", Number(Math.Round(options.Ttl.Value * 1000)) });
            await claim.Finish(words.ToArray()).ConfigureAwait(false);
            return value;
        }
    }

    /// <summary>Throws LostException if the lock was lost.</summary>
    public void Check()
    {
        if (lost.IsCancellationRequested)
            throw new LostException(key);
    }

    /// <summary>Runs a command in Redis only if the lock is still held. Replies are long, string,
    /// object[] or null.</summary>
    public async Task<object> Fence(params string[] command)
    {
        var words = new List<string> { "FENCE", key, Number(Token) };
        words.AddRange(command);
        try
        {
            return await Call(AnswerWithin, words.ToArray()).ConfigureAwait(false);
        }
        catch (RedisException e) when (e.Message.StartsWith("FENCED", StringComparison.Ordinal))
        {
            throw new LostException(key);
        }
    }

    /// <summary>Closes the connection, which frees the lock.</summary>
    public void Dispose()
    {
        closing.Cancel();
        stream.Dispose();
    }

    Lockproxy(Stream stream, string key)
    {
        this.stream = stream;
        this.key = key;
        Task.Run(Read); // both end with the connection
        Task.Run(Ping);
    }

    /// <summary>Asks by a new connection. If the proxy is restarted or replaced meanwhile, it asks
    /// again for the rest of the wait, by the same owner. A command whose wait was ended has had no
    /// effect; a lock whose connection is lost is released, or given to its owner again.</summary>
    static async Task<Lockproxy> Asking(Func<Task<Stream>> to, string key, Options options,
        params string[] words)
    {
        var owner = options.Owner ?? MyName();
        double? wait = options.Wait, rest = wait;
        var time = Stopwatch.StartNew(); // is never set back
        double away = 0;
        while (true)
        {
            double? asked = null;
            Lockproxy session = null;
            try
            {
                var stream = await to().ConfigureAwait(false);
                asked = time.Elapsed.TotalSeconds;
                session = new Lockproxy(stream, key);
                await session.Ask(options, rest, owner, words).ConfigureAwait(false);
                return session;
            }
            catch (Exception e)
            {
                if (session != null)
                    session.Dispose();
                var now = time.Elapsed.TotalSeconds;
                if (now - asked > AnswerWithin)
                    away = now; // it has been there meanwhile
                var ends = away + AwayWithin;
                if (wait > 0)
                    ends = Math.Min(ends, wait.Value);
                if (wait == null || now >= ends || !IsAway(e))
                    throw;
                var pause = Math.Min(0.05 + 0.45 * Random(), ends - now); // not all at once
                await Task.Delay(TimeSpan.FromSeconds(pause)).ConfigureAwait(false);
            }
            if (wait > 0)
                rest = Math.Max(Math.Round(wait.Value - time.Elapsed.TotalSeconds, 3), 0.001);
        }
    }

    /// <summary>Whether the proxy has ended a wait, or cannot be reached.</summary>
    static bool IsAway(Exception e)
    {
        return e is IOException || e is SocketException
            || e is RedisException && e.Message.StartsWith("TRYAGAIN", StringComparison.Ordinal);
    }

    /// <summary>A number from 0 to 1.</summary>
    static double Random() { return (uint)Guid.NewGuid().GetHashCode() / (double)uint.MaxValue; }

    /// <summary>Logs in and sends LOCK or ONCE.</summary>
    async Task Ask(Options options, double? wait, string owner, params string[] words)
    {
        try
        {
            if (options.Auth.Length > 0)
            {
                var auth = new List<string> { "AUTH" };
                auth.AddRange(options.Auth);
                await Call(AnswerWithin, auth.ToArray()).ConfigureAwait(false);
            }
            var command = new List<string>(words) { "SESSION" };
            if (options.Max != null)
                command.AddRange(new[] { "MAX", Number(options.Max.Value) });
            if (wait != null)
                command.AddRange(new[] { "WAIT", Number(wait.Value) });
            command.AddRange(new[] { "OWNER", owner });
            var within = wait == 0 ? null : (wait ?? 0) + (double?)AnswerWithin;
            var reply = await Call(within, command.ToArray()).ConfigureAwait(false);
            made = reply as string;
            if (reply is long)
            {
                Token = (long)reply;
                lock (owed)
                {
                    heard = clock.Elapsed;
                    most = Math.Max(options.Timeout, AnswerWithin);
                }
            }
        }
        catch (LostException) // there was no lock yet
        {
            throw new IOException("lockproxy has closed the connection, or does not answer");
        }
        catch (RedisException e) when (e.Message.StartsWith("ERR unknown command",
            StringComparison.Ordinal))
        {
            throw new RedisException("this is a Redis, not lockproxy: connect to lockproxy's port, "
                + "6380 by default");
        }
    }

    /// <summary>Runs the work. If that fails, the lock ends with command.</summary>
    async Task<T> Run<T>(Func<Lockproxy, Task<T>> work, string command)
    {
        try
        {
            return await work(this).ConfigureAwait(false);
        }
        catch (OperationCanceledException) when (lost.IsCancellationRequested)
        {
            throw new LostException(key);
        }
        catch
        {
            try
            {
                await Finish(command, key, Number(Token)).ConfigureAwait(false);
            }
            catch (Exception e) when (e is LostException || e is RedisException)
            {
                // closing the connection frees it; the work's own error says more
            }
            throw;
        }
    }

    async Task Finish(params string[] command)
    {
        if (!1L.Equals(await Call(AnswerWithin, command).ConfigureAwait(false)))
            throw new LostException(key);
    }

    static string Number(double seconds)
    {
        return seconds.ToString("R", CultureInfo.InvariantCulture);
    }

    static string Number(long n) { return n.ToString(CultureInfo.InvariantCulture); }

    /// <summary>Says which program this is; the random part is this lock's, since owners share
    /// theirs.</summary>
    static string MyName()
    {
        var program = Path.GetFileName(Environment.GetCommandLineArgs()[0]);
        return program + "@" + Dns.GetHostName() + ":" + Process.GetCurrentProcess().Id + ":"
            + Guid.NewGuid().ToString("N").Substring(0, 8);
    }

    /// <summary>Sends a command and waits for its reply.</summary>
    async Task<object> Call(double? within, params string[] words)
    {
        var answer = Send(words);
        if (within != null)
        {
            using (var enough = new CancellationTokenSource())
            {
                var late = Task.Delay(TimeSpan.FromSeconds(within.Value), enough.Token);
                if (await Task.WhenAny(answer, late).ConfigureAwait(false) == late)
                    stream.Dispose(); // nothing comes: the answer fails
                enough.Cancel();
            }
        }
        object reply;
        try
        {
            reply = await answer.ConfigureAwait(false);
        }
        catch (IOException)
        {
            throw new LostException(key); // the connection has closed
        }
        if (reply is RedisException)
            throw (RedisException)reply;
        return reply;
    }

    /// <summary>Sends a command and returns its reply. IOException if the connection closes
    /// before.</summary>
    async Task<object> Send(params string[] words)
    {
        var request = new MemoryStream();
        Action<byte[]> write = bytes => request.Write(bytes, 0, bytes.Length);
        write(Encoding.ASCII.GetBytes("*" + words.Length + "\r\n"));
        foreach (var word in words)
        {
            var bytes = Encoding.UTF8.GetBytes(word);
            write(Encoding.ASCII.GetBytes("$" + bytes.Length + "\r\n"));
            write(bytes);
            write(new[] { (byte)'\r', (byte)'\n' });
        }
        var reply = new TaskCompletionSource<object>(
            TaskCreationOptions.RunContinuationsAsynchronously);
        await writing.WaitAsync().ConfigureAwait(false);
        try
        {
            lock (owed)
            {
                if (ended)
                    throw new EndOfStreamException();
                owed.Enqueue(reply);
            }
            await stream.WriteAsync(request.GetBuffer(), 0, (int)request.Length)
                .ConfigureAwait(false);
        }
        catch (Exception e) when (e is IOException || e is ObjectDisposedException)
        {
            stream.Dispose();
            reply.TrySetException(new EndOfStreamException());
        }
        finally
        {
            writing.Release();
        }
        return await reply.Task.ConfigureAwait(false);
    }

    /// <summary>Reads replies until the connection closes: if not by this side, the lock is
    /// lost.</summary>
    async Task Read()
    {
        try
        {
            while (true)
            {
                var reply = await ReadReply();
                lock (owed)
                {
                    heard = clock.Elapsed;
                    owed.Dequeue().TrySetResult(reply);
                }
            }
        }
        catch (Exception) // it has closed, or what comes is no reply
        {
            stream.Dispose();
        }
        lock (owed)
        {
            ended = true;
            foreach (var reply in owed)
                reply.TrySetException(new EndOfStreamException());
            owed.Clear();
        }
        if (!closing.IsCancellationRequested)
            lost.Cancel();
    }

    /// <summary>Pings, also while LOCK waits. After a time without an answer the lock may be
    /// lost.</summary>
    async Task Ping()
    {
        try
        {
            while (!lost.IsCancellationRequested)
            {
                double? patience;
                lock (owed)
                    patience = most;
                // The proxy keeps the pings of a long wait.
                var every = patience != null ? PingEvery
                    : Math.Min(Math.Max(clock.Elapsed.TotalSeconds / 60, PingEvery), 15);
                await Task.Delay(TimeSpan.FromSeconds(every), closing.Token);
                lock (owed)
                    if ((clock.Elapsed - heard).TotalSeconds > patience + every)
                        stream.Dispose();
                Forget(Send("PING"));
            }
        }
        catch (OperationCanceledException)
        {
            // the lock has ended
        }
    }

    static void Forget(Task<object> reply) { reply.ContinueWith(r => r.Exception); }

    async Task<object> ReadReply()
    {
        string line = await ReadLine(), rest = line.Substring(1);
        switch (line[0])
        {
            case '+': return rest;
            case '-': return new RedisException(rest);
            case ':': return long.Parse(rest, CultureInfo.InvariantCulture);
            case '$':
                var text = new byte[Math.Max(int.Parse(rest, CultureInfo.InvariantCulture), 0)];
                if (rest[0] == '-')
                    return null;
                for (var i = 0; i < text.Length; i++)
                    text[i] = await ReadByte();
                await ReadLine();
                return Encoding.UTF8.GetString(text);
            case '*':
                if (rest[0] == '-')
                    return null;
                var list = new object[int.Parse(rest, CultureInfo.InvariantCulture)];
                for (var i = 0; i < list.Length; i++)
                    list[i] = await ReadReply();
                return list;
            default: throw new IOException("unexpected reply: " + line);
        }
    }

    async Task<string> ReadLine()
    {
        var line = new MemoryStream();
        for (byte b; (b = await ReadByte()) != '\n';)
            line.WriteByte(b);
        return Encoding.UTF8.GetString(line.ToArray()).TrimEnd('\r');
    }

    async Task<byte> ReadByte()
    {
        if (at == end)
        {
            at = 0;
            end = await stream.ReadAsync(buffer, 0, buffer.Length);
            if (end == 0)
                throw new EndOfStreamException();
        }
        return buffer[at++];
    }
}
