// Package harness is the loop of a runner: one JSON command per line in, one JSON answer per line out.
// compat_tests/README.md says which commands there are.
package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Header is a pair, as JSON writes it.
type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

// Record, to send or read.
type Record struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []Header `json:"headers"`
	Timestamp     *int64   `json:"timestamp"`
	LogAppendTime *bool    `json:"log_append_time"`
}

// Place is a topic and a partition.
type Place struct {
	Topic     string
	Partition int32
}

func (p Place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Topic, p.Partition}) }

// Commit is topic, partition, offset and metadata.
type Commit struct {
	Topic     string
	Partition int32
	Offset    int64
	Metadata  string
}

func (c *Commit) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&c.Topic, &c.Partition, &c.Offset, &c.Metadata})
}

// Command has the arguments of all commands.
type Command struct {
	Do              string            `json:"do"`
	Bootstrap       string            `json:"bootstrap"`
	Topic           string            `json:"topic"`
	Records         []Record          `json:"records"`
	Acks            *int              `json:"acks"`
	Codec           string            `json:"codec"`
	Idempotent      bool              `json:"idempotent"`
	MaxRequestBytes int               `json:"max_request_bytes"`
	BatchBytes      int               `json:"batch_bytes"`
	Partition       int32             `json:"partition"`
	Offset          any               `json:"offset"`
	Count           int               `json:"count"`
	WaitS           float64           `json:"wait_s"`
	Options         map[string]int    `json:"options"`
	At              any               `json:"at"`
	Partitions      int               `json:"partitions"`
	Replicas        int               `json:"replicas"`
	Configs         map[string]string `json:"configs"`
	Total           int               `json:"total"`
	Values          map[string]string `json:"values"`
	Before          int64             `json:"before"`
	Group           string            `json:"group"`
	Member          string            `json:"member"`
	Topics          []string          `json:"topics"`
	Assignor        string            `json:"assignor"`
	Instance        *string           `json:"instance"`
	SessionMS       int               `json:"session_ms"`
	CommitEach      bool              `json:"commit_each"`
	Offsets         []Commit          `json:"offsets"`
}

// Wait is how long a read may take.
func (c Command) Wait() time.Duration { return time.Duration(c.WaitS * float64(time.Second)) }

// Session of a member.
func (c Command) Session() time.Duration {
	if c.SessionMS == 0 {
		return 10 * time.Second
	}
	return time.Duration(c.SessionMS) * time.Millisecond
}

// RequiredAcks is -1 unless something else is wanted.
func (c Command) RequiredAcks() int {
	if c.Acks == nil {
		return -1
	}
	return *c.Acks
}

// From is where a read begins: an offset, or -2 for the first and -1 for the end.
func (c Command) From() int64 { return number(c.Offset) }

// When is what an offset is looked up by: a time, -2 the first, -1 the end, -3 the newest time.
func (c Command) When() int64 { return number(c.At) }

func number(given any) int64 {
	switch given {
	case "earliest":
		return -2
	case "latest":
		return -1
	case "max_timestamp":
		return -3
	}
	return int64(given.(float64))
}

// Failure is an error with Kafka's number.
type Failure struct {
	Code int    `json:"code"`
	Text string `json:"text"`
}

func (f *Failure) Error() string { return f.Text }

// Seen is what a member has read since it was last asked, and what it has.
type Seen struct {
	lock       sync.Mutex
	records    []Record
	assignment map[Place]bool
	failure    *Failure
}

func (s *Seen) Add(records ...Record) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.records = append(s.records, records...)
}

func (s *Seen) Gain(places ...Place) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.assignment == nil {
		s.assignment = map[Place]bool{}
	}
	for _, place := range places {
		s.assignment[place] = true
	}
}

func (s *Seen) Lose(places ...Place) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, place := range places {
		delete(s.assignment, place)
	}
}

func (s *Seen) LoseAll() {
	s.lock.Lock()
	defer s.lock.Unlock()
	clear(s.assignment)
}

func (s *Seen) Fail(failure *Failure) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.failure = failure
}

func (s *Seen) look() map[string]any {
	s.lock.Lock()
	defer s.lock.Unlock()
	places := []Place{}
	for place := range s.assignment {
		places = append(places, place)
	}
	found := map[string]any{"records": s.records, "assignment": places, "error": s.failure}
	s.records = nil
	return found
}

// Member of a group; it reads in the background until it leaves.
type Member interface {
	Commit(offsets []Commit) error
	Leave()
}

// Client is what a runner makes of its library; what it leaves out answers an error.
type Client struct {
	Do      map[string]func(Command) (map[string]any, error)
	Join    func(Command, *Seen) (Member, error)
	Failure func(error) *Failure
}

type joined struct {
	member Member
	seen   *Seen
}

// Serve answers commands until stdin ends.
func Serve(client Client) {
	members := map[string]joined{}
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var command Command
		if err := json.Unmarshal(line, &command); err != nil {
			panic(err)
		}
		answer, err := handle(client, members, command)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", command.Do, err)
			_ = output.Encode(map[string]any{"error": failure(client, err)})
			continue
		}
		if answer == nil {
			answer = map[string]any{}
		}
		_ = output.Encode(map[string]any{"ok": answer})
	}
}

func failure(client Client, err error) *Failure {
	var own *Failure
	if errors.As(err, &own) {
		return own
	}
	return client.Failure(err)
}

func handle(client Client, members map[string]joined, command Command) (map[string]any, error) {
	switch command.Do {
	case "join":
		seen := &Seen{}
		member, err := client.Join(command, seen)
		if err == nil {
			members[command.Member] = joined{member, seen}
		}
		return nil, err
	case "members":
		names := []string{}
		for name := range members {
			names = append(names, name)
		}
		return map[string]any{"names": names}, nil
	case "look":
		return members[command.Member].seen.look(), nil
	case "commit":
		return nil, members[command.Member].member.Commit(command.Offsets)
	case "leave":
		members[command.Member].member.Leave()
		delete(members, command.Member)
		return nil, nil
	}
	do, known := client.Do[command.Do]
	if !known {
		return nil, &Failure{-1, "no such command: " + command.Do}
	}
	return do(command)
}
