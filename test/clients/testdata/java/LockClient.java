// Ordinary commands and locks through lockproxy from Java.
//
// Debian packages no Redis client for Java, so this speaks the protocol (RESP2 and RESP3) over a
// socket, with the class Connection below. Jedis, Lettuce and Redisson can send a command by name.
//
// usage: java LockClient.java HOST PORT [2|3]     (the RESP version; 2 if not given)

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.*;
import java.net.*;
import java.util.*;

public class LockClient {
    static final String PREFIX = "client-test:java:";
    static Connection r, other;

    public static void main(String[] args) throws Exception {
        String protocol = args.length > 2 ? args[2] : "2";
        r = new Connection(args[0], Integer.parseInt(args[1]), protocol);
        other = new Connection(args[0], Integer.parseInt(args[1]), protocol);
        data();
        ok("data");
        pipeline();
        ok("pipeline");
        transaction();
        ok("transaction");
        pubsub();
        ok("pubsub");
        script();
        ok("script");
        check("WAIT", r.command("WAIT", 0, 100), 0L);
        ok("wait-command");
        lock();
        ok("lock");
        checkError("LOCK with a negative timeout", "ERR timeout is negative: \"-1\" "
            + "(seconds, greater than 0, at most 86400)", "LOCK", PREFIX + "lock", -1);
        ok("lock-error");
        lockOrder();
        ok("lock-order");
        lockWait();
        ok("lock-wait");
        lockShared();
        ok("lock-shared");
        lockLost(args[0], Integer.parseInt(args[1]), protocol);
        ok("lock-lost");
    }

    static void ok(String step) {
        System.out.println("ok " + step);
    }

