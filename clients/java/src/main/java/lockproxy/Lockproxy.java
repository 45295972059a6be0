package lockproxy;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.net.Socket;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A lock of lockproxy. It needs no library, since a lock has a connection of its own; next to
 * Jedis, Lettuce or Spring Data Redis use it as it is.
 *
 * <pre>
 * Lockproxy.Options options = new Lockproxy.Options().wait(Duration.ofSeconds(5));
 * try (Lockproxy lock = Lockproxy.lock(() -> new Socket("127.0.0.1", 6380), "report", options)) {
 *     lock.fence("SET", "report:state", "done"); // refused if the lock was lost
 *     lock.check();                              // throws Lost if the lock was lost
 * }
 * </pre>
 *
 * The lock lasts until close(), or until the program dies. It is for one thread. once() makes a
 * value once for all who ask for it. Interrupting a thread ends its wait: InterruptedIOException.
 */
public final class Lockproxy implements AutoCloseable {
    /** Another client holds the lock, or still held it when the wait ended. */
    public static final class NotAcquired extends RuntimeException {
        NotAcquired(String does, String key) {
            super("another client " + does + " \"" + key + "\"");
        }
    }

    /** The lock was lost while it was in use: another client can hold it. */
    public static final class Lost extends RuntimeException {
        Lost(String key) { super("the lock \"" + key + "\" was lost"); }
        Lost(String key, Throwable cause) {
            super("the lock \"" + key + "\" was lost", cause);
        }
    }

    /** An error reply. */
    public static final class RedisError extends RuntimeException {
        RedisError(String text) { super(text); }
    }

    /** Makes a value. Its claim is a lock: pass on its token, and look whether it is lost. */
    public interface Make { String make(Lockproxy claim) throws Exception; }

    /** Reads values by your client library, for example as jedis::get. */
    public interface Values {
        /** The value of a key, or null if there is none. */
        String get(String key) throws Exception;
        /** PTTL of the key. It is asked for if options have early. */
        default long pttl(String key) throws Exception {
            throw new UnsupportedOperationException("early wants to know pttl, too");
        }
    }

    /** Makes a connection, for example of an SSLSocketFactory. */
    public interface Connect { Socket connect() throws IOException; }

    /** Completes as soon as the lock is lost, in another thread: interrupt the work there. */
    public final CompletableFuture<Void> lost = new CompletableFuture<>();
    /** Rises with every acquisition: it fences other databases too. */
    public final long token;

    private final String key;
    private final String value; // what ONCE has answered
    private final Socket socket;
    private final Queue<CompletableFuture<Object>> owed = new ArrayDeque<>(); // in order
    private final Thread pinger;
    private boolean ended; // guarded by owed
    private volatile boolean closing;
    private volatile double most = Double.MAX_VALUE; // seconds without an answer; then it is lost
    private volatile long heard = System.nanoTime();

    /** What LOCK is asked for. Whatever is left out is as its method says. */
    public static final class Options {
        Duration timeout = Duration.ofSeconds(10), wait, max, ttl, early;
        String owner, note;
        String[] auth = {};

        /** How long a crashed proxy can leave the lock behind; 10 s. */
        public Options timeout(Duration time) { timeout = time; return this; }
        /** How long to wait. Without it a held lock is refused at once. */
        public Options wait(Duration time) {
            if (time.toMillis() <= 0) {
                throw new IllegalArgumentException("wait wants more than " + time
                    + ": leave it out not to wait, or use waitForever()");
            }
            wait = time;
            return this;
        }
        /** Waits until the lock is free, or the thread is interrupted. */
        public Options waitForever() { wait = Duration.ZERO; return this; }
        /** How long the lock is held at most, also if the work hangs; forever. */
        public Options max(Duration time) { max = time; return this; }
        /** For once: how long the value is stored; until it is deleted. */
        public Options ttl(Duration time) { ttl = time; return this; }
        /** For once: so long before the value expires one client makes it again. */
        public Options early(Duration time) { early = time; return this; }
        /** Who holds the lock, for people; the program, its host and its process. */
        public Options owner(String name) { owner = name; return this; }
        /** For lock: why, for people, in at most 256 bytes; none. */
        public Options note(String text) { note = text; return this; }
        /** A password, or a user and a password; none. */
        public Options auth(String... words) { auth = words; return this; }
    }

