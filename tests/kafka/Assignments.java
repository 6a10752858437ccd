import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Assigns as Kafka's assignors of clients do. Lines of fields with tabs between them:
 * "topic" name partitions: one more topic;
 * "member" id instance topics owned: one more member; names are separated by commas, partitions are topic:number;
 * "assign" assignor: answered with a line for each member, sorted: id and partitions; then all is forgotten.
 * cooperative-sticky assigns twice, so that members get what was withheld until others had given it up.
 */
public class Assignments {
    static final Node NODE = new Node(0, "localhost", 9092);

    record Member(String id, String instance, List<String> topics, List<TopicPartition> owned) {
        static Member of(String[] f) {
            List<TopicPartition> owned = new ArrayList<>();
            for (String one : list(f[4])) {
                String[] parts = one.split(":");
                owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
            }
            return new Member(f[1], f[2], list(f[3]), owned);
        }

        /** What it says to the group's leader, by a new assignor of its own that was told what it owns. */
        Subscription subscription(ConsumerPartitionAssignor assignor) {
            Optional<String> instanceId = instance.isEmpty() ? Optional.empty() : Optional.of(instance);
            assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", 1, id, instanceId));
            Subscription one = new Subscription(
                topics, assignor.subscriptionUserData(new HashSet<>(topics)), owned, 1, Optional.empty());
            one.setGroupInstanceId(instanceId);
            return one;
        }
    }

    static List<String> list(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }

    static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    static Map<String, List<TopicPartition>> assign(String name, List<PartitionInfo> partitions, List<Member> members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Member member : members)
            subscriptions.put(member.id, member.subscription(assignor(name)));
        Cluster cluster = new Cluster("c", List.of(NODE), partitions, Set.of(), Set.of());
        Map<String, List<TopicPartition>> found = new TreeMap<>();
        assignor(name).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment()
            .forEach((id, assignment) -> found.put(id, assignment.partitions()));
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        List<PartitionInfo> partitions = new ArrayList<>();
        List<Member> members = new ArrayList<>();
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            if (f[0].equals("topic")) {
                for (int number = 0; number < Integer.parseInt(f[2]); number++)
                    partitions.add(new PartitionInfo(f[1], number, NODE, new Node[0], new Node[0]));
            } else if (f[0].equals("member")) {
                members.add(Member.of(f));
            } else {
                Map<String, List<TopicPartition>> found = assign(f[1], partitions, members);
                if (f[1].equals("cooperative-sticky")) {
                    List<Member> after = new ArrayList<>();
                    for (Member one : members)
                        after.add(new Member(one.id, one.instance, one.topics, found.get(one.id)));
                    found = assign(f[1], partitions, after);
                }
                found.forEach((id, its) -> {
                    List<String> names = new ArrayList<>();
                    for (TopicPartition one : its)
                        names.add(one.topic() + ":" + one.partition());
                    answers.append(id).append("\t").append(String.join(",", names)).append("\n");
                });
                partitions.clear();
                members.clear();
            }
        }
        System.out.print(answers);
    }
}
