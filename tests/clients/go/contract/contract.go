// Package contract reads the command line and prints the results of a program of ../../README.md.
package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// SessionTimeout, in milliseconds, is the shortest that a server takes by default.
const SessionTimeout = 6000

// HeartbeatInterval, in milliseconds.
const HeartbeatInterval = 500

// Message is what a producer writes.
type Message struct{ Key, Value []byte }

// Client is a library at work. All methods but those of groups' records do one thing and return.
type Client interface {
	Produce(ctx context.Context, topic, codec string, idempotent bool, messages []Message) error
	// Consume prints this many records, commits them and leaves the group.
	Consume(ctx context.Context, topic, group string, count int) error
	// Member prints and commits records until the context is done, then leaves the group.
	Member(ctx context.Context, topic, group string) error
	CreateTopic(ctx context.Context, topic string, partitions int) error
	GrowTopic(ctx context.Context, topic string, partitions int) error
	DeleteTopic(ctx context.Context, topic string) error
	// Offsets prints those of each partition with PrintOffsets.
	Offsets(ctx context.Context, topic string, millisecond int64) error
	ListGroups(ctx context.Context) ([]string, error)
	DescribeGroup(ctx context.Context, group string) (state string, members int, err error)
	DeleteGroup(ctx context.Context, group string) error
}

// Main runs the command that the program's arguments name.
func Main(connect func(bootstrap string) (Client, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := connect(os.Args[1])
	if err == nil {
		err = run(ctx, client, os.Args[2], os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, client Client, command string, arguments []string) error {
	switch command {
	case "produce":
		messages := make([]Message, number(arguments[3]))
		for i := range messages {
			key, value := fmt.Sprintf("key %d", i), strings.Repeat(fmt.Sprintf("value %d ", i), 20)
			messages[i] = Message{Key: []byte(key), Value: []byte(value)}
		}
		return client.Produce(ctx, arguments[0], arguments[1], arguments[2] == "idempotent", messages)
	case "consume":
		return client.Consume(ctx, arguments[0], arguments[1], number(arguments[2]))
	case "member":
		return client.Member(ctx, arguments[0], arguments[1])
	case "create-topic":
		return client.CreateTopic(ctx, arguments[0], number(arguments[1]))
	case "grow-topic":
		return client.GrowTopic(ctx, arguments[0], number(arguments[1]))
	case "delete-topic":
		return client.DeleteTopic(ctx, arguments[0])
	case "offsets":
		return client.Offsets(ctx, arguments[0], int64(number(arguments[1])))
	case "list-groups":
		groups, err := client.ListGroups(ctx)
		slices.Sort(groups)
		for _, group := range groups {
			emit(map[string]any{"group": group})
		}
		return err
	case "describe-group":
		state, members, err := client.DescribeGroup(ctx, arguments[0])
		if err == nil {
			emit(map[string]any{"state": state, "members": members})
		}
		return err
	case "delete-group":
		return client.DeleteGroup(ctx, arguments[0])
	}
	return fmt.Errorf("unknown command %s", command)
}

// PrintRecord prints one that was read.
func PrintRecord(partition int, offset int64, key, value []byte) {
	emit(map[string]any{"partition": partition, "offset": offset, "key": string(key), "value": string(value)})
}

// PrintOffsets prints the first and the next offset of a partition, and that of the first record at a time or later.
func PrintOffsets(partition int, earliest, latest, at int64) {
	emit(map[string]any{"partition": partition, "earliest": earliest, "latest": latest, "at": at})
}

func emit(line any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}
