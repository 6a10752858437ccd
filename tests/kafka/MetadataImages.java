import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.LocalReplicaChanges;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.SupportedConfigChecker;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Kafka's own image of a cluster's metadata. Lines of its input:
 *
 * "batch OFFSET BYTES...": the records of the next batch, in hexadecimal digits. It prints the last offset that is in the
 * image, and what changes for the replicas of broker 1.
 * "image": it prints the records that the image is written as, and begins again.
 */
public class MetadataImages {
    private static final MetadataRecordSerde SERDE = new MetadataRecordSerde();
    private static MetadataImage image = MetadataImage.EMPTY;
    private static final TreeSet<String> CHANGES = new TreeSet<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        MetadataBatchLoader loader = newLoader();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            if (parts[0].equals("image")) {
                System.out.println(written());
                image = MetadataImage.EMPTY;
                loader = newLoader();
                continue;
            }
            List<ApiMessageAndVersion> records = new ArrayList<>();
            for (int i = 2; i < parts.length; i++) {
                byte[] bytes = HexFormat.of().parseHex(parts[i]);
                records.add(SERDE.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length));
            }
            CHANGES.clear();
            loader.loadBatch(Batch.data(Long.parseLong(parts[1]), 1, 0, 1, records), LeaderAndEpoch.UNKNOWN);
            loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
            System.out.println(image.offset() + " " + String.join(" ", CHANGES));
        }
    }

    private static MetadataBatchLoader newLoader() {
        return new MetadataBatchLoader(new LogContext(), Time.SYSTEM, (message, cause) -> {
            throw new RuntimeException(message, cause);
        }, (delta, next, manifest) -> {
            image = next;
            note(delta);
        }, SupportedConfigChecker.TRUE);
    }

    private static void note(MetadataDelta delta) {
        if (delta.topicsDelta() == null) {
            return;
        }
        LocalReplicaChanges found = delta.topicsDelta().localChanges(1);
        found.deletes().forEach(at -> CHANGES.add("delete:" + at));
        found.electedLeaders().forEach((at, info) -> CHANGES.add("elected:" + at + ":" + info.partition().leaderEpoch));
        found.leaders().forEach((at, info) -> CHANGES.add("leader:" + at + ":" + info.partition().partitionEpoch));
        found.followers().forEach((at, info) -> CHANGES.add("follower:" + at + ":" + info.partition().partitionEpoch));
    }

    private static String written() {
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).setEligibleLeaderReplicasEnabled(true).build());
        List<String> found = new ArrayList<>();
        for (ApiMessageAndVersion record : writer.records()) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(SERDE.recordSize(record, cache));
            SERDE.write(record, cache, new ByteBufferAccessor(buffer));
            found.add(HexFormat.of().formatHex(buffer.array()));
        }
        return String.join(" ", found);
    }
}
