// segmentio's kafka-go under the runners' commands.
package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"ister.test/clients/harness"
)

const callLimit = 60 * time.Second

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var balancers = map[string]kafka.GroupBalancer{
	"": kafka.RangeGroupBalancer{}, "range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
}

func main() {
	harness.Serve(harness.Client{
		Do: map[string]func(harness.Command) (map[string]any, error){
			"produce":          produce,
			"read":             read,
			"offset":           offset,
			"create_topic":     createTopic,
			"delete_topic":     deleteTopic,
			"add_partitions":   addPartitions,
			"topics":           topics,
			"describe_topic":   describeTopic,
			"topic_configs":    topicConfigs,
			"set_topic_config": setTopicConfig,
			"groups":           groups,
			"describe_group":   describeGroup,
			"delete_group":     deleteGroup,
			"committed":        committed,
			"set_committed":    setCommitted,
		},
		Join:    join,
		Failure: asFailure,
	})
}

func asFailure(err error) *harness.Failure {
	var many kafka.WriteErrors
	if errors.As(err, &many) {
		for _, each := range many {
			if each != nil {
				err = each
			}
		}
	}
	var known kafka.Error
	if errors.As(err, &known) {
		return &harness.Failure{Code: int(known), Text: err.Error()}
	}
	var large kafka.MessageTooLargeError
	if errors.As(err, &large) {
		return &harness.Failure{Code: int(kafka.MessageSizeTooLarge), Text: err.Error()}
	}
	return &harness.Failure{Code: -1, Text: err.Error()}
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callLimit)
}

func client(c harness.Command) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(c.Bootstrap), Timeout: 30 * time.Second, Transport: &kafka.Transport{}}
}

// -- records

type fixed struct{ partitions []int }

// Balance gives each message the partition that its writer was told, in order.
func (f *fixed) Balance(kafka.Message, ...int) int {
	first := f.partitions[0]
	f.partitions = f.partitions[1:]
	return first
}

func produce(c harness.Command) (map[string]any, error) {
	balancer := &fixed{}
	messages := []kafka.Message{}
	for number, each := range c.Records {
		message := kafka.Message{Key: each.Key, Value: each.Value, WriterData: number}
		if each.Timestamp != nil {
			message.Time = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, message)
		balancer.partitions = append(balancer.partitions, int(each.Partition))
	}
	placed := make([][]int64, len(messages))
	var lock sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.Bootstrap), Topic: c.Topic, Balancer: balancer, Compression: codecs[c.Codec],
		RequiredAcks: kafka.RequiredAcks(c.RequiredAcks()), BatchTimeout: 5 * time.Millisecond, BatchSize: len(messages) + 1,
		MaxAttempts: 20, WriteBackoffMin: 50 * time.Millisecond, ReadTimeout: callLimit, WriteTimeout: callLimit,
		Completion: func(written []kafka.Message, err error) {
			lock.Lock()
			defer lock.Unlock()
			for _, message := range written {
				if err == nil {
					placed[message.WriterData.(int)] = []int64{int64(message.Partition), message.Offset}
				}
			}
		},
		Transport: &kafka.Transport{}, // one of its own, because it remembers which topics there are
	}
	if c.MaxRequestBytes != 0 {
		writer.BatchBytes = int64(c.MaxRequestBytes)
	}
	ctx, cancel := limited()
	defer cancel()
	err := writer.WriteMessages(ctx, messages...)
	if closed := writer.Close(); err == nil {
		err = closed
	}
	return map[string]any{"placed": placed}, err
}

func read(c harness.Command) (map[string]any, error) {
	settings := kafka.ReaderConfig{
		Brokers: []string{c.Bootstrap}, Topic: c.Topic, Partition: int(c.Partition), MinBytes: 1, MaxBytes: 10_000_000,
		MaxWait: 500 * time.Millisecond, ReadBackoffMin: 20 * time.Millisecond, OffsetOutOfRangeError: true, MaxAttempts: 3,
	}
	for name, value := range c.Options {
		switch name {
		case "max_bytes", "partition_max_bytes":
			settings.MaxBytes = value
		case "min_bytes":
			settings.MinBytes = value
		case "max_wait_ms":
			settings.MaxWait = time.Duration(value) * time.Millisecond
		}
	}
	reader := kafka.NewReader(settings)
	defer reader.Close()
	if err := reader.SetOffset(c.From()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Wait())
	defer cancel()
	found := []harness.Record{}
	for len(found) < c.Count {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		found = append(found, answer(message))
	}
	return map[string]any{"records": found}, nil
}

func answer(message kafka.Message) harness.Record {
	timestamp := message.Time.UnixMilli()
	found := harness.Record{
		Topic: message.Topic, Partition: int32(message.Partition), Offset: message.Offset, Key: message.Key,
		Value: message.Value, Timestamp: &timestamp,
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, harness.Header{Name: header.Key, Value: header.Value})
	}
	return found
}

func offset(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	asked := kafka.OffsetRequest{Partition: int(c.Partition), Timestamp: c.When()}
	response, err := client(c).ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{c.Topic: {asked}}})
	if err != nil {
		return nil, err
	}
	found := response.Topics[c.Topic][0]
	switch c.When() {
	case -2:
		return map[string]any{"offset": found.FirstOffset}, found.Error
	case -1:
		return map[string]any{"offset": found.LastOffset}, found.Error
	}
	for each := range found.Offsets {
		return map[string]any{"offset": each}, found.Error
	}
	return map[string]any{"offset": -1}, found.Error
}

// -- administration

