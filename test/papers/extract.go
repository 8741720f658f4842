package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// source says where a bench's JSON holds a value: the numbers that path selects, folded into one, divided by those that
// over selects, and multiplied by times. An empty path stands for 1, an empty over too; times is 1 if it is 0.
type source struct {
	path, over string
	fold       string // max, min, sum or median of what is selected; empty: exactly one number is
	times      float64
}

func (s source) isEmpty() bool { return s.path == "" && s.over == "" }

// value computes the value from a decoded document.
func (s source) value(document any) (float64, error) {
	dividend, err := s.number(document, s.path)
	if err != nil {
		return 0, err
	}
	divisor, err := s.number(document, s.over)
	if err != nil {
		return 0, err
	}
	value := dividend / divisor
	if s.times != 0 {
		value *= s.times
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("divide %s by %s: %v by %v", s.path, s.over, dividend, divisor)
	}
	return value, nil
}

func (s source) number(document any, path string) (float64, error) {
	if path == "" {
		return 1, nil
	}
	numbers := selectNumbers(document, path)
	if len(numbers) == 0 || s.fold == "" && len(numbers) != 1 {
		return 0, fmt.Errorf("read %s: %d numbers are there", path, len(numbers))
	}
	switch s.fold {
	case "":
		return numbers[0], nil
	case "max":
		return slices.Max(numbers), nil
	case "min":
		return slices.Min(numbers), nil
	case "sum":
		sum := 0.0
		for _, n := range numbers {
			sum += n
		}
		return sum, nil
	case "median":
		slices.Sort(numbers)
		return (numbers[(len(numbers)-1)/2] + numbers[len(numbers)/2]) / 2, nil
	}
	return 0, fmt.Errorf("read %s: %q is no way to fold numbers", path, s.fold)
}

var (
	pathStep   = regexp.MustCompile(`[^.\[\]]+|\[[^\]]+\]`)
	pathFilter = regexp.MustCompile(`^\[([^=]+)=(.*)\]$`)
)

// selectNumbers returns all numbers at a path, as figure[mode=cookies].trials.detect_ms or quantiles[10]. A key of an
// array is a key of all its elements; [key=value] keeps the elements whose key has the value, [n] the n-th.
func selectNumbers(document any, path string) (numbers []float64) {
	at := []any{document}
	for _, step := range pathStep.FindAllString(path, -1) {
		var next []any
		for _, node := range at {
			next = append(next, follow(node, step)...)
		}
		at = next
	}
	for _, node := range at {
		numbers = appendNumbers(numbers, node)
	}
	return numbers
}

// follow returns what one step of a path leads to.
func follow(node any, step string) []any {
	elements, isArray := node.([]any)
	if !isArray { // also what a filter before has kept
		elements = []any{node}
	}
	if step[0] == '[' {
		if filter := pathFilter.FindStringSubmatch(step); filter != nil {
			return slices.DeleteFunc(slices.Clone(elements), func(e any) bool {
				object, _ := e.(map[string]any)
				return text(object[filter[1]]) != filter[2]
			})
		}
		if n, err := strconv.Atoi(step[1 : len(step)-1]); isArray && err == nil && n >= 0 && n < len(elements) {
			return elements[n : n+1]
		}
		return nil
	}
	var found []any
	for _, e := range elements {
		object, _ := e.(map[string]any)
		if value, ok := object[step]; ok {
			found = append(found, value)
		}
	}
	return found
}

// text is a value as filters name it.
func text(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

func appendNumbers(numbers []float64, node any) []float64 {
	switch node := node.(type) {
	case float64:
		return append(numbers, node)
	case []any:
		for _, e := range node {
			numbers = appendNumbers(numbers, e)
		}
	}
	return numbers
}
