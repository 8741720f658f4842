package limits

import (
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TooManyError says that a request holds more messages than its procedure takes.
type TooManyError struct{ Most int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("the request holds more than %d messages: send fewer at a time", e.Most)
}

// CountWire holds that a message in the wire format of protobuf has at most so many messages in it, sixteen times as many
// texts in lists, and fields: one that is there again takes no memory, but time. What is malformed is passed: parsing it fails.
func CountWire(data []byte, m protoreflect.MessageDescriptor, atMost int) error {
	w := wire{messages: atMost, values: valuesEach * atMost, fields: fieldsEach * atMost}
	w.count(data, m, 0)
	if w.messages < 0 || w.values < 0 || w.fields < 0 {
		return &TooManyError{atMost}
	}
	return nil
}

// A text of a list takes memory as a quarter of a message does.
const textsOfMessage = 4

// TextsEach is how many texts in lists a request may have for each message that it may have.
const TextsEach = valuesEach

// Weight is how many messages a message in the wire format, or a JSON text, may become in memory. What is malformed
// weighs more than any bound.
func Weight(data []byte, json bool, m protoreflect.MessageDescriptor) int {
	messages, texts := 0, 0
	if json {
		j := JSON{Objects: math.MaxInt, Values: math.MaxInt}
		j.Count(data) //nolint:errcheck // there are not so many
		messages, texts = math.MaxInt-j.Objects, math.MaxInt-j.Values
	} else {
		var whole bool
		if messages, texts, whole = Size(data, m); !whole {
			return math.MaxInt
		}
	}
	return messages + texts/textsOfMessage
}

// Size is how many messages, and texts in lists, there are in a message in the wire format, and whether it could be read.
func Size(data []byte, m protoreflect.MessageDescriptor) (messages, texts int, whole bool) {
	w := wire{messages: math.MaxInt, values: math.MaxInt, fields: math.MaxInt}
	whole = w.count(data, m, 0)
	return math.MaxInt - w.messages, math.MaxInt - w.values, whole
}

// wire counts down what is left.
type wire struct{ messages, values, fields int }

// count returns false when there is nothing more to count.
func (w *wire) count(data []byte, m protoreflect.MessageDescriptor, depth int) bool {
	if depth > maxDepth {
		w.messages = -1 // the parser would follow far deeper
		return false
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if w.fields--; n < 0 || w.fields < 0 {
			return false
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return false
		}
		value := data[:n]
		data = data[n:]
		if kind != protowire.BytesType {
			continue
		}
		f := m.Fields().ByNumber(number)
		switch {
		case f == nil:
		case f.Message() != nil:
			w.messages--
			inner, _ := protowire.ConsumeBytes(value)
			if w.messages < 0 || !w.count(inner, f.Message(), depth+1) {
				return false
			}
		case f.IsList() && isText(f):
			if w.values--; w.values < 0 {
				return false
			}
		}
	}
	return true
}

// JSON counts the objects and the values of a JSON text as it passes.
type JSON struct {
	Reader  io.Reader
	Objects int // that are left
	Values  int // likewise: what commas and brackets separate

	most     int
	inString bool
	escaped  bool
}

// NewJSON reads JSON of at most so many objects, and of sixteen times as many values.
func NewJSON(r io.Reader, atMost int) *JSON {
	return &JSON{Reader: r, Objects: atMost, Values: valuesEach * atMost, most: atMost}
}

// How many values an object of a request has at most, on average, and fields on the wire.
const valuesEach, fieldsEach = 16, 32

// Read fails with a TooManyError at the first object or value that is one too many.
func (j *JSON) Read(p []byte) (int, error) {
	n, err := j.Reader.Read(p)
	if tooMany := j.Count(p[:n]); tooMany != nil {
		return 0, tooMany
	}
	return n, err
}

// Count takes the next part of the text.
func (j *JSON) Count(part []byte) error {
	for _, c := range part {
		switch {
		case j.escaped:
			j.escaped = false
		case j.inString && c == '\\':
			j.escaped = true
		case c == '"':
			j.inString = !j.inString
		case j.inString:
		case c == '{':
			j.Objects--
			j.Values--
		case c == ',' || c == '[':
			j.Values--
		}
	}
	if j.Objects < 0 || j.Values < 0 {
		return &TooManyError{j.most}
	}
	return nil
}