    /** A duration as seconds, with the thousandths that lockproxy knows. */
    private static String seconds(Duration time) {
        return BigDecimal.valueOf(time.toMillis(), 3).toPlainString();
    }

    /** Takes a lock without waiting. */
    public static Lockproxy lock(Connect to, String key) throws IOException {
        return lock(to, key, new Options());
    }

    /** Takes a lock. */
    public static Lockproxy lock(Connect to, String key, Options options) throws IOException {
        String[] words = {"LOCK", key, seconds(options.timeout)};
        if (options.note != null) {
            words = new String[] {words[0], key, words[2], "NOTE", options.note};
        }
        Lockproxy lock = ask(to, key, options, words);
        if (lock.token == 0) {
            throw new NotAcquired("holds the lock", key);
        }
        return lock;
    }

    /**
     * Returns the value of key. If there is none, one client makes it, and all have it.
     *
     * <p>The value is read by your client library first, by values; making it has a connection of
     * its own. If make throws, the claim is given up and the error passed on. Clients that ask
     * meanwhile wait for the value, as long as options say; then NotAcquired is thrown. If the
     * claim is lost nothing is stored, and Lost is thrown.
     */
    public static String once(Connect to, Values values, String key, Options options, Make make)
            throws Exception {
        String there = values.get(key);
        if (there != null && options.early == null) {
            return there;
        } else if (there != null) {
            long lives = values.pttl(key);
            if (lives < 0 || lives >= options.early.toMillis()) {
                return there;
            }
        }
        String[] command = {"ONCE", key, seconds(options.timeout)};
        if (options.early != null) {
            command = concat("ONCE", key, command[2], "EARLY", seconds(options.early));
        }
        Lockproxy claim = ask(to, key, options, command);
        if (claim.value != null) {
            return claim.value;
        }
        if (claim.token == 0) {
            throw new NotAcquired("makes the value of", key);
        }
        String value, token = "" + claim.token;
        try {
            value = Objects.requireNonNull(make.make(claim), "the value");
        } catch (Throwable e) {
            try {
                claim.close("DONE", key, token); // gives up
            } catch (RuntimeException | IOException failed) {
                e.addSuppressed(failed);
            }
            throw e;
        }
        claim.close(options.ttl == null ? new String[] {"DONE", key, token, value}
            : new String[] {"DONE", key, token, value, "PX", "" + options.ttl.toMillis()});
        return value;
    }

    /**
     * Asks by a new connection. If the proxy is restarted or replaced meanwhile, it asks again for
     * the rest of the wait, by the same owner. A command whose wait was ended has had no effect; a
     * lock whose connection is lost is released, or given to its owner again.
     */
    private static Lockproxy ask(Connect to, String key, Options options, String... words)
            throws IOException {
        String owner = options.owner == null ? myName() : options.owner;
        Double wait = options.wait == null ? null : options.wait.toMillis() / 1000.0;
        Duration rest = options.wait;
        double began = now(), away = began;
        while (true) {
            double asked = Double.MAX_VALUE;
            IOException failed;
            try {
                Socket socket = to.connect();
                asked = now();
                return new Lockproxy(socket, key, options, rest, owner, words);
            } catch (RedisError e) {
                if (e.getMessage().startsWith("ERR unknown command")) {
                    throw new RedisError("this is a Redis, not lockproxy: connect to lockproxy's "
                        + "port, 6380 by default");
                } else if (!e.getMessage().startsWith("TRYAGAIN")) {
                    throw e;
                }
                failed = new IOException(e.getMessage(), e);
            } catch (Lost e) { // there was no lock yet
                failed = new IOException(
                    "lockproxy has closed the connection, or does not answer", e);
            } catch (IOException e) {
                failed = e;
            }
            if (now() - asked > ANSWER_WITHIN) {
                away = now(); // it has been there meanwhile
            }
            double ends = away + AWAY_WITHIN;
            if (wait != null && wait > 0) {
                ends = Math.min(ends, began + wait);
            }
            if (wait == null || now() >= ends || Thread.currentThread().isInterrupted()) {
                throw failed;
            }
            double pause = ThreadLocalRandom.current().nextDouble(0.05, 0.5); // not all at once
            try {
                Thread.sleep((long) (1000 * Math.max(Math.min(pause, ends - now()), 0)));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw failed;
            }
            if (wait > 0) {
                rest = Duration.ofMillis(Math.max(Math.round(1000 * (began + wait - now())), 1));
            }
        }
    }

