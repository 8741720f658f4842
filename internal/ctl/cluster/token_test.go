package cluster

import "testing"

func TestIsLoopback(t *testing.T) {
	for manager, want := range map[string]bool{
		"https://127.0.0.1:7400": true, "https://127.8.9.1": true, "https://[::1]:7400": true, "https://[::ffff:127.0.0.1]:7400": true,
		"https://localhost:7400": true, "127.0.0.1:7400": true,
		"https://10.0.0.127:7400": false, "https://[2001:db8::1]:7400": false, "https://127.0.0.1.example": false, "": false,
	} {
		if got := isLoopback(manager); got != want {
			t.Errorf("%q: %t, want %t", manager, got, want)
		}
	}
}
