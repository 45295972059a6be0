package app;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.Socket;
import java.time.Duration;
import java.util.Collections;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import lockproxy.Lockproxy;

/** Shows what only the Java package has. */
final class Own {
    private Own() { }

    interface Step { void run() throws Exception; }

    static void show() throws Exception {
        mistakes();
        optionsUsedTwice();
        closesTwice();
        interrupted();
        readTimeout();
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

    static void mistakes() {
        raises("a wait of nothing", IllegalArgumentException.class,
            () -> new Lockproxy.Options().wait(Duration.ZERO));
        raises("early without pttl", UnsupportedOperationException.class,
            () -> Lockproxy.once(Driver.connect, key -> "there", "own:early",
                new Lockproxy.Options().early(Duration.ofSeconds(1)), claim -> "made"));
    }

    /** Options that are used twice name two holders, which exclude each other. */
    static void optionsUsedTwice() throws Exception {
        Lockproxy.Options options = new Lockproxy.Options();
        try (Lockproxy lock = Lockproxy.lock(Driver.connect, "own:options", options)) {
            raises("a second one", Lockproxy.NotAcquired.class,
                () -> Lockproxy.lock(Driver.connect, "own:options", options));
        }
    }

    static void closesTwice() throws Exception {
        try (Lockproxy lock = Lockproxy.lock(Driver.connect, "own:twice")) {
            check("null", lock.fence("GET", "own:none"), null);
            check("null in a list", lock.fence("MGET", "own:none"),
                Collections.singletonList(null));
            lock.close();
        }
        Lockproxy lock = Lockproxy.lock(Driver.connect, "own:twice");
        CompletableFuture<Void> closed = lock.lost.handle((nothing, error) -> {
            raises("close of a lost lock", Lockproxy.Lost.class, lock::close);
            return null;
        });
        try (Socket socket = Driver.connect.connect()) {
            socket.getOutputStream().write("UNLOCK own:twice FORCE\r\n".getBytes());
            closed.get();
        }
    }

    static void interrupted() throws Exception {
        try (Lockproxy lock = Lockproxy.lock(Driver.connect, "own:interrupted")) {
            lock.fence("SET", "own:value", "one");
            // An answer that has come before the fence waits for it is not an error: once more.
            for (boolean again = true; again;) {
                Thread.currentThread().interrupt();
                try {
                    lock.fence("GET", "own:value");
                    Thread.interrupted();
                } catch (IOException e) {
                    check("a fence that is interrupted", e.getClass(),
                        InterruptedIOException.class);
                    again = false;
                }
            }
            check("interrupted", Thread.interrupted(), true);
            check("the next reply", lock.fence("ECHO", "two"), "two");
        }
    }

    /** The socket's own timeout is not for a lock's connection. */
    static void readTimeout() throws Exception {
        Lockproxy.Connect impatient = () -> {
            Socket socket = Driver.connect.connect();
            socket.setSoTimeout(100);
            return socket;
        };
        try (Lockproxy lock = Lockproxy.lock(impatient, "own:timeout")) {
            Thread.sleep(300);
            lock.check();
        }
    }
}
