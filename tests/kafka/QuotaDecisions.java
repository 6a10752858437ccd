import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Decides as Kafka's managers of quotas do. Lines of fields with tabs between them:
 * "clear": there are no quotas any more, and nothing was used;
 * "set" user client value: one more quota, of bytes and of permits; "-" is none, "*" the default;
 * "bound" user client: answered with the bound, or "none", and whose usage counts together;
 * "bytes" user client time amount: so much is used; answered with the time to wait (ms);
 * "window" user client: answered with what can be fetched at once, or "none";
 * "strict" and "permissive" user client time amount: permits are taken; answered with the time to wait (ms), and for
 * "strict" with whether they were refused.
 * Times are in milliseconds.
 */
public class QuotaDecisions {
    static long now;

    static final Time TIME = new Time() {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1000000; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
        public org.apache.kafka.common.utils.Timer timer(long timeout) { throw new UnsupportedOperationException(); }
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder answers = new StringBuilder();
        ClientQuotaManager bytes = null;
        ControllerMutationQuotaManager permits = null;
        InetAddress address = InetAddress.getByName("127.0.0.1");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("clear")) {
                if (bytes != null) {
                    bytes.shutdown();
                    permits.shutdown();
                }
                Metrics metrics = new Metrics(new MetricConfig(), java.util.List.of(), TIME);
                ClientQuotaManagerConfig config = new ClientQuotaManagerConfig();
                bytes = new ClientQuotaManager(config, metrics, QuotaType.FETCH, TIME, "");
                permits = new ControllerMutationQuotaManager(config, metrics, TIME, "", Optional.empty());
                continue;
            }
            if (f[0].equals("set")) {
                Optional<ClientQuotaEntity.ConfigEntity> user = f[1].equals("-") ? Optional.empty()
                    : Optional.of(f[1].equals("*") ? ClientQuotaManager.DEFAULT_USER_ENTITY
                        : new ClientQuotaManager.UserEntity(f[1]));
                Optional<ClientQuotaEntity.ConfigEntity> client = f[2].equals("-") ? Optional.empty()
                    : Optional.of(f[2].equals("*") ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID
                        : new ClientQuotaManager.ClientIdEntity(f[2]));
                Optional<Quota> quota = Optional.of(new Quota(Double.parseDouble(f[3]), true));
                bytes.updateQuota(user, client, quota);
                permits.updateQuota(user, client, quota);
                continue;
            }
            Session session = new Session(new KafkaPrincipal("User", f[1]), address);
            if (f[0].equals("bound")) {
                double bound = bytes.quota(f[1], f[2]).bound();
                Map<String, String> tags = bytes.getOrCreateQuotaSensors(session, f[2]).metricTags();
                answers.append(bound > 1e18 ? "none" : bound + "\t" + tags.get("user") + "\t" + tags.get("client-id"));
            } else if (f[0].equals("window")) {
                double most = bytes.maxValueInQuotaWindow(session, f[2]);
                answers.append(most > 1e18 ? "none" : Double.toString(most));
            } else if (f[0].equals("bytes")) {
                now = Long.parseLong(f[3]);
                answers.append(bytes.recordAndGetThrottleTimeMs(session, f[2], Double.parseDouble(f[4]), now));
            } else {
                now = Long.parseLong(f[3]);
                boolean strict = f[0].equals("strict"), refused = false;
                ControllerMutationQuota quota = strict ? permits.newStrictQuotaFor(session, f[2])
                    : permits.newPermissiveQuotaFor(session, f[2]);
                try {
                    quota.record(Double.parseDouble(f[4]));
                } catch (ThrottlingQuotaExceededException e) {
                    refused = true;
                }
                answers.append(quota.throttleTime() + "\t" + refused);
            }
            answers.append("\n");
        }
        System.out.print(answers);
        System.out.flush();
        System.exit(0);
    }
}