    /** The time in seconds, by a clock that is never set back. */
    private static double now() { return System.nanoTime() / 1e9; }

    private Lockproxy(Socket socket, String key, Options options, Duration wait, String owner,
            String... words) throws IOException {
        this.socket = socket;
        this.key = key;
        Thread reader = new Thread(this::read, "lock " + key); // ends with the connection
        pinger = new Thread(this::ping, "lock " + key + ", pings"); // likewise
        try {
            socket.setSoTimeout(0); // the end of a read would look like that of the connection
            socket.setKeepAlive(true);
            for (Thread thread : new Thread[] {reader, pinger}) {
                thread.setDaemon(true);
                thread.start();
            }
            if (options.auth.length > 0) {
                call(ANSWER_WITHIN, concat("AUTH", options.auth));
            }
            List<String> command = new ArrayList<>(Arrays.asList(words));
            command.add("SESSION");
            if (options.max != null) {
                Collections.addAll(command, "MAX", seconds(options.max));
            }
            if (wait != null) {
                Collections.addAll(command, "WAIT", seconds(wait));
            }
            Collections.addAll(command, "OWNER", owner);
            double within = wait == null ? ANSWER_WITHIN
                : wait.isZero() ? Long.MAX_VALUE / 1e9 : wait.toMillis() / 1000.0 + ANSWER_WITHIN;
            Object reply = call(within, command.toArray(new String[0]));
            token = reply instanceof Long ? (Long) reply : 0;
            value = reply instanceof String ? (String) reply : null;
            if (token == 0) {
                end();
            }
            heard = System.nanoTime();
            most = Math.max(options.timeout.toMillis() / 1000.0, ANSWER_WITHIN);
        } catch (RuntimeException | IOException e) {
            end();
            throw e;
        }
    }

    /** Says which program this is; the random part is this lock's, since owners share theirs. */
    private static String myName() {
        String process = ManagementFactory.getRuntimeMXBean().getName(); // number@host
        int at = process.indexOf('@');
        String program = System.getProperty("sun.java.command", "java").split(" ")[0];
        return program + process.substring(at) + ":" + process.substring(0, at) + ":"
            + Integer.toHexString(ThreadLocalRandom.current().nextInt());
    }

    /** Throws Lost if the lock was lost. */
    public void check() {
        if (lost.isDone()) {
            throw new Lost(key);
        }
    }

    /** Runs a command in Redis only if the lock is still held. */
    public Object fence(String... command) throws IOException {
        try {
            return call(ANSWER_WITHIN, concat("FENCE", concat(key, concat("" + token, command))));
        } catch (RedisError e) {
            throw e.getMessage().startsWith("FENCED") ? new Lost(key) : e;
        }
    }

    /**
     * Begins what a transaction of PostgreSQL writes under the lock. If a later holder has begun to
     * write already, Lost is thrown, and the transaction can only be rolled back. Until it ends, a
     * later holder waits here.
     */
    public void fence(Connection transaction) throws SQLException {
        try (PreparedStatement call =
                transaction.prepareStatement("SELECT lockproxy_fence(?, ?)")) {
            call.setString(1, key);
            call.setLong(2, token);
            call.execute();
        } catch (SQLException e) {
            if ("LP001".equals(e.getSQLState())) {
                throw new Lost(key, e);
            }
            throw e;
        }
    }

    /** From now on a crashed proxy can leave the lock behind for so long. */
    public void extend(Duration timeout) throws IOException {
        if (!Long.valueOf(1).equals(call(ANSWER_WITHIN, "RELOCK", key, "" + token,
                seconds(timeout)))) {
            throw new Lost(key);
        }
    }

    /** Releases the lock. Throws Lost if it was not held until now. A second time does nothing. */
    @Override
    public void close() throws IOException {
        if (closing) {
            return;
        }
        close("UNLOCK", key, "" + token);
    }

    private void close(String... command) throws IOException {
        try {
            if (!Long.valueOf(1).equals(call(ANSWER_WITHIN, command))) {
                throw new Lost(key);
            }
        } finally {
            end();
        }
    }

    private void end() throws IOException {
        closing = true;
        socket.close();
        pinger.interrupt();
    }