    static void check(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            System.err.println("FAIL " + what + ": got " + got + ", want " + want);
            System.exit(1);
        }
    }

    static void checkError(String what, String want, Object... command) throws IOException {
        try {
            check(what, r.command(command), "an error");
        } catch (RedisError e) {
            check(what, e.getMessage(), want);
        }
    }

    static void data() throws IOException {
        String key = PREFIX + "data", value = "some text \0\r\n\u00e9".repeat(10000);
        r.command("DEL", key, key + ":n", key + ":hash");
        check("GET of a missing key", r.command("GET", key), null);
        check("SET", r.command("SET", key, value), "OK");
        check("GET", other.command("GET", key), value);
        check("INCR", r.command("INCR", key + ":n"), 1L);
        check("HSET", r.command("HSET", key + ":hash", "a", 1, "b", 2), 2L);
        // A RESP3 map is read as a flat list here, which is what RESP2 sends.
        check("HGETALL", r.command("HGETALL", key + ":hash"), List.of("a", "1", "b", "2"));
        String wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";
        checkError("INCR of a hash", wrongType, "INCR", key + ":hash");
    }

    static void pipeline() throws IOException {
        for (int i = 0; i < 200; i++) {
            r.send("SET", PREFIX + "pipe:" + i, i);
            r.send("GET", PREFIX + "pipe:" + i);
        }
        for (int i = 0; i < 200; i++) {
            check("SET in a pipeline", r.receive(), "OK");
            check("GET in a pipeline", r.receive(), "" + i);
        }
    }

    static void transaction() throws IOException {
        String key = PREFIX + "tx";
        check("MULTI", r.command("MULTI"), "OK");
        check("SET", r.command("SET", key, 1), "QUEUED");
        check("INCR", r.command("INCR", key), "QUEUED");
        check("EXEC", r.command("EXEC"), List.of("OK", 2L));
        check("WATCH", r.command("WATCH", key), "OK");
        check("SET by another", other.command("SET", key, "changed"), "OK");
        r.command("MULTI");
        r.command("SET", key, "lost");
        check("EXEC of a changed key", r.command("EXEC"), null);
        check("GET after WATCH", r.command("GET", key), "changed");
    }

    static void pubsub() throws IOException {
        String channel = PREFIX + "channel";
        check("SUBSCRIBE", r.command("SUBSCRIBE", channel), List.of("subscribe", channel, 1L));
        check("PUBLISH", other.command("PUBLISH", channel, "hello"), 1L);
        check("message", r.receive(), List.of("message", channel, "hello"));
        check("UNSUBSCRIBE", r.command("UNSUBSCRIBE", channel), List.of("unsubscribe", channel, 0L));
        check("PUBLISH without subscribers", other.command("PUBLISH", channel, "hello"), 0L);
    }

    static void script() throws IOException {
        String key = PREFIX + "script";
        check("EVAL", r.command("EVAL", "return {KEYS[1], ARGV[1], 7}", 1, key, "arg"), List.of(key, "arg", 7L));
        Object sha = r.command("SCRIPT", "LOAD", "return redis.call('SET', KEYS[1], ARGV[1])");
        check("EVALSHA", r.command("EVALSHA", sha, 1, key, "by script"), "OK");
        check("GET", r.command("GET", key), "by script");
    }

    static void lock() throws IOException {
        String key = PREFIX + "lock";
        long token = (Long) r.command("LOCK", key, 600);
        check("LOCK from another connection", other.command("LOCK", key, 600), null);
        check("UNLOCK with a wrong token", other.command("UNLOCK", key, token + 1), 0L);
        check("UNLOCK with the token", other.command("UNLOCK", key, token), 1L);
        check("the next token is greater", (Long) r.command("LOCK", key, 600) > token, true);
        check("UNLOCK by another connection", other.command("UNLOCK", key), 0L);
        check("UNLOCK by this connection", r.command("UNLOCK", key), 1L);
    }

    static void lockOrder() throws IOException {
        String key = PREFIX + "order", value = "written under the lock";
        r.send("LOCK", key, 600);
        r.send("SET", key + ":value", value);
        r.send("UNLOCK", key);
        r.send("GET", key + ":value");
        check("LOCK", r.receive() instanceof Long token && token > 0, true);
        check("SET", r.receive(), "OK");
        check("UNLOCK", r.receive(), 1L);
        check("GET", r.receive(), value);
    }

    static void lockWait() throws Exception {
        String key = PREFIX + "wait";
        long token = (Long) r.command("LOCK", key, 600);
        other.send("LOCK", key, 600, "WAIT", 60);
        other.flush();
        Thread.sleep(200); // it must wait meanwhile
        check("replies while the lock is held", other.available(), 0);
        r.send("SET", key + ":value", token);
        r.send("UNLOCK", key);
        check("SET", r.receive(), "OK");
        check("UNLOCK", r.receive(), 1L);
        check("the waiter's token is greater", (Long) other.receive() > token, true);
        check("what the waiter sees", other.command("GET", key + ":value"), "" + token);
        check("UNLOCK by the waiter", other.command("UNLOCK", key), 1L);
    }

    static void lockShared() throws Exception {
        String key = PREFIX + "shared", limit = PREFIX + "limit";
        Object first = r.command("LOCK", key, 600, "SHARED");
        Object second = other.command("LOCK", key, 600, "SHARED");
        check("LOCK next to SHARED", r.command("LOCK", key, 600), null);
        List<Object> tokens = new ArrayList<>(); // of the holders; the latest is the first
        for (Object holder : (List<?>) r.command("LOCKINFO", key, "HOLDERS")) {
            tokens.add(((List<?>) holder).get(1));
        }
        check("HOLDERS", tokens, List.of(second, first));
        System.out.println("holds " + key + " " + first + " " + second);

        for (Connection c : List.of(r, other)) {
            check("LIMIT 2", c.command("LOCK", limit, 600, "LIMIT", 2) instanceof Long, true);
        }
        check("LIMIT 2, the third", r.command("LOCK", limit, 600, "LIMIT", 2), null);
        check("LIMIT 3", r.command("LOCK", limit, 600, "LIMIT", 3) instanceof Long, true);
        check("UNLOCK of all", r.command("UNLOCK", limit, "FORCE"), 1L);

        String one = PREFIX + "{all}1", two = PREFIX + "{all}2";
        Object token = r.command("LOCKALL", 600, 2, one, two);
        check("LOCKALL of one that is held", other.command("LOCKALL", 600, 1, two), null);
        check("UNLOCKALL", r.command("UNLOCKALL", token, 2, one, two), 2L);

        String anna = PREFIX + "anna", ben = PREFIX + "ben";
        r.command("LOCK", anna, 600, "OWNER", "anna");
        other.command("LOCK", ben, 600, "OWNER", "ben");
        other.send("LOCK", anna, 600, "WAIT", 60, "OWNER", "ben");
        other.flush();
        while (r.command("LOCKINFO", anna, "WAITERS").equals(List.of())) Thread.sleep(10);
        try {
            Object reply = r.command("LOCK", ben, 600, "WAIT", 60, "OWNER", "anna");
            check("two owners wait for each other", reply, "an error");
        } catch (RedisError e) {
            System.out.println("refused " + e.getMessage());
        }
        check("UNLOCK of what ben waits for", r.command("UNLOCK", anna), 1L);
        check("UNLOCK by ben", other.command("UNLOCK", anna, other.receive()), 1L);
        check("UNLOCK by ben", other.command("UNLOCK", ben), 1L);
    }

    /** Reads on the lock's own connection until it ends; in RESP3 a push comes first. */
    static void lockLost(String host, int port, String protocol) throws Exception {
        String key = PREFIX + "lost";
        Connection mine = new Connection(host, port, protocol);
        Object token = mine.command("LOCK", key, 600, "SESSION");
        check("UNLOCK FORCE", other.command("UNLOCK", key, "FORCE"), 1L);
        boolean ended = false;
        try {
            if (protocol.equals("3")) check("push", mine.receive(), List.of("locklost", key, token));
            check("after the lock is lost", mine.receive(), "the end");
        } catch (EOFException e) {
            ended = true;
        }
        check("the connection has ended", ended, true);
    }

    static class RedisError extends RuntimeException {
        RedisError(String message) {
            super(message);
        }
    }

    /** A connection to Redis, or to lockproxy. Replies are Long, String, List or null. */
    static class Connection {
        private final InputStream in;
        private final OutputStream out;

        Connection(String host, int port, String protocol) throws IOException {
            Socket socket = new Socket();
            socket.connect(new InetSocketAddress(host, port), 120000);
            socket.setSoTimeout(120000);
            in = new BufferedInputStream(socket.getInputStream());
            out = new BufferedOutputStream(socket.getOutputStream());
            command("HELLO", protocol);
        }

        Object command(Object... args) throws IOException {
            send(args);
            return receive();
        }

        void send(Object... args) throws IOException {
            out.write(("*" + args.length + "\r\n").getBytes(UTF_8));
            for (Object arg : args) {
                byte[] bytes = arg.toString().getBytes(UTF_8);
                out.write(("$" + bytes.length + "\r\n").getBytes(UTF_8));
                out.write(bytes);
                out.write("\r\n".getBytes(UTF_8));
            }
        }

        void flush() throws IOException {
            out.flush();
        }

        int available() throws IOException {
            return in.available();
        }

        Object receive() throws IOException {
            flush();
            String line = readLine(), rest = line.substring(1);
            switch (line.charAt(0)) {
                case '+': return rest;
                case '-': throw new RedisError(rest);
                case ':': return Long.valueOf(rest);
                case '_': return null;
                case '$': return rest.equals("-1") ? null : readBytes(Integer.parseInt(rest));
                case '*', '~', '>': return rest.equals("-1") ? null : readList(Integer.parseInt(rest));
                case '%': return readList(2 * Integer.parseInt(rest));
                default: throw new IOException("unexpected reply: " + line);
            }
        }

        private String readLine() throws IOException {
            ByteArrayOutputStream line = new ByteArrayOutputStream();
            for (int b; (b = in.read()) != '\n'; line.write(b)) {
                if (b < 0) throw new EOFException("connection closed");
            }
            String text = line.toString(UTF_8);
            return text.substring(0, text.length() - 1); // without the \r
        }

        private String readBytes(int length) throws IOException {
            byte[] bytes = in.readNBytes(length + 2);
            if (bytes.length != length + 2) throw new EOFException("connection closed");
            return new String(bytes, 0, length, UTF_8);
        }

        private List<Object> readList(int length) throws IOException {
            List<Object> list = new ArrayList<>();
            for (int i = 0; i < length; i++) list.add(receive());
            return list;
        }
    }
}
