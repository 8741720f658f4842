package bundle

import (
	"bytes"
	"regexp"
)

// redacted stands for what was taken out.
const redacted = "[REDACTED]"

// secrets are what may not leave wherever it stands: private keys, tokens of joins and users, and what URLs have before
// their host. A match's first group stays.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	regexp.MustCompile(`()\bweir_(?:join|user)_[A-Za-z0-9-]+\.[A-Za-z0-9_-]+`),
	regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]+`),
	regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^/\s"']*@`),
}

// keyed is a key whose value is a secret by its name, with what separates them. Its quotes may be escaped, in a log.
var keyed = regexp.MustCompile(
	`(?i)["']?\b[a-z0-9_-]*(?:password|passwd|passphrase|secret|api[_-]?key|authorization)s?(?:\\*["'])?[ \t]*[:=][ \t]*`)

// literal is a value of JSON that needs no quotes.
var literal = regexp.MustCompile(`^(?:null|true|false|-?[0-9][0-9.eE+-]*)\s*[,}\]]`)

// redact takes secrets out of a text.
func redact(text []byte) []byte {
	for _, secret := range secrets {
		text = secret.ReplaceAll(text, []byte("${1}"+redacted))
	}
	return redactKeyed(text)
}

// redactKeyed takes out the values of keys that are named as secrets.
func redactKeyed(text []byte) []byte {
	var out []byte
	for {
		at := keyed.FindIndex(text)
		if at == nil {
			return append(out, text...)
		}
		out = append(out, text[:at[1]]...)
		end := valueEnd(text, at[0], at[1])
		if len(bytes.TrimSpace(text[at[1]:end])) > 0 {
			out = append(out, redacted...)
		}
		text = text[end:]
	}
}

// valueEnd is where the value ends that begins at from, of a key that begins at key. Where that is not sure it is late: a
// value without quotes has the rest of its line, and the lines below it that are indented more than its key.
func valueEnd(text []byte, key, from int) int {
	value := text[from:]
	switch {
	case len(value) == 0:
		return from
	case value[0] == '"' || value[0] == '\'':
		if n := quotedEnd(value); n > 0 && endsThere(value[n:], text[key:from]) {
			return from + n
		}
	case value[0] == '{' || value[0] == '[':
		return from + bracketEnd(value)
	case text[key] == '"' && literal.Match(value):
		return from + bytes.IndexAny(value, " \t\r\n,}]")
	}
	return from + lineEnd(value) + blockEnd(text, key, from)
}

// quotedEnd is the length of the text in quotes that value begins with; 0: they are not closed.
func quotedEnd(value []byte) int {
	quote := value[0]
	for i := 1; i < len(value); i++ {
		switch {
		case value[i] == '\\' && quote == '"':
			i++
		case value[i] != quote:
		case quote == '\'' && i+1 < len(value) && value[i+1] == quote: // so YAML has a quote in quotes
			i++
		default:
			return i + 1
		}
	}
	return 0
}

// endsThere tells whether a value in quotes is whole, by what stands behind it.
func endsThere(rest, key []byte) bool {
	line := rest[:lineEnd(rest)]
	left := bytes.TrimLeft(line, " \t\r")
	if len(left) == 0 || bytes.IndexByte([]byte(",}])"), left[0]) >= 0 {
		return true
	}
	spaced := len(left) < len(line)
	return spaced && (left[0] == '#' || bytes.HasSuffix(key, []byte("=")))
}

// bracketEnd is the length of the object or list that value begins with; all of it if that is not closed.
func bracketEnd(value []byte) int {
	depth := 0
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			n := quotedEnd(value[i:])
			if n == 0 {
				return len(value)
			}
			i += n - 1
		}
	}
	return len(value)
}

func lineEnd(text []byte) int {
	if n := bytes.IndexByte(text, '\n'); n >= 0 {
		return n
	}
	return len(text)
}

// blockEnd is the length of the lines that go on with the value of a key that begins its line, as YAML has it.
func blockEnd(text []byte, key, from int) int {
	start := bytes.LastIndexByte(text[:key], '\n') + 1
	if len(bytes.Trim(text[start:key], " -")) > 0 {
		return 0
	}
	at := from + lineEnd(text[from:])
	list := len(bytes.TrimSpace(text[from:at])) == 0 // which may stand below its key without being indented
	length := 0
	for at+length < len(text) {
		line := text[at+length+1:]
		line = line[:lineEnd(line)]
		indent := len(line) - len(bytes.TrimLeft(line, " \t"))
		blank := len(bytes.TrimSpace(line)) == 0
		item := list && indent == key-start
		if !blank && indent <= key-start && (!item || line[indent] != '-') {
			break
		}
		length += 1 + len(line)
	}
	// Blank lines at the end, and the last line's end, belong to what comes after.
	return len(bytes.TrimRight(text[at:at+length], " \t\r\n"))
}