    private static String[] concat(String first, String... rest) {
        String[] all = new String[rest.length + 1];
        all[0] = first;
        System.arraycopy(rest, 0, all, 1, rest.length);
        return all;
    }

    private static final double ANSWER_WITHIN = 10; // seconds
    private static final double AWAY_WITHIN = 30; // a proxy that is replaced is back by then
    private static final double PING_EVERY = 1; // seconds: balancers cut what is idle

    /** Sends a command and waits for its reply: a Long, String, List or null. */
    private Object call(double within, String... command) throws IOException {
        try {
            Object reply = send(command).get((long) (within * 1000), TimeUnit.MILLISECONDS);
            if (reply instanceof RedisError) {
                throw (RedisError) reply;
            }
            return reply == NULL ? null : reply;
        } catch (TimeoutException e) {
            socket.close(); // nothing comes
            throw new Lost(key);
        } catch (ExecutionException e) {
            throw new Lost(key); // the connection has closed
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw (IOException) new InterruptedIOException("interrupted").initCause(e);
        }
    }

    /** Sends a command. The reply fails if the connection closes before. */
    private CompletableFuture<Object> send(String... command) {
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.writeBytes(("*" + command.length + "\r\n").getBytes(UTF_8));
        for (String word : command) {
            byte[] bytes = word.getBytes(UTF_8);
            request.writeBytes(("$" + bytes.length + "\r\n").getBytes(UTF_8));
            request.writeBytes(bytes);
            request.writeBytes("\r\n".getBytes(UTF_8));
        }
        CompletableFuture<Object> reply = new CompletableFuture<>();
        synchronized (owed) {
            owed.add(reply);
            try {
                if (!ended) {
                    socket.getOutputStream().write(request.toByteArray());
                    return reply;
                }
            } catch (IOException e) {
                // it has closed
            }
            owed.remove(reply);
        }
        reply.completeExceptionally(new EOFException());
        return reply;
    }

    /** Pings, also while LOCK waits. After a time without an answer the lock may be lost. */
    private void ping() {
        try {
            long began = System.nanoTime();
            while (!closing && !lost.isDone()) {
                double waited = (System.nanoTime() - began) / 1e9;
                // The proxy keeps the pings of a long wait.
                double every = most < Double.MAX_VALUE ? PING_EVERY
                    : Math.min(Math.max(waited / 60, PING_EVERY), 15);
                Thread.sleep((long) (every * 1000));
                if ((System.nanoTime() - heard) / 1e9 > most + every) {
                    socket.close();
                }
                send("PING");
            }
        } catch (InterruptedException | IOException e) {
            // the lock has ended
        }
    }

    private static final Object NULL = new Object();

    /** Reads replies until the connection closes: if not by this side, the lock is lost. */
    private void read() {
        try {
            InputStream in = new BufferedInputStream(socket.getInputStream());
            while (true) {
                Object reply = reply(in);
                heard = System.nanoTime();
                synchronized (owed) {
                    owed.remove().complete(reply);
                }
            }
        } catch (IOException | RuntimeException e) {
            synchronized (owed) {
                ended = true;
                for (CompletableFuture<Object> reply : owed) {
                    reply.completeExceptionally(e);
                }
                owed.clear();
            }
            if (!closing) {
                lost.complete(null);
            }
        }
    }

    private static Object reply(InputStream in) throws IOException {
        String line = line(in), rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+': return rest;
            case '-': return new RedisError(rest);
            case ':': return Long.valueOf(rest);
            case '$':
                int length = Integer.parseInt(rest);
                if (length < 0) return NULL;
                byte[] text = in.readNBytes(length);
                line(in);
                return new String(text, UTF_8);
            case '*':
                int count = Integer.parseInt(rest);
                if (count < 0) return NULL;
                Object[] list = new Object[count];
                for (int i = 0; i < count; i++) {
                    Object element = reply(in);
                    list[i] = element == NULL ? null : element;
                }
                return Arrays.asList(list);
            default: throw new IOException("unexpected reply: " + line);
        }
    }

    private static String line(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int b; (b = in.read()) != '\n'; line.write(b)) {
            if (b < 0) throw new EOFException();
        }
        String text = line.toString(UTF_8);
        return text.substring(0, text.length() - 1); // without the \r
    }
}
