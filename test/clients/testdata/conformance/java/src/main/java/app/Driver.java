package app;

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.net.Socket;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import lockproxy.Lockproxy;

/** Does what it is told with the Java package: see features in conformance_test.go. */
public final class Driver {
    static final class Mine extends RuntimeException { }

    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    static Lockproxy.Connect connect;

    public static void main(String[] args) throws Exception {
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        connect = () -> new Socket(host, port);
        if (System.getenv("CA") != null) {
            SSLContext context = trusting(System.getenv("CA"));
            connect = () -> context.getSocketFactory().createSocket(host, port);
        }
        if (args.length > 2) {
            Own.show();
            return;
        }
        for (String[] line; (line = told()).length > 0;) {
            try {
                if (line[0].equals("lock")) {
                    lock(line);
                } else {
                    once(line);
                }
            } catch (Lockproxy.NotAcquired e) {
                say("refused");
            } catch (Lockproxy.Lost e) {
                say("lost");
            } catch (Mine e) {
                say("raised");
            } catch (InterruptedIOException e) {
                Thread.interrupted();
                say("cancelled");
            } catch (IOException | RuntimeException e) {
                say("error " + e.getMessage());
            }
        }
    }

    static SSLContext trusting(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (FileInputStream pem = new FileInputStream(file)) {
            store.setCertificateEntry("ca",
                CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust =
            TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    static String[] told() throws IOException {
        String line = in.readLine();
        return line == null ? new String[0] : line.split(" ");
    }

    static void say(String line) { System.out.println(line); }

    static Lockproxy.Options options(String[] line) {
        Lockproxy.Options options = new Lockproxy.Options();
        if (System.getenv("PASSWORD") != null) {
            options.auth(System.getenv("USERNAME"), System.getenv("PASSWORD"));
        }
        for (String word : line) {
            String[] option = word.split("=");
            if (option.length < 2) {
                continue;
            }
            Duration time = Duration.ofMillis(Math.round(Double.parseDouble(option[1]) * 1000));
            switch (option[0]) {
                case "timeout": options.timeout(time); break;
                case "max": options.max(time); break;
                case "ttl": options.ttl(time); break;
                case "early": options.early(time); break;
                default:
                    if (time.isZero()) {
                        options.waitForever();
                    } else {
                        options.wait(time);
                    }
            }
        }
        return options;
    }

    static void lock(String[] line) throws Exception {
        if (line[line.length - 1].equals("cancel")) {
            Thread waiter = Thread.currentThread();
            new Thread(() -> {
                try {
                    told();
                } catch (IOException e) {
                    return;
                }
                waiter.interrupt();
            }).start();
        }
        try (Lockproxy lock = Lockproxy.lock(connect, line[1], options(line))) {
            say("held " + lock.token);
            for (String[] next; !(next = told())[0].equals("leave");) {
                step(lock, next);
            }
        }
        say("released");
    }

    static void step(Lockproxy lock, String[] line) throws Exception {
        try {
            switch (line[0]) {
                case "raise": throw new Mine();
                case "fence":
                    say("reply " + lock.fence(Arrays.copyOfRange(line, 1, line.length)));
                    break;
                case "extend":
                    lock.extend(Duration.ofSeconds(Long.parseLong(line[1])));
                    say("extended");
                    break;
                case "sql":
                case "begin":
                    write(lock, line[0].equals("sql"), line[1]);
                    break;
                case "commit":
                    db.commit();
                    say("written");
                    break;
                case "check":
                    lock.check();
                    say("ok");
                    break;
                default:
                    lock.lost.get();
                    say("told");
            }
        } catch (Lockproxy.Lost e) {
            say("lost");
        } catch (Lockproxy.RedisError e) {
            say("error " + e.getMessage());
        }
    }

    static Connection db;

    static void write(Lockproxy lock, boolean commit, String value) throws SQLException {
        db = DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":"
            + System.getenv("PGPORT") + "/postgres?user=postgres");
        db.setAutoCommit(false);
        lock.fence(db);
        try (PreparedStatement insert = db.prepareStatement("INSERT INTO writes VALUES (?)")) {
            insert.setString(1, value);
            insert.executeUpdate();
        }
        if (commit) {
            db.commit();
        }
        say(commit ? "written" : "begun");
    }

    static void once(String[] line) throws Exception {
        say("value " + Lockproxy.once(connect, new Reader(), line[1], options(line), claim -> {
            say("make " + claim.token);
            for (String[] next; ; step(claim, next)) {
                if ((next = told())[0].equals("value")) {
                    return next[1];
                }
            }
        }));
    }

    /** Stands for a client library: Debian has none for Java. */
    static final class Reader implements Lockproxy.Values {
        static Socket socket;

        @Override
        public String get(String key) throws IOException {
            String size = ask("GET " + key);
            return size.equals("$-1") ? null : line();
        }

        @Override
        public long pttl(String key) throws IOException {
            return Long.parseLong(ask("PTTL " + key).substring(1));
        }

        static String ask(String request) throws IOException {
            if (socket == null) {
                socket = connect.connect();
            }
            socket.getOutputStream().write((request + "\r\n").getBytes());
            return line();
        }

        static String line() throws IOException {
            StringBuilder line = new StringBuilder();
            for (int b; (b = socket.getInputStream().read()) != '\n';) {
                line.append((char) b);
            }
            return line.substring(0, line.length() - 1);
        }
    }
}
