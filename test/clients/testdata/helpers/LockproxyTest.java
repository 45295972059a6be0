// clients/java/Lockproxy.java.
//
// usage: java LockproxyTest HOST PORT          every step
//        java LockproxyTest HOST PORT hold KEY holds KEY until it is killed; wait KEY SECONDS waits for it

import java.io.IOException;
import java.net.Socket;
import java.util.Collections;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;

public class LockproxyTest {
    static final String PREFIX = "helper:java:";
    static Lockproxy.Connect connect;

    interface Step { void run() throws Exception; }

    public static void main(String[] args) throws Exception {
        connect = () -> new Socket(args[0], Integer.parseInt(args[1]));
        if (args.length > 2) {
            try (Lockproxy lock = lock(args[3], args.length > 4 ? Double.valueOf(args[4]) : null)) {
                System.out.println("held");
                Thread.sleep(600_000);
            }
        }
        acquire();
        System.out.println("ok acquire");
        waits();
        System.out.println("ok wait");
        exception();
        System.out.println("ok exception");
        fence();
        System.out.println("ok fence");
        lost();
        System.out.println("ok lost");
        longest();
        System.out.println("ok longest");
        once();
        System.out.println("ok once");
        optionsUsedTwice();
        closesTwice();
        interrupted();
        readTimeout();
    }

    static Lockproxy lock(String key, Double wait) throws IOException {
        return Lockproxy.lock(connect, key, 600, wait);
    }

    static void check(String what, Object got, Object want) {
        if (!Objects.equals(got, want)) {
            System.err.println("FAIL " + what + ": got " + got + ", want " + want);
            System.exit(1);
        }
    }

    static void raises(String what, Class<?> error, Step step) {
        try {
            step.run();
        } catch (Throwable e) {
            check(what, e.getClass(), error);
            return;
        }
        check(what, "no error", error);
    }

    static void acquire() throws Exception {
        String key = PREFIX + "acquire";
        long first;
        try (Lockproxy lock = lock(key, null)) {
            first = lock.token;
            check("token", first > 0, true);
            raises("a second one", Lockproxy.NotAcquired.class, () -> lock(key, null));
            raises("a wait that ends", Lockproxy.NotAcquired.class, () -> lock(key, 0.1));
            lock.check();
        }
        try (Lockproxy lock = lock(key, null)) { // it is free
            check("the next token is greater", lock.token > first, true);
        }
        raises("a bad request", Lockproxy.RedisError.class,
            () -> Lockproxy.lock(connect, key, -1, null));
        raises("a bad password", Lockproxy.RedisError.class,
            () -> Lockproxy.lock(connect, key, 30, null, "secret"));
    }

    static void waits() throws Exception {
        String key = PREFIX + "wait";
        CompletableFuture<Long> second = new CompletableFuture<>();
        long first;
        try (Lockproxy lock = lock(key, null)) {
            first = lock.token;
            Thread waiter = new Thread(() -> {
                try (Lockproxy other = lock(key, 0.0)) {
                    second.complete(other.token);
                } catch (IOException e) {
                    second.completeExceptionally(e);
                }
            });
            waiter.start();
            untilWaiter(key);
            check("given meanwhile", second.isDone(), false);
        }
        check("the waiter's token is greater", second.get() > first, true);
    }

    static void exception() throws Exception {
        String key = PREFIX + "exception";
        raises("the block's own error", IllegalStateException.class, () -> {
            try (Lockproxy lock = lock(key, null)) {
                throw new IllegalStateException();
            }
        });
        lock(key, null).close(); // it is free
    }

    static void fence() throws Exception {
        String key = PREFIX + "fence";
        try (Lockproxy lock = lock(key, null)) {
            check("FENCE", lock.fence("SET", key + ":value", "one"), "OK");
            check("what is written", lock.fence("GET", key + ":value"), "one");
            raises("an error of the command", Lockproxy.RedisError.class,
                () -> lock.fence("INCR", key + ":value"));
        }
    }

    static void longest() throws Exception {
        Lockproxy.Options options = new Lockproxy.Options().timeout(600).max(0.3).owner("me");
        raises("close", Lockproxy.Lost.class, () -> {
            try (Lockproxy lock = Lockproxy.lock(connect, PREFIX + "max", options)) {
                lock.lost.get();
            }
        });
    }

    static String once(String key, Lockproxy.Options options, Lockproxy.Make make)
            throws Exception {
        return Lockproxy.once(connect, key, options, make);
    }

    /** What a proxy answers to one request, which has one line or is an array of bulk strings. */
    static String ask(String request) throws IOException {
        try (Socket socket = connect.connect()) {
            socket.getOutputStream().write((request + "\r\nQUIT\r\n").getBytes());
            return new String(socket.getInputStream().readAllBytes());
        }
    }

    static void untilWaiter(String key) throws Exception {
        while (ask("LOCKINFO " + key + " WAITERS").startsWith("*0")) {
            Thread.sleep(10);
        }
    }

