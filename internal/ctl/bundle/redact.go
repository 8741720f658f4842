package bundle

import "regexp"

// redacted stands for what was taken out.
const redacted = "[REDACTED]"

// secrets are what may not leave: private keys, tokens of joins and users, passwords in URLs, and values of keys that
// are named as secrets. A match's first group stays.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`()\bweir_(?:join|user)_[A-Za-z0-9-]+\.[A-Za-z0-9_-]+`),
	regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]+`),
	regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/\s"'@]*:[^/\s"'@]*@`),
	regexp.MustCompile(`(?im)(["']?\b[a-z0-9_-]*(?:password|secret|passwd|api[_-]?key)["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}]+)`),
}

// redact takes secrets out of a text.
func redact(text []byte) []byte {
	for _, secret := range secrets {
		text = secret.ReplaceAll(text, []byte("${1}"+redacted))
	}
	return text
}