func createTopic(c harness.Command) (map[string]any, error) {
	wanted := kafka.TopicConfig{Topic: c.Topic, NumPartitions: c.Partitions, ReplicationFactor: c.Replicas}
	for name, value := range c.Configs {
		wanted.ConfigEntries = append(wanted.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	ctx, cancel := limited()
	defer cancel()
	response, err := client(c).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return nil, err
	}
	return nil, response.Errors[c.Topic]
}

func deleteTopic(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	response, err := client(c).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
	if err != nil {
		return nil, err
	}
	return nil, response.Errors[c.Topic]
}

func addPartitions(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	wanted := kafka.TopicPartitionsConfig{Name: c.Topic, Count: int32(c.Total)}
	response, err := client(c).CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{wanted}})
	if err != nil {
		return nil, err
	}
	return nil, response.Errors[c.Topic]
}

func topics(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, each := range found.Topics {
		names = append(names, each.Name)
	}
	return map[string]any{"names": names}, nil
}

func describeTopic(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{c.Topic}})
	if err != nil {
		return nil, err
	}
	return map[string]any{"partitions": len(found.Topics[0].Partitions)}, found.Topics[0].Error
}

func topicConfigs(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	wanted := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}
	found, err := client(c).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{wanted}})
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, entry := range found.Resources[0].ConfigEntries {
		values[entry.ConfigName] = entry.ConfigValue
	}
	return map[string]any{"values": values}, found.Resources[0].Error
}

func setTopicConfig(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	wanted := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}
	for name, value := range c.Values {
		wanted.Configs = append(wanted.Configs, kafka.IncrementalAlterConfigsRequestConfig{Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet})
	}
	found, err := client(c).IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{wanted}})
	if err != nil {
		return nil, err
	}
	return nil, found.Resources[0].Error
}

func groups(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, each := range found.Groups {
		names = append(names, each.GroupID)
	}
	return map[string]any{"names": names}, found.Error
}

func describeGroup(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{c.Group}})
	if err != nil {
		return nil, err
	}
	return map[string]any{"state": found.Groups[0].GroupState, "members": len(found.Groups[0].Members)}, found.Groups[0].Error
}

func deleteGroup(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{c.Group}})
	if err != nil {
		return nil, err
	}
	return nil, found.Errors[c.Group]
}

func committed(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	found, err := client(c).OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.Group, Topics: map[string][]int{c.Topic: {int(c.Partition)}}})
	if err != nil {
		return nil, err
	}
	place := found.Topics[c.Topic][0]
	return map[string]any{"offset": place.CommittedOffset, "metadata": place.Metadata}, errors.Join(found.Error, place.Error)
}

func setCommitted(c harness.Command) (map[string]any, error) {
	ctx, cancel := limited()
	defer cancel()
	wanted := map[string][]kafka.OffsetCommit{c.Topic: {{Partition: int(c.Partition), Offset: c.From()}}}
	found, err := client(c).OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: c.Group, GenerationID: -1, Topics: wanted})
	if err != nil {
		return nil, err
	}
	return nil, found.Topics[c.Topic][0].Error
}

// -- groups

// member goes from generation to generation as the client's own Reader does; that one does not tell what it has.
type member struct {
	group      *kafka.ConsumerGroup
	bootstrap  string
	seen       *harness.Seen
	commitEach bool
	lock       sync.Mutex
	generation *kafka.Generation
	stop       context.CancelFunc
	ended      chan struct{}
}

func join(c harness.Command, seen *harness.Seen) (harness.Member, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.Group, Brokers: []string{c.Bootstrap}, Topics: c.Topics, StartOffset: kafka.FirstOffset,
		GroupBalancers: []kafka.GroupBalancer{balancers[c.Assignor]}, HeartbeatInterval: 500 * time.Millisecond,
		SessionTimeout: c.Session(), RebalanceTimeout: 10 * time.Second, JoinGroupBackoff: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &member{group: group, bootstrap: c.Bootstrap, seen: seen, commitEach: c.CommitEach, stop: stop, ended: make(chan struct{})}
	go made.run(ctx)
	return made, nil
}

func (m *member) run(ctx context.Context) {
	defer close(m.ended)
	for {
		generation, err := m.group.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // it joins again by itself
		}
		m.lock.Lock()
		m.generation = generation
		m.lock.Unlock()
		m.seen.LoseAll()
		for topic, assignments := range generation.Assignments {
			for _, each := range assignments {
				m.seen.Gain(harness.Place{Topic: topic, Partition: int32(each.ID)})
				generation.Start(func(ctx context.Context) { m.consume(ctx, generation, topic, each) })
			}
		}
	}
}

func (m *member) consume(ctx context.Context, generation *kafka.Generation, topic string, assignment kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{m.bootstrap}, Topic: topic, Partition: assignment.ID, MaxWait: 200 * time.Millisecond,
		ReadBackoffMin: 20 * time.Millisecond,
	})
	defer reader.Close()
	_ = reader.SetOffset(assignment.Offset)
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return
			}
			continue
		}
		m.seen.Add(answer(message))
		if m.commitEach {
			_ = generation.CommitOffsets(map[string]map[int]int64{topic: {assignment.ID: message.Offset + 1}})
		}
	}
}

func (m *member) Commit(offsets []harness.Commit) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	wanted := map[string]map[int]int64{}
	for _, each := range offsets {
		if wanted[each.Topic] == nil {
			wanted[each.Topic] = map[int]int64{}
		}
		wanted[each.Topic][int(each.Partition)] = each.Offset
	}
	return m.generation.CommitOffsets(wanted)
}

func (m *member) Leave() {
	m.stop()
	_ = m.group.Close()
	<-m.ended
}