    static String claimOf(String key) throws IOException {
        String scan = ask("LOCKSCAN 0 MATCH " + key + ":once:* COUNT 100000");
        return scan.substring(scan.indexOf(key)).split("\r\n")[0];
    }

    static void once() throws Exception {
        String key = PREFIX + "once";
        Lockproxy.Make fail = claim -> { throw new IllegalStateException(); };
        Lockproxy.Options none = new Lockproxy.Options();
        CompletableFuture<String> second = new CompletableFuture<>();
        String value = once(key, new Lockproxy.Options().ttl(300), claim -> {
            check("token", claim.token > 0, true);
            raises("a second maker", Lockproxy.NotAcquired.class, () -> once(key, none, fail));
            Thread waiter = new Thread(() -> {
                try {
                    second.complete(once(key, new Lockproxy.Options().wait(0), fail));
                } catch (Exception e) {
                    second.completeExceptionally(e);
                }
            });
            waiter.start();
            untilWaiter(claimOf(key));
            return "the value";
        });
        check("made", value, "the value");
        check("given", second.get(), "the value");
        check("there", once(key, none, fail), "the value");
        check("how long it lives", ask("TTL " + key).compareTo(":200") > 0, true);
        check("early enough", once(key, new Lockproxy.Options().early(100), fail), "the value");
        Lockproxy.Options early = new Lockproxy.Options().early(400).ttl(600);
        check("soon gone", once(key, early, claim -> {
            check("while it is made again", once(key, early, fail), "the value");
            return "newer";
        }), "newer");
        check("stored", once(key, none, fail), "newer");
        raises("the maker's own error", IllegalStateException.class,
            () -> once(key + ":2", none, fail));
        check("after it", once(key + ":2", none, claim -> "5"), "5");
        raises("the end of a lost claim", Lockproxy.Lost.class,
            () -> once(key + ":3", new Lockproxy.Options().timeout(600), claim -> {
                ask("UNLOCK " + claimOf(key + ":3") + " FORCE");
                claim.lost.get();
                return "late";
            }));
        raises("what DONE says", Lockproxy.RedisError.class,
            () -> once(key + ":3", new Lockproxy.Options().ttl(0), claim -> "1"));
    }

    /** Options that are used twice name two holders, which exclude each other. */
    static void optionsUsedTwice() throws Exception {
        Lockproxy.Options options = new Lockproxy.Options();
        try (Lockproxy lock = Lockproxy.lock(connect, PREFIX + "options", options)) {
            raises("a second one", Lockproxy.NotAcquired.class,
                () -> Lockproxy.lock(connect, PREFIX + "options", options));
        }
    }

    static void closesTwice() throws Exception {
        try (Lockproxy lock = lock(PREFIX + "twice", null)) {
            check("null", lock.fence("GET", PREFIX + "none"), null);
            check("null in a list", lock.fence("MGET", PREFIX + "none"),
                Collections.singletonList(null));
            lock.close();
        }
        Lockproxy lock = lock(PREFIX + "twice", null);
        CompletableFuture<Void> closed = lock.lost.handle((nothing, error) -> {
            raises("close of a lost lock", Lockproxy.Lost.class, lock::close);
            return null;
        });
        try (Socket socket = connect.connect()) {
            socket.getOutputStream().write(
                ("UNLOCK " + PREFIX + "twice FORCE\r\n").getBytes());
            closed.get();
        }
    }

    static void interrupted() throws Exception {
        try (Lockproxy lock = lock(PREFIX + "interrupted", null)) {
            lock.fence("SET", PREFIX + "value", "one");
            // An answer that has come before the fence waits for it is not an error: once more.
            for (boolean again = true; again;) {
                Thread.currentThread().interrupt();
                try {
                    lock.fence("GET", PREFIX + "value");
                    Thread.interrupted();
                } catch (IOException e) {
                    check("a fence that is interrupted", e.getClass(), IOException.class);
                    again = false;
                }
            }
            check("interrupted", Thread.interrupted(), true);
            check("the next reply", lock.fence("ECHO", "two"), "two");
        }
    }

    static void readTimeout() throws Exception {
        Lockproxy.Connect impatient = () -> {
            Socket socket = connect.connect();
            socket.setSoTimeout(100);
            return socket;
        };
        try (Lockproxy lock = Lockproxy.lock(impatient, PREFIX + "timeout", 600, null)) {
            Thread.sleep(300);
            lock.check();
        }
    }

    static void lost() throws Exception {
        String key = PREFIX + "lost";
        raises("close", Lockproxy.Lost.class, () -> {
            try (Lockproxy lock = lock(key, null); Lockproxy other = lock(key + ":2", null)) {
                check("UNLOCK FORCE", other.fence("PING"), "PONG");
                try (Socket socket = connect.connect()) {
                    socket.getOutputStream().write(("UNLOCK " + key + " FORCE\r\n").getBytes());
                    check("UNLOCK FORCE", socket.getInputStream().read(), (int) ':');
                }
                lock.lost.get();
                raises("check", Lockproxy.Lost.class, lock::check);
                raises("FENCE", Lockproxy.Lost.class, () -> lock.fence("SET", key, "1"));
            }
        });
    }
}
