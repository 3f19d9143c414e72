// franz-go under the runners' commands.
package main

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ister.test/clients/harness"
)

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var balancers = map[string]kgo.GroupBalancer{
	"":                   kgo.RangeBalancer(),
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// What is lost or not known yet is asked for again soon.
var quick = []kgo.Opt{
	kgo.MetadataMinAge(50 * time.Millisecond),
	kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
}

const callLimit = 60 * time.Second

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
			"delete_records":   deleteRecords,
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
	var known *kerr.Error
	if errors.As(err, &known) {
		return &harness.Failure{Code: int(known.Code), Text: err.Error()}
	}
	return &harness.Failure{Code: -1, Text: err.Error()}
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callLimit)
}

// -- records

func produce(c harness.Command) (map[string]any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if c.BatchBytes != 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(c.BatchBytes)))
	}
	if !c.Idempotent {
		acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks[c.RequiredAcks()]))
	}
	client, err := kgo.NewClient(append(options, quick...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	sent := []*kgo.Record{}
	for _, each := range c.Records {
		record := &kgo.Record{Topic: c.Topic, Partition: each.Partition, Key: each.Key, Value: each.Value}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, record)
	}
	ctx, cancel := limited()
	defer cancel()
	if err := client.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return nil, err
	}
	placed := [][]int64{}
	for _, record := range sent {
		placed = append(placed, []int64{int64(record.Partition), record.Offset})
	}
	return map[string]any{"placed": placed}, nil
}

func read(c harness.Command) (map[string]any, error) {
	at := kgo.NewOffset().At(c.From())
	switch c.From() {
	case -2:
		at = kgo.NewOffset().AtStart()
	case -1:
		at = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: at}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}
	for name, value := range c.Options {
		switch name {
		case "max_bytes":
			options = append(options, kgo.FetchMaxBytes(int32(value)), kgo.FetchMaxPartitionBytes(int32(value)))
		case "partition_max_bytes":
			options = append(options, kgo.FetchMaxPartitionBytes(int32(value)))
		case "min_bytes":
			options = append(options, kgo.FetchMinBytes(int32(value)))
		case "max_wait_ms":
			options = append(options, kgo.FetchMaxWait(time.Duration(value)*time.Millisecond))
		}
	}
	client, err := kgo.NewClient(append(options, quick...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), c.Wait())
	defer cancel()
	found := []harness.Record{}
	for len(found) < c.Count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			if !errors.Is(each.Err, context.DeadlineExceeded) {
				return nil, each.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, answer(record)) })
	}
	return map[string]any{"records": found}, nil
}

func answer(record *kgo.Record) harness.Record {
	timestamp := record.Timestamp.UnixMilli()
	appended := record.Attrs.TimestampType() == 1
	found := harness.Record{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, Key: record.Key,
		Value: record.Value, Timestamp: &timestamp, LogAppendTime: &appended,
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, harness.Header{Name: header.Key, Value: header.Value})
	}
	return found
}

func offset(c harness.Command) (map[string]any, error) {
	// By the request itself: what kadm offers answers the end where the broker says "none".
	request := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.Topic
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = c.Partition, c.When()
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	found := response.Topics[0].Partitions[0]
	return map[string]any{"offset": found.Offset}, kerr.ErrorForCode(found.ErrorCode)
}

// -- administration

// withAdmin calls `ask` with a client of its own.
func withAdmin(c harness.Command, ask func(context.Context, *kadm.Client) (map[string]any, error)) (map[string]any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := limited()
	defer cancel()
	return ask(ctx, kadm.NewClient(client))
}

func createTopic(c harness.Command) (map[string]any, error) {
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = &value
	}
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		_, err := admin.CreateTopic(ctx, int32(c.Partitions), int16(c.Replicas), configs, c.Topic)
		return nil, err
	})
}

func deleteTopic(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		_, err := admin.DeleteTopic(ctx, c.Topic)
		return nil, err
	})
}

func addPartitions(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.UpdatePartitions(ctx, c.Total, c.Topic)
		if err != nil {
			return nil, err
		}
		return nil, found[c.Topic].Err
	})
}

func topics(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.ListTopics(ctx)
		return map[string]any{"names": found.Names()}, err
	})
}

func describeTopic(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.ListTopics(ctx, c.Topic)
		if err != nil {
			return nil, err
		}
		return map[string]any{"partitions": len(found[c.Topic].Partitions)}, found[c.Topic].Err
	})
}

func topicConfigs(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.DescribeTopicConfigs(ctx, c.Topic)
		if err != nil {
			return nil, err
		}
		values := map[string]string{}
		for _, config := range found[0].Configs {
			values[config.Key] = config.MaybeValue()
		}
		return map[string]any{"values": values}, found[0].Err
	})
}

