package store

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/store/codec"
)

// UnknownFormError says that something can't be written while a manager runs that could not read it.
type UnknownFormError struct {
	Manager      string
	Knows, Needs int
}

func (e *UnknownFormError) Error() string {
	return fmt.Sprintf("manager %s knows the schemas of the store up to %d, and this needs %d: upgrade it, or take it out with weir delete manager %s",
		e.Manager, e.Knows, e.Needs, e.Manager)
}

// allManagersRead refuses a schema that not all managers know.
func (s *State) allManagersRead(needs int) error {
	for _, m := range s.Managers {
		if knows := max(m.Schema, codec.Schema); knows < needs {
			return &UnknownFormError{m.Name, knows, needs}
		}
	}
	return nil
}

// encodeIn is encode of a document that lies under key in s, with what newer managers have written into it.
func encodeIn[T any](s *State, key string, value T) (string, error) {
	return codec.EncodeOver(s.unknown.At(key), value)
}

// encodeMessageIn is encodeIn of a message.
func encodeMessageIn(s *State, key string, m proto.Message) (string, error) {
	if err := s.allManagersRead(codec.SchemaOf(m)); err != nil {
		return "", err
	}
	return codec.EncodeMessage(s.unknown.At(key), m)
}
