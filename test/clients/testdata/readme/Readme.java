// The program of clients/java/README.md, and what it uses of the program around it.
import java.io.IOException;

class Readme {
    interface Jedis { // stands for the client library
        String get(String key) throws IOException;
    }

    static String build(int day) {
        return "report " + day;
    }

    public static void main(String[] args) throws Exception {
        Jedis jedis = key -> null;
        // the program of README.md
    }
}
