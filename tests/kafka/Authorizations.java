import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Decides as Kafka's StandardAuthorizer does. Lines of fields with tabs between them:
 * "acl" resource name pattern principal host operation permission: one more entry;
 * "clear": there are none any more;
 * "one" principal host operation resource name, "any" principal host operation resource: answered with true or false.
 * Kinds are Kafka's numbers. User:super is a super user.
 */
public class Authorizations {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "L"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        StandardAuthorizer authorizer = null;
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("clear")) {
                acls.clear();
                authorizer = null;
            } else if (f[0].equals("acl")) {
                acls.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(f[1])), f[2], PatternType.fromCode(Byte.parseByte(f[3])), f[4],
                    f[5], AclOperation.fromCode(Byte.parseByte(f[6])), AclPermissionType.fromCode(Byte.parseByte(f[7]))));
            } else {
                if (authorizer == null) {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of("super.users", "User:super"));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.loadSnapshot(new HashMap<>(acls));
                    authorizer.completeInitialLoad();
                }
                String[] who = f[1].split(":", 2);
                Client client = new Client(new KafkaPrincipal(who[0], who[1]), InetAddress.getByName(f[2]));
                AclOperation operation = AclOperation.fromCode(Byte.parseByte(f[3]));
                ResourceType resource = ResourceType.fromCode(Byte.parseByte(f[4]));
                Object answer;
                if (f[0].equals("any")) {
                    answer = authorizer.authorizeByResourceType(client, operation, resource);
                } else {
                    ResourcePattern pattern = new ResourcePattern(resource, f[5], PatternType.LITERAL);
                    answer = authorizer.authorize(client, List.of(new Action(operation, pattern, 1, true, true))).get(0);
                }
                answers.append(answer.toString().equals("ALLOWED")).append("\n");
            }
        }
        System.out.print(answers);
    }
}