func setTopicConfig(c harness.Command) (map[string]any, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range c.Values {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.AlterTopicConfigs(ctx, changes, c.Topic)
		if err != nil {
			return nil, err
		}
		return nil, found[0].Err
	})
}

func deleteRecords(c harness.Command) (map[string]any, error) {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: c.Topic, Partition: c.Partition, At: c.Before, LeaderEpoch: -1})
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		place := found[c.Topic][c.Partition]
		return map[string]any{"low": place.LowWatermark}, place.Err
	})
}

func groups(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.ListGroups(ctx)
		return map[string]any{"names": found.Groups()}, err
	})
}

func describeGroup(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		all, err := admin.DescribeGroups(ctx, c.Group)
		if err != nil {
			return nil, err
		}
		found := all[c.Group]
		return map[string]any{"state": found.State, "members": len(found.Members)}, found.Err
	})
}

func deleteGroup(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.DeleteGroup(ctx, c.Group)
		if err != nil {
			return nil, err
		}
		return nil, found.Err
	})
}

func committed(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.FetchOffsets(ctx, c.Group)
		if err != nil {
			return nil, err
		}
		place, known := found.Lookup(c.Topic, c.Partition)
		if !known {
			return map[string]any{"offset": -1, "metadata": ""}, nil
		}
		return map[string]any{"offset": place.At, "metadata": place.Metadata}, place.Err
	})
}

func setCommitted(c harness.Command) (map[string]any, error) {
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: c.Topic, Partition: c.Partition, At: c.From(), LeaderEpoch: -1})
	return withAdmin(c, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
		found, err := admin.CommitOffsets(ctx, c.Group, offsets)
		if err != nil {
			return nil, err
		}
		return nil, found.Error()
	})
}

// -- groups

type member struct {
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}
}

func join(c harness.Command, seen *harness.Seen) (harness.Member, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap),
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topics...),
		kgo.Balancers(balancers[c.Assignor]),
		kgo.SessionTimeout(c.Session()),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { seen.Gain(places(m)...) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { seen.Lose(places(m)...) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { seen.Lose(places(m)...) }),
	}
	if c.Instance != nil {
		options = append(options, kgo.InstanceID(*c.Instance))
	}
	client, err := kgo.NewClient(append(options, quick...)...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &member{client, stop, make(chan struct{})}
	go made.run(ctx, seen, c.CommitEach)
	return made, nil
}

func (m *member) run(ctx context.Context, seen *harness.Seen, commitEach bool) {
	defer close(m.ended)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			var known *kerr.Error
			if errors.As(each.Err, &known) && !known.Retriable {
				seen.Fail(asFailure(each.Err))
				return
			}
		}
		records := []harness.Record{}
		fetches.EachRecord(func(record *kgo.Record) { records = append(records, answer(record)) })
		seen.Add(records...)
		if commitEach && len(records) > 0 {
			_ = m.client.CommitUncommittedOffsets(ctx)
		}
	}
}

func (m *member) Commit(offsets []harness.Commit) error {
	ctx, cancel := limited()
	defer cancel()
	if offsets == nil {
		return m.client.CommitUncommittedOffsets(ctx)
	}
	wanted := map[string]map[int32]kgo.EpochOffset{}
	metadata := map[harness.Place]string{}
	for _, each := range offsets {
		if wanted[each.Topic] == nil {
			wanted[each.Topic] = map[int32]kgo.EpochOffset{}
		}
		wanted[each.Topic][each.Partition] = kgo.EpochOffset{Epoch: -1, Offset: each.Offset}
		metadata[harness.Place{Topic: each.Topic, Partition: each.Partition}] = each.Metadata
	}
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for t := range request.Topics {
			for p := range request.Topics[t].Partitions {
				partition := &request.Topics[t].Partitions[p]
				note := metadata[harness.Place{Topic: request.Topics[t].Topic, Partition: partition.Partition}]
				partition.Metadata = &note
			}
		}
		return nil
	})
	var failed error
	m.client.CommitOffsetsSync(ctx, wanted, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if err == nil {
			for _, topic := range response.Topics {
				for _, partition := range topic.Partitions {
					failed = errors.Join(failed, kerr.ErrorForCode(partition.ErrorCode))
				}
			}
		}
	})
	return failed
}

func (m *member) Leave() {
	m.stop()
	<-m.ended
	m.client.Close()
}

func places(m map[string][]int32) []harness.Place {
	found := []harness.Place{}
	for topic, partitions := range m {
		for _, partition := range partitions {
			found = append(found, harness.Place{Topic: topic, Partition: partition})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Partition < found[j].Partition })
	return found
}
