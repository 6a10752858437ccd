import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * For each line "TYPE VERSION BYTES JSON", with bytes in hexadecimal digits, prints the record of the cluster's metadata as
 * Kafka's own classes write it, and whether the bytes are the same record for them.
 */
public class RecordBytes {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        MetadataRecordSerde serde = new MetadataRecordSerde();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 4);
            short version = Short.parseShort(parts[1]);
            JsonNode json = mapper.readTree(parts[3]);
            MetadataRecordType type = MetadataRecordType.fromId(Short.parseShort(parts[0]));
            Class<?> converter = Class.forName(type.newMetadataRecord().getClass().getName() + "JsonConverter");
            ApiMessage message =
                (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
            ApiMessageAndVersion record = new ApiMessageAndVersion(message, version);
            byte[] given = HexFormat.of().parseHex(parts[2]);
            boolean isRead = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(given)), given.length).equals(record);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
            serde.write(record, cache, new ByteBufferAccessor(buffer));
            System.out.println(HexFormat.of().formatHex(buffer.array()) + " " + isRead);
        }
    }
}
