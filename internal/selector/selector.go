package selector

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of a selector.
const (
	maxLength = 4096
	maxShown  = 40
)

// Selector chooses things by their labels. The zero value chooses all.
type Selector struct{ requirements []requirement }

// requirement holds if the label's value is one of values, or, negated, if it is none of them. Without
// values it is about the label's presence.
type requirement struct {
	label   string
	negated bool
	exists  bool
	values  []string
}

// Matches says whether the labels fulfil all requirements.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s.requirements {
		value, there := labels[r.label]
		holds := there
		if !r.exists {
			holds = there && slices.Contains(r.values, value)
		}
		if holds == r.negated {
			return false
		}
	}
	return true
}

// Parse reads a selector; the empty text is one that chooses all.
func Parse(text string) (Selector, error) {
	var s Selector
	if len(text) > maxLength {
		return s, fmt.Errorf("is longer than %d bytes", maxLength)
	}
	for rest := strings.TrimSpace(text); rest != ""; {
		part, after, more := cut(rest)
		r, err := parse(strings.TrimSpace(part))
		if err != nil {
			return Selector{}, err
		}
		s.requirements = append(s.requirements, r)
		if rest = strings.TrimSpace(after); more && rest == "" {
			return Selector{}, fmt.Errorf("must not end in a comma")
		}
	}
	return s, nil
}

// cut splits text at its first comma outside of parentheses.
func cut(text string) (part, rest string, found bool) {
	depth := 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

func parse(text string) (requirement, error) {
	if label, values, set := strings.Cut(text, "("); set {
		return parseSet(text, strings.Fields(label), values)
	}
	for _, operator := range []string{"!=", "==", "="} {
		if label, value, found := strings.Cut(text, operator); found {
			r := requirement{label: strings.TrimSpace(label), negated: operator == "!=", values: []string{strings.TrimSpace(value)}}
			return r, word(text, r.label, r.values[0])
		}
	}
	label, negated := strings.CutPrefix(text, "!")
	r := requirement{label: strings.TrimSpace(label), negated: negated, exists: true}
	return r, word(text, r.label)
}

// parseSet reads "zone in (a,b)", of which head is ["zone", "in"].
func parseSet(text string, head []string, values string) (requirement, error) {
	values, closed := strings.CutSuffix(values, ")")
	if len(head) != 2 || head[1] != "in" && head[1] != "notin" || !closed {
		return requirement{}, wrong(text)
	}
	r := requirement{label: head[0], negated: head[1] == "notin"}
	for value := range strings.SplitSeq(values, ",") {
		r.values = append(r.values, strings.TrimSpace(value))
	}
	return r, word(text, r.label, r.values...)
}

// word holds that the parts of a requirement hold nothing that has a meaning in a selector.
func word(text, label string, values ...string) error {
	for _, s := range append([]string{label}, values...) {
		if strings.ContainsAny(s, "=!(), \t\r\n") {
			return wrong(text)
		}
	}
	if label == "" {
		return wrong(text)
	}
	return nil
}

func wrong(text string) error {
	if len(text) > maxShown {
		text = text[:maxShown] + "..."
	}
	return fmt.Errorf("must be of the form app=shop, app!=shop, app in (a,b), app notin (a,b), app or !app, joined by commas: %q is not", text)
}
