import org.apache.kafka.common.protocol.Errors;

/** Prints "NAME CODE" for each of Kafka's error codes. */
public class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            System.out.println(error.name() + " " + error.code());
        }
    }
}
