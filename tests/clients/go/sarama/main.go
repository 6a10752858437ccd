// The client sarama, by the contract of ../../README.md.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"clients/contract"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

type client struct {
	addresses []string
	config    *sarama.Config
}

func main() {
	contract.Main(func(bootstrap string) (contract.Client, error) {
		config := sarama.NewConfig()
		config.Version = sarama.MaxVersion
		return client{[]string{bootstrap}, config}, nil
	})
}

func (c client) admin(act func(sarama.ClusterAdmin) error) error {
	admin, err := sarama.NewClusterAdmin(c.addresses, c.config)
	if err != nil {
		return err
	}
	defer admin.Close()
	return act(admin)
}

func (c client) Produce(
	_ context.Context, topic, codec string, idempotent bool, messages []contract.Message,
) error {
	c.config.Producer.Compression = codecs[codec]
	c.config.Producer.RequiredAcks = sarama.WaitForAll
	c.config.Producer.Return.Successes = true
	if idempotent {
		c.config.Producer.Idempotent = true
		c.config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(c.addresses, c.config)
	if err != nil {
		return err
	}
	defer producer.Close()
	sent := make([]*sarama.ProducerMessage, len(messages))
	for i, message := range messages {
		key, value := sarama.ByteEncoder(message.Key), sarama.ByteEncoder(message.Value)
		sent[i] = &sarama.ProducerMessage{Topic: topic, Key: key, Value: value}
	}
	return producer.SendMessages(sent)
}

// reader handles the partitions of a member, each in a goroutine of its own.
type reader struct {
	lock sync.Mutex
	left int // how many records it may still take; negative: any number
	stop func()
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.take(session, message, len(claim.Messages()) == 0)
	}
	return nil
}

// take commits after the last message that is there: a commit waits for the answer to a fetch before it.
func (r *reader) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage, last bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.left == 0 {
		return
	}
	contract.PrintRecord(int(message.Partition), message.Offset, message.Key, message.Value)
	session.MarkMessage(message, "")
	r.left--
	if last || r.left == 0 {
		session.Commit()
	}
	if r.left == 0 {
		r.stop()
	}
}

func (c client) Consume(ctx context.Context, topic, group string, count int) error {
	c.config.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.config.Consumer.Offsets.AutoCommit.Enable = false
	c.config.Consumer.Group.Session.Timeout = contract.SessionTimeout * time.Millisecond
	c.config.Consumer.Group.Heartbeat.Interval = contract.HeartbeatInterval * time.Millisecond
	consumer, err := sarama.NewConsumerGroup(c.addresses, group, c.config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reader := &reader{left: count, stop: stop}
	// A session ends when the members change.
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{topic}, reader); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (c client) Member(ctx context.Context, topic, group string) error {
	return c.Consume(ctx, topic, group, -1)
}

func (c client) CreateTopic(_ context.Context, topic string, partitions int) error {
	return c.admin(func(admin sarama.ClusterAdmin) error {
		detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}
		return admin.CreateTopic(topic, detail, false)
	})
}

func (c client) GrowTopic(_ context.Context, topic string, partitions int) error {
	return c.admin(func(admin sarama.ClusterAdmin) error {
		return admin.CreatePartitions(topic, int32(partitions), nil, false)
	})
}

func (c client) DeleteTopic(_ context.Context, topic string) error {
	return c.admin(func(admin sarama.ClusterAdmin) error { return admin.DeleteTopic(topic) })
}

func (c client) Offsets(_ context.Context, topic string, millisecond int64) error {
	client, err := sarama.NewClient(c.addresses, c.config)
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		var found [3]int64
		for i, time := range []int64{sarama.OffsetOldest, sarama.OffsetNewest, millisecond} {
			if found[i], err = client.GetOffset(topic, partition, time); err != nil {
				return err
			}
		}
		contract.PrintOffsets(int(partition), found[0], found[1], found[2])
	}
	return nil
}

func (c client) ListGroups(context.Context) (groups []string, err error) {
	err = c.admin(func(admin sarama.ClusterAdmin) error {
		listed, err := admin.ListConsumerGroups()
		for group := range listed {
			groups = append(groups, group)
		}
		return err
	})
	return groups, err
}

func (c client) DescribeGroup(_ context.Context, group string) (state string, members int, err error) {
	err = c.admin(func(admin sarama.ClusterAdmin) error {
		described, err := admin.DescribeConsumerGroups([]string{group})
		if err != nil {
			return err
		}
		state, members = described[0].State, len(described[0].Members)
		return nil
	})
	return state, members, err
}

func (c client) DeleteGroup(_ context.Context, group string) error {
	return c.admin(func(admin sarama.ClusterAdmin) error { return admin.DeleteConsumerGroup(group) })
}
