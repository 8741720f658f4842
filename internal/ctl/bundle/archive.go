package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of an archive, before it is compressed.
const (
	mostOfPart = 4 << 20
	mostOfAll  = 32 << 20
)

// archive is a tar.gz that is being written.
type archive struct {
	zip  *gzip.Writer
	tar  *tar.Writer
	now  time.Time
	part int    // most bytes of a file
	left int    // of all
	top  string // folder that all is in
}

func newArchive(w io.Writer, now time.Time) *archive {
	a := &archive{zip: gzip.NewWriter(w), now: now, part: mostOfPart, left: mostOfAll, top: "weir-support-" + now.UTC().Format("20060102-150405")}
	a.tar = tar.NewWriter(a.zip)
	return a
}

// add adds a file, without secrets, and cut where it is too long. It returns a note of what was left out, or nothing.
func (a *archive) add(name string, text []byte) (note string, err error) {
	most := min(a.part, a.left)
	whole := len(text)
	// Cut first, redact then: what is cut from a secret is no longer known as one, but for a key, whose end may be missing.
	if whole > most {
		text = append(cutLine(text, most), "[CUT]\n"...)
		note = fmt.Sprintf("%s: %d of %d bytes\n", name, len(text), whole)
	}
	text = redact(text)
	a.left = max(0, a.left-len(text))
	header := &tar.Header{Name: a.top + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return note, err
	}
	_, err = a.tar.Write(text)
	return note, err
}

// cutLine is a text without its last lines, so that no secret is cut in two: those that are not keys stand in one line.
func cutLine(text []byte, most int) []byte {
	for end := most; end > 0; end-- {
		if text[end-1] == '\n' {
			return append([]byte(nil), text[:end]...)
		}
	}
	return nil
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.zip.Close()) }
