package rpc

import "testing"

// A manager that knows no pages, or whose pages do not go on, is an error instead of a loop.
func TestPagesGoOn(t *testing.T) {
	pages := map[string]string{"": "a", "a": "b", "b": ""}
	all, err := Pages(func(token string) ([]string, string, error) { return []string{token}, pages[token], nil })
	if err != nil || len(all) != 3 {
		t.Errorf("got %q, %v", all, err)
	}
	pages["b"] = "b"
	if all, err := Pages(func(token string) ([]string, string, error) { return []string{token}, pages[token], nil }); err == nil {
		t.Errorf("a page that is its own next one: %q", all)
	}
}
