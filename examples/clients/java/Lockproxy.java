import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A lock of lockproxy: copy this file into your program. It needs no library, since a lock has a
 * connection of its own; next to Jedis, Lettuce or Spring Data Redis use it as it is.
 *
 * <pre>
 * try (Lockproxy lock = Lockproxy.lock(() -> new Socket("127.0.0.1", 6380), "report", 10, 5.0)) {
 *     lock.fence("SET", "report:state", "done"); // refused if the lock was lost
 *     lock.check();                              // throws Lost if the lock was lost
 * }
 * </pre>
 *
 * The lock lasts until close(), or until the program dies. It is for one thread.
 */
public final class Lockproxy implements AutoCloseable {
    /** Another client holds the lock, or still held it when the wait ended. */
    public static final class NotAcquired extends RuntimeException {
        NotAcquired(String key) { super(key); }
    }

    /** The lock was lost while it was in use: another client can hold it. */
    public static final class Lost extends RuntimeException {
        Lost(String key) { super(key); }
    }

    /** An error reply. */
    public static final class RedisError extends RuntimeException {
        RedisError(String text) { super(text); }
    }

    /** Makes a connection, for example of an SSLSocketFactory. */
    public interface Connect { Socket connect() throws IOException; }

    /** Completes as soon as the lock is lost, in another thread: interrupt the work there. */
    public final CompletableFuture<Void> lost = new CompletableFuture<>();
    /** Rises with every acquisition: it fences other databases too. */
    public final long token;

    private final String key;
    private final Socket socket;
    private final BlockingQueue<Object> replies = new LinkedBlockingQueue<>();
    private volatile boolean closing;
    private int owed; // replies, also to commands that were interrupted

    /**
     * Takes a lock.
     *
     * @param timeout how long a crashed proxy can leave the lock behind, in seconds
     * @param wait in seconds; 0 is without end, null doesn't wait
     * @param auth a password, or a user and a password, or nothing
     */
    public static Lockproxy lock(Connect to, String key, double timeout, Double wait,
            String... auth) throws IOException {
        return new Lockproxy(to.connect(), key, timeout, wait, auth);
    }

    private Lockproxy(Socket socket, String key, double timeout, Double wait, String... auth)
            throws IOException {
        this.socket = socket;
        this.key = key;
        try {
            socket.setSoTimeout(0); // the end of a read would look like that of the connection
            socket.setKeepAlive(true);
            Thread reader = new Thread(this::read, "lock " + key); // ends with the connection
            reader.setDaemon(true);
            reader.start();
            if (auth.length > 0) {
                call(ANSWER_WITHIN, concat("AUTH", auth));
            }
            Object reply = wait == null
                ? call(ANSWER_WITHIN, "LOCK", key, "" + timeout, "SESSION")
                : call(wait == 0 ? Double.MAX_VALUE : wait + ANSWER_WITHIN,
                    "LOCK", key, "" + timeout, "SESSION", "WAIT", "" + wait);
            if (!(reply instanceof Long)) {
                throw new NotAcquired(key);
            }
            token = (Long) reply;
        } catch (RuntimeException | IOException e) {
            closing = true;
            socket.close();
            throw e;
        }
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

    /** Releases the lock. Throws Lost if it was not held until now. A second time does nothing. */
    @Override
    public void close() throws IOException {
        if (closing) {
            return;
        }
        try {
            if (!Long.valueOf(1).equals(call(ANSWER_WITHIN, "UNLOCK", key, "" + token))) {
                throw new Lost(key);
            }
        } finally {
            closing = true;
            socket.close();
        }
    }

    private static String[] concat(String first, String... rest) {
        String[] all = new String[rest.length + 1];
        all[0] = first;
        System.arraycopy(rest, 0, all, 1, rest.length);
        return all;
    }

    private static final double ANSWER_WITHIN = 10; // seconds

    /** Sends a command and waits for its reply: a Long, String, List or null. */
    private synchronized Object call(double within, String... command) throws IOException {
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.writeBytes(("*" + command.length + "\r\n").getBytes(UTF_8));
        for (String word : command) {
            byte[] bytes = word.getBytes(UTF_8);
            request.writeBytes(("$" + bytes.length + "\r\n").getBytes(UTF_8));
            request.writeBytes(bytes);
            request.writeBytes("\r\n".getBytes(UTF_8));
        }
        try {
            if (!lost.isDone()) {
                socket.getOutputStream().write(request.toByteArray());
                owed++;
            }
        } catch (IOException e) {
            throw new Lost(key); // the connection has closed
        }
        try {
            Object reply;
            do {
                reply = replies.poll((long) (within * 1000), TimeUnit.MILLISECONDS);
                if (reply == null) {
                    socket.close(); // nothing comes
                }
                if (reply == null || reply == GONE) {
                    replies.add(GONE); // for the next call
                    throw new Lost(key);
                }
            } while (--owed > 0);
            if (reply instanceof RedisError) {
                throw (RedisError) reply;
            }
            return reply == NULL ? null : reply;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", e);
        }
    }

    private static final Object NULL = new Object(), GONE = new Object();

    /** Reads replies until the connection closes: if not by this side, the lock is lost. */
    private void read() {
        try {
            InputStream in = new BufferedInputStream(socket.getInputStream());
            while (true) {
                replies.add(reply(in));
            }
        } catch (IOException | RuntimeException e) {
            replies.add(GONE);
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
