// The client franz-go (kgo and kadm), by the contract of ../../README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"clients/contract"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type franz struct{ bootstrap string }

func main() {
	contract.Main(func(bootstrap string) (contract.Client, error) { return franz{bootstrap}, nil })
}

func (f franz) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(f.bootstrap))...)
}

func (f franz) admin(act func(*kadm.Client) error) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	defer client.Close()
	return act(kadm.NewClient(client))
}

func (f franz) Produce(
	ctx context.Context, topic, codec string, idempotent bool, messages []contract.Message,
) error {
	options := []kgo.Opt{kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codecs[codec])}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := f.client(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(messages))
	for i, message := range messages {
		records[i] = &kgo.Record{Key: message.Key, Value: message.Value}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func (f franz) group(topic, group string) (*kgo.Client, error) {
	return f.client(
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(contract.SessionTimeout*time.Millisecond),
		kgo.HeartbeatInterval(contract.HeartbeatInterval*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	)
}

func (f franz) Consume(ctx context.Context, topic, group string, count int) error {
	client, err := f.group(topic, group)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for count > 0 {
		fetches := client.PollRecords(ctx, count)
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for _, record := range records {
			contract.PrintRecord(int(record.Partition), record.Offset, record.Key, record.Value)
		}
		if err := client.CommitRecords(ctx, records...); err != nil {
			return err
		}
		client.AllowRebalance()
		count -= len(records)
	}
	return nil
}

func (f franz) Member(ctx context.Context, topic, group string) error {
	client, err := f.group(topic, group)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for _, record := range records {
			contract.PrintRecord(int(record.Partition), record.Offset, record.Key, record.Value)
		}
		if err := client.CommitRecords(ctx, records...); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "not committed:", err)
		}
		client.AllowRebalance()
	}
}

func (f franz) CreateTopic(ctx context.Context, topic string, partitions int) error {
	return f.admin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, int32(partitions), 1, nil, topic)
		return err
	})
}

func (f franz) GrowTopic(ctx context.Context, topic string, partitions int) error {
	return f.admin(func(admin *kadm.Client) error {
		grown, err := admin.UpdatePartitions(ctx, partitions, topic)
		return errors.Join(err, grown.Error())
	})
}

func (f franz) DeleteTopic(ctx context.Context, topic string) error {
	return f.admin(func(admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, topic)
		return err
	})
}

func (f franz) Offsets(ctx context.Context, topic string, millisecond int64) error {
	return f.admin(func(admin *kadm.Client) error {
		earliest, first := admin.ListStartOffsets(ctx, topic)
		latest, second := admin.ListEndOffsets(ctx, topic)
		at, third := admin.ListOffsetsAfterMilli(ctx, millisecond, topic)
		if err := errors.Join(first, second, third, earliest.Error(), latest.Error(), at.Error()); err != nil {
			return err
		}
		for partition := range int32(len(earliest[topic])) {
			begin, end := earliest[topic][partition].Offset, latest[topic][partition].Offset
			contract.PrintOffsets(int(partition), begin, end, at[topic][partition].Offset)
		}
		return nil
	})
}

func (f franz) ListGroups(ctx context.Context) (groups []string, err error) {
	err = f.admin(func(admin *kadm.Client) error {
		listed, err := admin.ListGroups(ctx)
		groups = listed.Groups()
		return err
	})
	return groups, err
}

func (f franz) DescribeGroup(ctx context.Context, group string) (state string, members int, err error) {
	err = f.admin(func(admin *kadm.Client) error {
		described, err := admin.DescribeGroups(ctx, group)
		state, members = described[group].State, len(described[group].Members)
		return errors.Join(err, described.Error())
	})
	return state, members, err
}

func (f franz) DeleteGroup(ctx context.Context, group string) error {
	return f.admin(func(admin *kadm.Client) error {
		_, err := admin.DeleteGroup(ctx, group)
		return err
	})
}
