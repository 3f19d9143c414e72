// sarama under the runners' commands.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"ister.test/clients/harness"
)

var codecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var strategies = map[string]sarama.BalanceStrategy{
	"": sarama.NewBalanceStrategyRange(), "range": sarama.NewBalanceStrategyRange(),
	"roundrobin": sarama.NewBalanceStrategyRoundRobin(), "sticky": sarama.NewBalanceStrategySticky(),
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
	var known sarama.KError
	if errors.As(err, &known) {
		return &harness.Failure{Code: int(known), Text: err.Error()}
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return &harness.Failure{Code: int(topic.Err), Text: err.Error()}
	}
	var partition *sarama.TopicPartitionError
	if errors.As(err, &partition) {
		return &harness.Failure{Code: int(partition.Err), Text: err.Error()}
	}
	return &harness.Failure{Code: -1, Text: err.Error()}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Backoff = 50 * time.Millisecond
	config.Metadata.Retry.Max = 20
	config.Producer.Retry.Backoff = 50 * time.Millisecond
	config.Producer.Retry.Max = 30
	config.Admin.Retry.Max = 1
	return config
}

// -- records

func produce(c harness.Command) (map[string]any, error) {
	config := settings()
	config.Producer.RequiredAcks = sarama.RequiredAcks(c.RequiredAcks())
	config.Producer.Compression = codecs[c.Codec]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	if c.BatchBytes != 0 {
		config.Producer.Flush.Bytes = c.BatchBytes
		config.Producer.Flush.MaxMessages = max(1, c.BatchBytes/2_000)
	}
	if c.MaxRequestBytes != 0 {
		config.Producer.MaxMessageBytes = c.MaxRequestBytes
	}
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := []*sarama.ProducerMessage{}
	for _, each := range c.Records {
		message := &sarama.ProducerMessage{Topic: c.Topic, Partition: each.Partition}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		if each.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		sent = append(sent, message)
	}
	if err := producer.SendMessages(sent); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) {
			return nil, failed[0].Err
		}
		return nil, err
	}
	placed := [][]int64{}
	for _, message := range sent {
		placed = append(placed, []int64{int64(message.Partition), message.Offset})
	}
	return map[string]any{"placed": placed}, nil
}

func read(c harness.Command) (map[string]any, error) {
	config := settings()
	for name, value := range c.Options {
		switch name {
		case "max_bytes", "partition_max_bytes":
			config.Consumer.Fetch.Default = int32(value)
		case "min_bytes":
			config.Consumer.Fetch.Min = int32(value)
		case "max_wait_ms":
			config.Consumer.MaxWaitTime = time.Duration(value) * time.Millisecond
		}
	}
	consumer, err := sarama.NewConsumer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	claim, err := consumer.ConsumePartition(c.Topic, c.Partition, c.From())
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	found := []harness.Record{}
	over := time.After(c.Wait())
	for len(found) < c.Count {
		select {
		case message := <-claim.Messages():
			found = append(found, answer(message))
		case <-over:
			return map[string]any{"records": found}, nil
		}
	}
	return map[string]any{"records": found}, nil
}

func answer(message *sarama.ConsumerMessage) harness.Record {
	timestamp := message.Timestamp.UnixMilli()
	found := harness.Record{
		Topic: message.Topic, Partition: message.Partition, Offset: message.Offset, Key: message.Key,
		Value: message.Value, Timestamp: &timestamp,
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, harness.Header{Name: string(header.Key), Value: header.Value})
	}
	return found
}

func offset(c harness.Command) (map[string]any, error) {
	client, err := sarama.NewClient([]string{c.Bootstrap}, settings())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.GetOffset(c.Topic, c.Partition, c.When())
	return map[string]any{"offset": found}, err
}

// -- administration

func withAdmin(c harness.Command, ask func(sarama.ClusterAdmin) (map[string]any, error)) (map[string]any, error) {
	admin, err := sarama.NewClusterAdmin([]string{c.Bootstrap}, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return ask(admin)
}

func createTopic(c harness.Command) (map[string]any, error) {
	configs := map[string]*string{}
	for name, value := range c.Configs {
		configs[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: int32(c.Partitions), ReplicationFactor: int16(c.Replicas), ConfigEntries: configs}
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.CreateTopic(c.Topic, detail, false)
	})
}

func deleteTopic(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.DeleteTopic(c.Topic)
	})
}

func addPartitions(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.CreatePartitions(c.Topic, int32(c.Total), nil, false)
	})
}

