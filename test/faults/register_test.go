package faults

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// kind is what a call does to a VIP.
type kind string

// The kinds of calls.
const (
	get    kind = "get"
	apply  kind = "apply"
	create kind = "create"
	update kind = "update"
	remove kind = "delete"
)

// call is what is asked of a VIP, which is a register: it holds a value, which no other write has, or is not
// there.
type call struct {
	Client  int
	Manager string
	Kind    kind
	Name    string
	Value   string // to write
	Expect  string // update and delete: only if it holds this; empty: whatever it holds
}

// outcome is how a call ended.
type outcome string

// The outcomes. Of an unknown one nobody can tell whether it was done, or will be.
const (
	unknown   outcome = "unknown"
	done      outcome = "done"
	created   outcome = "created" // apply says which
	updated   outcome = "updated"
	unchanged outcome = "unchanged"
	absent    outcome = "absent" // there is no such VIP
	present   outcome = "present"
	conflict  outcome = "conflict" // it does not hold what was expected
)

// answer is what a call returned.
type answer struct {
	Outcome outcome
	Value   string // read
	Version uint64 // of what was read or written
}

// register is what one VIP may do, one call at a time. Its state is the value, empty while it is absent.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byName := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(call).Name
			byName[name] = append(byName[name], op)
		}
		parts := make([][]porcupine.Operation, 0, len(byName))
		for _, part := range byName {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(string), input.(call), output.(answer))
	},
	DescribeOperation: func(input, output any) string {
		c, a := input.(call), output.(answer)
		return fmt.Sprintf("%s %s %s%s -> %s %s", c.Manager, c.Kind, c.Value, c.Expect, a.Outcome, a.Value)
	},
}

// step says whether the call may have this answer in a state, and which state is next.
func step(state string, c call, a answer) (bool, string) {
	there := state != ""
	fits := c.Expect == "" || c.Expect == state
	switch c.Kind {
	case get:
		return a.Value == state, state
	case apply:
		switch a.Outcome {
		case created:
			return !there, c.Value
		case updated:
			return there && state != c.Value, c.Value
		case unchanged:
			return state == c.Value, state
		}
		return true, c.Value
	case create:
		return write(!there, a.Outcome, map[outcome]bool{present: there}, state, c.Value)
	case update:
		return write(there && fits, a.Outcome, map[outcome]bool{absent: !there, conflict: there && !fits}, state, c.Value)
	case remove:
		return write(there && fits, a.Outcome, map[outcome]bool{absent: !there, conflict: there && !fits}, state, "")
	}
	return false, state
}

// write is a step that is done, or refused for a reason, or nobody knows.
func write(possible bool, o outcome, refused map[outcome]bool, state, next string) (bool, string) {
	switch {
	case o == done:
		return possible, next
	case o == unknown && possible:
		return true, next
	case o == unknown:
		return true, state
	}
	return refused[o], state
}
