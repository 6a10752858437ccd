// The client segmentio/kafka-go, by the contract of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"

	"clients/contract"
)

var codecs = map[string]kafka.Compression{
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

type client struct {
	bootstrap string
	admin     *kafka.Client
}

func main() {
	contract.Main(func(bootstrap string) (contract.Client, error) {
		return client{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap)}}, nil
	})
}

func (c client) Produce(
	ctx context.Context, topic, codec string, idempotent bool, messages []contract.Message,
) error {
	if idempotent {
		return errors.New("the library has no idempotent producer")
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(c.bootstrap),
		Topic:        topic,
		Balancer:     kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll,
		Compression:  codecs[codec],
		BatchTimeout: 10 * time.Millisecond,
	}
	sent := make([]kafka.Message, len(messages))
	for i, message := range messages {
		sent[i] = kafka.Message{Key: message.Key, Value: message.Value}
	}
	return errors.Join(writer.WriteMessages(ctx, sent...), writer.Close())
}

// read prints and commits records, one after the other, until none may be taken any more or the context is done.
func (c client) read(ctx context.Context, topic, group string, more func() bool) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{c.bootstrap},
		GroupID:           group,
		Topic:             topic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           100 * time.Millisecond,
		SessionTimeout:    contract.SessionTimeout * time.Millisecond,
		HeartbeatInterval: contract.HeartbeatInterval * time.Millisecond,
		ErrorLogger:       kafka.LoggerFunc(func(text string, more ...any) { fmt.Fprintf(os.Stderr, text+"\n", more...) }),
	})
	for more() {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		contract.PrintRecord(message.Partition, message.Offset, message.Key, message.Value)
		if err := reader.CommitMessages(ctx, message); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return reader.Close()
}

func (c client) Consume(ctx context.Context, topic, group string, count int) error {
	return c.read(ctx, topic, group, func() bool { count--; return count >= 0 })
}

func (c client) Member(ctx context.Context, topic, group string) error {
	return c.read(ctx, topic, group, func() bool { return true })
}

func (c client) CreateTopic(ctx context.Context, topic string, partitions int) error {
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	created, err := c.admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	if err != nil {
		return err
	}
	return created.Errors[topic]
}

func (c client) GrowTopic(ctx context.Context, topic string, partitions int) error {
	config := kafka.TopicPartitionsConfig{Name: topic, Count: int32(partitions)}
	request := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{config}}
	grown, err := c.admin.CreatePartitions(ctx, request)
	if err != nil {
		return err
	}
	return grown.Errors[topic]
}

func (c client) DeleteTopic(ctx context.Context, topic string) error {
	deleted, err := c.admin.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

func (c client) Offsets(ctx context.Context, topic string, millisecond int64) error {
	partitions, err := kafka.LookupPartitions(ctx, "tcp", c.bootstrap, topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		// Client.ListOffsets does not say of which partition the offset of a time is.
		leader, err := kafka.DialPartition(ctx, "tcp", c.bootstrap, partition)
		if err != nil {
			return err
		}
		earliest, latest, first := leader.ReadOffsets()
		at, second := leader.ReadOffset(time.UnixMilli(millisecond))
		if err := errors.Join(first, second, leader.Close()); err != nil {
			return err
		}
		contract.PrintOffsets(partition.ID, earliest, latest, at)
	}
	return nil
}

func (c client) ListGroups(ctx context.Context) (groups []string, err error) {
	listed, err := c.admin.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	for _, group := range listed.Groups {
		groups = append(groups, group.GroupID)
	}
	return groups, listed.Error
}

func (c client) DescribeGroup(ctx context.Context, group string) (state string, members int, err error) {
	described, err := c.admin.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return "", 0, err
	}
	found := described.Groups[0]
	return found.GroupState, len(found.Members), found.Error
}

func (c client) DeleteGroup(ctx context.Context, group string) error {
	deleted, err := c.admin.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return deleted.Errors[group]
}
