using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Net;
using System.Net.Security;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Lockproxy
{
    /// <summary>Another client has the lock, or still had it when the wait ended.</summary>
    public sealed class LockNotAcquiredException : Exception
    {
        internal LockNotAcquiredException(string does, string key)
            : base("another client " + does + " \"" + key + "\"") { }
    }

    /// <summary>The lock was lost while it was in use: another client can hold it.</summary>
    public sealed class LockLostException : Exception
    {
        internal LockLostException(string key) : base("the lock \"" + key + "\" was lost") { }
    }

    /// <summary>An error reply.</summary>
    public sealed class LockServerException : Exception
    {
        internal LockServerException(string text) : base(text) { }
    }

    /// <summary>What a lock is asked for.</summary>
    public class LockOptions
    {
        /// <summary>How long a crashed proxy can leave the lock behind.</summary>
        public TimeSpan Timeout { get; set; } = TimeSpan.FromSeconds(10);
        /// <summary>How long to wait: Timeout.InfiniteTimeSpan is forever, TimeSpan.Zero not at
        /// all.</summary>
        public TimeSpan Wait { get; set; } = TimeSpan.Zero;
        /// <summary>How long the lock is held at most, also if the work hangs.</summary>
        public TimeSpan? Max { get; set; }
        /// <summary>Who holds it, for people; by default program, host and process.</summary>
        public string Owner { get; set; }
        /// <summary>Of a lock: why, for people, in at most 256 bytes.</summary>
        public string Note { get; set; }

        internal bool Forever { get { return Wait == System.Threading.Timeout.InfiniteTimeSpan; } }
    }

    /// <summary>What a value is asked for that is made once.</summary>
    public sealed class OnceOptions : LockOptions
    {
        /// <summary>How long the value is stored; without it until it is deleted.</summary>
        public TimeSpan? Ttl { get; set; }
        /// <summary>So long before the value expires one client makes it again. It wants
        /// TimeToLive.</summary>
        public TimeSpan? Early { get; set; }
        /// <summary>How long the value of a key lives, by your client library.</summary>
        public Func<string, Task<TimeSpan?>> TimeToLive { get; set; }
    }

    /// <summary>
    /// Takes locks of lockproxy. It needs no package, since each lock has a connection of its own;
    /// use it next to StackExchange.Redis.
    /// <code>
    /// var locks = new LockClient("127.0.0.1", 6380);
    /// var options = new LockOptions { Wait = TimeSpan.FromSeconds(5) };
    /// await locks.WithLockAsync("report", options, async (held, stop) =&gt; {
    ///     await held.FenceAsync("SET", "report:state", "done"); // refused if the lock was lost
    ///     await WorkAsync(stop);                                // cancelled if the lock is lost
    /// });
    /// </code>
    /// A lock lasts until the work ends, however that is, or until the program dies.
    /// </summary>
    public sealed class LockClient
    {
        const double AnswerWithin = 10, AwayWithin = 30; // a restarted proxy is back by then
        readonly Func<Task<Stream>> connect;

        /// <summary>Locks of the lockproxy at this address.</summary>
        public LockClient(string host, int port)
        {
            connect = () => ConnectAsync(host, port);
        }

        /// <summary>Locks of a lockproxy to which this makes connections.</summary>
        public LockClient(Func<Task<Stream>> connect)
        {
            this.connect = connect;
        }

        /// <summary>Connect by TLS, to a host with this name in its certificate.</summary>
        public string TlsHost { get; set; }
        /// <summary>Judges the certificate; by default the system does.</summary>
        public RemoteCertificateValidationCallback CertificateValidation { get; set; }
        /// <summary>The user that logs in, if there is a password.</summary>
        public string User { get; set; }
        /// <summary>The password of the user.</summary>
        public string Password { get; set; }

        /// <summary>Holds a lock while work runs, and returns what that returns. The token that
        /// work is given is cancelled as soon as the lock is lost, which then throws
        /// LockLostException, and when cancellation is, which also ends the wait.</summary>
        public async Task<T> WithLockAsync<T>(string key, LockOptions options,
            Func<HeldLock, CancellationToken, Task<T>> work,
            CancellationToken cancellation = default(CancellationToken))
        {
            options = options ?? new LockOptions();
            var words = new List<string> { "LOCK", key, Seconds(options.Timeout) };
            if (options.Note != null)
                words.AddRange(new[] { "NOTE", options.Note });
            using (var held = await AskAsync(key, options, cancellation, words.ToArray())
                .ConfigureAwait(false))
            {
                if (held.Token == 0)
                    throw new LockNotAcquiredException("holds the lock", key);
                var result = await held.RunAsync(work, "UNLOCK", cancellation)
                    .ConfigureAwait(false);
                await held.FinishAsync("UNLOCK", key, Number(held.Token)).ConfigureAwait(false);
                return result;
            }
        }

        /// <summary>The same for work without a result.</summary>
        public Task WithLockAsync(string key, LockOptions options,
            Func<HeldLock, CancellationToken, Task> work,
            CancellationToken cancellation = default(CancellationToken))
        {
            return WithLockAsync(key, options, async (held, stop) =>
            {
                await work(held, stop).ConfigureAwait(false);
                return true;
            }, cancellation);
        }

        /// <summary>
        /// Returns the value of key. If there is none, one client makes it, and all have it. get
        /// reads it by your client library first. If make throws, the claim is given up. Clients
        /// that ask meanwhile wait for the value, as long as options say; then
        /// LockNotAcquiredException is thrown. If the claim is lost nothing is stored.
        /// </summary>
        public async Task<string> OnceAsync(string key, Func<string, Task<string>> get,
            OnceOptions options, Func<HeldLock, CancellationToken, Task<string>> make,
            CancellationToken cancellation = default(CancellationToken))
        {
            options = options ?? new OnceOptions();
            if (options.Early != null && options.TimeToLive == null)
                throw new ArgumentException("Early wants TimeToLive, too");
            var there = await get(key).ConfigureAwait(false);
            if (there != null && options.Early != null)
            {
                var lives = await options.TimeToLive(key).ConfigureAwait(false);
                if (lives != null && lives < options.Early)
                    there = null; // to be made again
            }
            if (there != null)
                return there;
            var words = new List<string> { "ONCE", key, Seconds(options.Timeout) };
            if (options.Early != null)
                words.AddRange(new[] { "EARLY", Seconds(options.Early.Value) });
            using (var claim = await AskAsync(key, options, cancellation, words.ToArray())
                .ConfigureAwait(false))
            {
                if (claim.Made != null)
                    return claim.Made;
                if (claim.Token == 0)
                    throw new LockNotAcquiredException("makes the value of", key);
                var value = await claim.RunAsync(make, "DONE", cancellation).ConfigureAwait(false);
                words = new List<string> { "DONE", key, Number(claim.Token), value };
                if (options.Ttl != null)
                    words.AddRange(new[] { "PX",
                        Number((long)Math.Round(options.Ttl.Value.TotalMilliseconds)) });
                await claim.FinishAsync(words.ToArray()).ConfigureAwait(false);
                return value;
            }
        }

        static async Task<Stream> ConnectAsync(string host, int port)
        {
            var client = new TcpClient { NoDelay = true };
            await client.ConnectAsync(host, port).ConfigureAwait(false);
            return client.GetStream();
        }

        async Task<Stream> OpenAsync()
        {
            var stream = await connect().ConfigureAwait(false);
            if (TlsHost == null)
                return stream;
            var secure = new SslStream(stream, false, CertificateValidation);
            await secure.AuthenticateAsClientAsync(TlsHost).ConfigureAwait(false);
            return secure;
        }

        /// <summary>Asks by a new connection. If the proxy is restarted or replaced meanwhile, it
        /// asks again for the rest of the wait, by the same owner. A command whose wait was ended
        /// has had no effect; a lock whose connection is lost is released, or given to its owner
        /// again.</summary>
        async Task<HeldLock> AskAsync(string key, LockOptions options,
            CancellationToken cancellation, params string[] words)
        {
            var owner = options.Owner ?? MyName();
            var waits = options.Forever || options.Wait > TimeSpan.Zero;
            var wait = options.Forever ? 0 : options.Wait.TotalSeconds;
            var rest = wait;
            var time = Stopwatch.StartNew(); // is never set back
            double away = 0;
            while (true)
            {
                cancellation.ThrowIfCancellationRequested();
                double? asked = null;
                HeldLock session = null;
                try
                {
                    var stream = await OpenAsync().ConfigureAwait(false);
                    asked = time.Elapsed.TotalSeconds;
                    session = new HeldLock(stream, key);
                    var command = new List<string>(words) { "SESSION" };
                    if (options.Max != null)
                        command.AddRange(new[] { "MAX", Seconds(options.Max.Value) });
                    if (waits)
                        command.AddRange(new[] { "WAIT", Number(rest) });
                    command.AddRange(new[] { "OWNER", owner });
                    using (cancellation.Register(session.Dispose))
                        await session.AskAsync(Login(), waits && rest == 0 ? null
                            : (double?)rest + AnswerWithin, options.Timeout.TotalSeconds,
                            command.ToArray()).ConfigureAwait(false);
                    cancellation.ThrowIfCancellationRequested();
                    return session;
                }
                catch (Exception e)
                {
                    if (session != null)
                        session.Dispose();
                    cancellation.ThrowIfCancellationRequested();
                    var now = time.Elapsed.TotalSeconds;
                    if (now - asked > AnswerWithin)
                        away = now; // it has been there meanwhile
                    var ends = away + AwayWithin;
                    if (wait > 0)
                        ends = Math.Min(ends, wait);
                    if (!waits || now >= ends || !IsAway(e))
                        throw;
                    var pause = Math.Min(0.05 + 0.45 * Random(), ends - now); // not all at once
                    await Task.Delay(TimeSpan.FromSeconds(pause), cancellation)
                        .ConfigureAwait(false);
                }
                if (wait > 0)
                    rest = Math.Max(Math.Round(wait - time.Elapsed.TotalSeconds, 3), 0.001);
            }
        }

        string[] Login()
        {
            return Password == null ? null
                : User == null ? new[] { "AUTH", Password } : new[] { "AUTH", User, Password };
        }

        /// <summary>Whether the proxy has ended a wait, or cannot be reached.</summary>
        static bool IsAway(Exception e)
        {
            return e is IOException || e is SocketException || e is LockServerException
                && e.Message.StartsWith("TRYAGAIN", StringComparison.Ordinal);
        }

        /// <summary>A number from 0 to 1.</summary>
        static double Random()
        {
            return (uint)Guid.NewGuid().GetHashCode() / (double)uint.MaxValue;
        }

        internal static string Seconds(TimeSpan time)
        {
            return Number(Math.Round(time.TotalSeconds, 3));
        }

        static string Number(double seconds)
        {
            return seconds.ToString("0.###", CultureInfo.InvariantCulture);
        }

        internal static string Number(long n) { return n.ToString(CultureInfo.InvariantCulture); }

        /// <summary>Says which program this is; the random part is this lock's, since owners share
        /// theirs.</summary>
        static string MyName()
        {
            var program = Path.GetFileName(Environment.GetCommandLineArgs()[0]);
            return program + "@" + Dns.GetHostName() + ":" + Process.GetCurrentProcess().Id + ":"
                + Guid.NewGuid().ToString("N").Substring(0, 8);
        }
    }

    /// <summary>A lock that is held, or the right to make a value.</summary>
    public sealed class HeldLock : IDisposable
    {
        const double AnswerWithin = 10, PingEvery = 1; // seconds: balancers cut what is idle

        /// <summary>What is locked.</summary>
        public string Key { get; }

        /// <summary>Rises with every acquisition: it fences other databases too.</summary>
        public long Token { get; private set; }

        /// <summary>Is cancelled as soon as the lock is lost.</summary>
        public CancellationToken Lost { get { return lost.Token; } }

        internal string Made { get; private set; } // the value that ONCE has answered
        readonly Stream stream;
        readonly Queue<TaskCompletionSource<object>> owed =
            new Queue<TaskCompletionSource<object>>();
        readonly SemaphoreSlim writing = new SemaphoreSlim(1);
        readonly CancellationTokenSource lost = new CancellationTokenSource();
        readonly CancellationTokenSource closing = new CancellationTokenSource();
        readonly Stopwatch clock = Stopwatch.StartNew();
        readonly byte[] buffer = new byte[4096];
        int at, end;     // what has been read of buffer
        bool ended;      // guarded by owed, as is heard
        TimeSpan heard;
        double? most;    // seconds without an answer; then it is lost. None while LOCK waits

        internal HeldLock(Stream stream, string key)
        {
            this.stream = stream;
            Key = key;
            Task.Run(ReadAsync); // both end with the connection
            Task.Run(PingAsync);
        }

        /// <summary>Throws LockLostException if the lock was lost.</summary>
        public void ThrowIfLost()
        {
            if (lost.IsCancellationRequested)
                throw new LockLostException(Key);
        }

        /// <summary>Runs a command in Redis only if the lock is still held. Replies are long,
        /// string, object[] or null.</summary>
        public async Task<object> FenceAsync(params string[] command)
        {
            var words = new List<string> { "FENCE", Key, LockClient.Number(Token) };
            words.AddRange(command);
            try
            {
                return await CallAsync(AnswerWithin, words.ToArray()).ConfigureAwait(false);
            }
            catch (LockServerException e)
                when (e.Message.StartsWith("FENCED", StringComparison.Ordinal))
            {
                throw new LockLostException(Key);
            }
        }

        /// <summary>From now on a crashed proxy can leave the lock behind for so long.</summary>
        public Task ExtendAsync(TimeSpan timeout)
        {
            return FinishAsync("RELOCK", Key, LockClient.Number(Token),
                LockClient.Seconds(timeout));
        }

        /// <summary>Closes the connection, which frees the lock.</summary>
        public void Dispose()
        {
            closing.Cancel();
            stream.Dispose();
        }

        /// <summary>Logs in and sends LOCK or ONCE.</summary>
        internal async Task AskAsync(string[] login, double? within, double timeout,
            string[] command)
        {
            try
            {
                if (login != null)
                    await CallAsync(AnswerWithin, login).ConfigureAwait(false);
                var reply = await CallAsync(within, command).ConfigureAwait(false);
                Made = reply as string;
                if (reply is long)
                {
                    Token = (long)reply;
                    lock (owed)
                    {
                        heard = clock.Elapsed;
                        most = Math.Max(timeout, AnswerWithin);
                    }
                }
            }
            catch (LockLostException) // there was no lock yet
            {
                throw new IOException("lockproxy has closed the connection, or does not answer");
            }
            catch (LockServerException e) when (e.Message.StartsWith("ERR unknown command",
                StringComparison.Ordinal))
            {
                throw new LockServerException("this is a Redis, not lockproxy: connect to "
                    + "lockproxy's port, 6380 by default");
            }
        }

        /// <summary>Runs the work. If that fails, the lock ends with command.</summary>
        internal async Task<T> RunAsync<T>(Func<HeldLock, CancellationToken, Task<T>> work,
            string command, CancellationToken cancellation)
        {
            try
            {
                using (var stop = CancellationTokenSource.CreateLinkedTokenSource(lost.Token,
                    cancellation))
                    return await work(this, stop.Token).ConfigureAwait(false);
            }
            catch (OperationCanceledException) when (lost.IsCancellationRequested)
            {
                throw new LockLostException(Key);
            }
            catch
            {
                try
                {
                    await FinishAsync(command, Key, LockClient.Number(Token)).ConfigureAwait(false);
                }
                catch (Exception e) when (e is LockLostException || e is LockServerException)
                {
                    // closing the connection frees it; the work's own error says more
                }
                throw;
            }
        }

        internal async Task FinishAsync(params string[] command)
        {
            if (!1L.Equals(await CallAsync(AnswerWithin, command).ConfigureAwait(false)))
                throw new LockLostException(Key);
        }

        /// <summary>Sends a command and waits for its reply.</summary>
        async Task<object> CallAsync(double? within, params string[] words)
        {
            var answer = SendAsync(words);
            if (within != null)
            {
                using (var enough = new CancellationTokenSource())
                {
                    var late = Task.Delay(TimeSpan.FromSeconds(
                        Math.Min(within.Value, int.MaxValue / 1000)), enough.Token);
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
                throw new LockLostException(Key); // the connection has closed
            }
            if (reply is LockServerException)
                throw (LockServerException)reply;
            return reply;
        }

        /// <summary>Sends a command and returns its reply. IOException if the connection closes
        /// before.</summary>
        async Task<object> SendAsync(params string[] words)
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
        async Task ReadAsync()
        {
            try
            {
                while (true)
                {
                    var reply = await ReadReplyAsync();
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
        async Task PingAsync()
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
                    Forget(SendAsync("PING"));
                }
            }
            catch (OperationCanceledException)
            {
                // the lock has ended
            }
        }

        static void Forget(Task<object> reply) { reply.ContinueWith(r => r.Exception); }

        async Task<object> ReadReplyAsync()
        {
            string line = await ReadLineAsync(), rest = line.Substring(1);
            switch (line[0])
            {
                case '+': return rest;
                case '-': return new LockServerException(rest);
                case ':': return long.Parse(rest, CultureInfo.InvariantCulture);
                case '$':
                    var text = new byte[Math.Max(int.Parse(rest, CultureInfo.InvariantCulture), 0)];
                    if (rest[0] == '-')
                        return null;
                    for (var i = 0; i < text.Length; i++)
                        text[i] = await ReadByteAsync();
                    await ReadLineAsync();
                    return Encoding.UTF8.GetString(text);
                case '*':
                    if (rest[0] == '-')
                        return null;
                    var list = new object[int.Parse(rest, CultureInfo.InvariantCulture)];
                    for (var i = 0; i < list.Length; i++)
                        list[i] = await ReadReplyAsync();
                    return list;
                default: throw new IOException("unexpected reply: " + line);
            }
        }

        async Task<string> ReadLineAsync()
        {
            var line = new MemoryStream();
            for (byte b; (b = await ReadByteAsync()) != '\n';)
                line.WriteByte(b);
            return Encoding.UTF8.GetString(line.ToArray()).TrimEnd('\r');
        }

        async Task<byte> ReadByteAsync()
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
}
