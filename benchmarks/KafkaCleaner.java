import java.io.File;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Cleans the logs in some folders with Kafka's own cleaner, and says how long each took.
 *
 *     java -cp '.kafka/jars/*' KafkaCleaner.java LOG_END FOLDER...
 *
 * Each folder is named TOPIC-PARTITION. A line for each: seconds for the map of keys, seconds in all, records read and
 * kept. The first ones warm the compiler of the JVM.
 */
public class KafkaCleaner {
    private static final int MAP_BYTES = 128 * 1024 * 1024;
    private static final int IO_BYTES = 512 * 1024;
    private static final int SEGMENT_BYTES = 1 << 30;

    public static void main(String[] args) throws Exception {
        long logEnd = Long.parseLong(args[0]);
        SkimpyOffsetMap map = new SkimpyOffsetMap(MAP_BYTES);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (int i = 1; i < args.length; i++) {
            clean(new File(args[i]), logEnd, map, scheduler);
        }
        // Threads of the scheduler would keep the process alive.
        System.exit(0);
    }

    private static void clean(File folder, long logEnd, SkimpyOffsetMap map, KafkaScheduler scheduler)
            throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of("cleanup.policy", "compact", "segment.bytes", String.valueOf(SEGMENT_BYTES)));
        UnifiedLog log = UnifiedLog.create(
            folder, new LogConfig(settings), 0L, logEnd, scheduler, new BrokerTopicStats(), Time.SYSTEM, 3600000,
            new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true,
            Optional.empty());
        Throttler unlimited = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttle", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(
            0, map, IO_BYTES, 1 << 30, 0.9, unlimited, Time.SYSTEM, partition -> { });
        long uncleanable = log.activeSegment().baseOffset();
        long start = System.nanoTime();
        CleanerStats stats =
            cleaner.doClean(new LogToClean(log, 0L, uncleanable, false), System.currentTimeMillis()).getValue();
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf(
            "cleaned %f %f %d %d%n", stats.elapsedIndexSecs(), seconds, stats.messagesRead(), stats.messagesWritten());
        log.close();
    }
}
