package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// drawFile keeps what was computed of each draw, so that a run that ends early goes on where it stopped. It has a line
// for each draw, below one of the program that computed them: draws of another program are computed anew.
type drawFile struct {
	mu   sync.Mutex
	file *os.File
	kept map[string]json.RawMessage
}

// drawHead is the first line of a file of draws.
type drawHead struct {
	Program string `json:"program"` // digest of the executable
	VIPs    int    `json:"vips"`
}

// drawLine is what was computed of a draw.
type drawLine struct {
	Draw  string          `json:"draw"`
	Value json.RawMessage `json:"value"`
}

// openDraws opens a file of draws, or begins it anew if another program wrote it. A line that is cut short is dropped.
func openDraws(path string, head drawHead) (*drawFile, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	first, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	first = append(first, '\n')
	d, whole := &drawFile{kept: map[string]json.RawMessage{}}, int64(len(first))
	if rest, same := bytes.CutPrefix(data, first); same {
		for {
			line, after, found := bytes.Cut(rest, []byte{'\n'})
			var l drawLine
			if !found || json.Unmarshal(line, &l) != nil {
				break
			}
			d.kept[l.Draw], rest = l.Value, after
			whole += int64(len(line)) + 1
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, first, 0o644); err != nil {
			return nil, err
		}
	}
	if d.file, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	_, err = d.file.Seek(whole, io.SeekStart)
	if err = errors.Join(err, d.file.Truncate(whole)); err != nil {
		return nil, errors.Join(err, d.file.Close())
	}
	return d, nil
}

// add keeps what was computed of a draw.
func (d *drawFile) add(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	line, err := json.Marshal(drawLine{name, data})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.file.Write(append(line, '\n'))
	return err
}

// compute returns the value of each draw, by its name: kept ones from the file of draws of a part, all others by do.
func compute[T any](
	ctx context.Context, b *bench, part string, names []string, do func(ctx context.Context, i int) (T, error),
) (values []T, err error) {
	program, err := programDigest()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(b.out), "placement-"+part+".draws")
	file, err := openDraws(path, drawHead{program, b.vips})
	if err != nil {
		return nil, fmt.Errorf("open draws: %w", err)
	}
	values = make([]T, len(names))
	err = each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		if kept, found := file.kept[names[i]]; found {
			return json.Unmarshal(kept, &values[i])
		}
		if values[i], err = do(ctx, i); err != nil {
			return err
		}
		return file.add(names[i], values[i])
	})
	return values, errors.Join(err, file.file.Close())
}

// programDigest is a digest of this program: the same code and the same compiler give the same.
func programDigest() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}
