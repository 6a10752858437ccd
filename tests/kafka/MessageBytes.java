import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * For each line "NAME VERSION JSON", prints the message as Kafka's own classes write it, in hexadecimal digits. The name
 * has a package unless it is that of requests and responses.
 */
public class MessageBytes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            System.out.println(hex(parts[0], Short.parseShort(parts[1]), mapper.readTree(parts[2])));
        }
    }

    private static String hex(String name, short version, JsonNode json) throws Exception {
        String place = name.contains(".") ? "" : "org.apache.kafka.common.message.";
        Class<?> converter = Class.forName(place + name + "JsonConverter");
        Message message;
        try {
            message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
        } catch (InvocationTargetException failed) {
            return "failed: " + name + " " + version + ": " + failed.getCause();
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }
}