func topics(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.ListTopics()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return map[string]any{"names": names}, err
	})
}

func describeTopic(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.DescribeTopics([]string{c.Topic})
		if err != nil {
			return nil, err
		}
		if found[0].Err != sarama.ErrNoError {
			return nil, found[0].Err
		}
		return map[string]any{"partitions": len(found[0].Partitions)}, nil
	})
}

func topicConfigs(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
		values := map[string]string{}
		for _, entry := range found {
			values[entry.Name] = entry.Value
		}
		return map[string]any{"values": values}, err
	})
}

func setTopicConfig(c harness.Command) (map[string]any, error) {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range c.Values {
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
	}
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, entries, false)
	})
}

func deleteRecords(c harness.Command) (map[string]any, error) {
	_, err := withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.DeleteRecords(c.Topic, map[int32]int64{c.Partition: c.Before})
	})
	if err != nil {
		return nil, err
	}
	c.At = "earliest" // it does not tell what the broker answered
	found, err := offset(c)
	return map[string]any{"low": found["offset"]}, err
}

func groups(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		return map[string]any{"names": names}, err
	})
}

func describeGroup(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.DescribeConsumerGroups([]string{c.Group})
		if err != nil {
			return nil, err
		}
		if found[0].Err != sarama.ErrNoError {
			return nil, found[0].Err
		}
		return map[string]any{"state": found[0].State, "members": len(found[0].Members)}, nil
	})
}

func deleteGroup(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		return nil, admin.DeleteConsumerGroup(c.Group)
	})
}

func committed(c harness.Command) (map[string]any, error) {
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		found, err := admin.ListConsumerGroupOffsets(c.Group, map[string][]int32{c.Topic: {c.Partition}})
		if err != nil {
			return nil, err
		}
		block := found.GetBlock(c.Topic, c.Partition)
		return map[string]any{"offset": block.Offset, "metadata": block.Metadata}, nil
	})
}

func setCommitted(c harness.Command) (map[string]any, error) {
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{c.Topic: {c.Partition: {Offset: c.From()}}}
	return withAdmin(c, func(admin sarama.ClusterAdmin) (map[string]any, error) {
		response, err := admin.AlterConsumerGroupOffsets(c.Group, wanted, nil)
		if err != nil {
			return nil, err
		}
		if found := response.Errors[c.Topic][c.Partition]; found != sarama.ErrNoError {
			return nil, found
		}
		return nil, nil
	})
}

// -- groups

type member struct {
	group      sarama.ConsumerGroup
	seen       *harness.Seen
	commitEach bool
	session    chan sarama.ConsumerGroupSession // holds the current one, if there is any
	stop       context.CancelFunc
	ended      chan struct{}
}

func join(c harness.Command, seen *harness.Seen) (harness.Member, error) {
	config := settings()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[c.Assignor]}
	config.Consumer.Group.Session.Timeout = c.Session()
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = 50 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Metadata.RefreshFrequency = time.Second
	if c.Instance != nil {
		config.Consumer.Group.InstanceId = *c.Instance
	}
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	made := &member{group, seen, c.CommitEach, make(chan sarama.ConsumerGroupSession, 1), stop, make(chan struct{})}
	go made.run(ctx, c.Topics)
	return made, nil
}

func (m *member) run(ctx context.Context, topics []string) {
	defer close(m.ended)
	for ctx.Err() == nil {
		if err := m.group.Consume(ctx, topics, m); err != nil && ctx.Err() == nil {
			m.seen.Fail(asFailure(err))
			return
		}
	}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			m.seen.Gain(harness.Place{Topic: topic, Partition: partition})
		}
	}
	m.session <- session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	<-m.session
	m.seen.LoseAll()
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.seen.Add(answer(message))
			session.MarkMessage(message, "")
			if m.commitEach {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) Commit(offsets []harness.Commit) error {
	var session sarama.ConsumerGroupSession
	select {
	case session = <-m.session:
	case <-m.ended: // there will be no other session; why it ended is told by `look`
		return nil
	}
	defer func() { m.session <- session }()
	for _, each := range offsets {
		session.ResetOffset(each.Topic, each.Partition, each.Offset, each.Metadata)
		session.MarkOffset(each.Topic, each.Partition, each.Offset, each.Metadata)
	}
	session.Commit()
	return nil
}

func (m *member) Leave() {
	m.stop()
	<-m.ended
	_ = m.group.Close()
}
