package table

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weirlb/weir/internal/ctl/output"
)

// Table aligns rows of cells below a head. With no rows it writes empty instead.
type Table struct {
	indent string
	empty  string
	rows   [][]string
}

// New makes a table with these columns, and without rows.
func New(indent, empty string, head ...string) *Table {
	return &Table{indent: indent, empty: empty, rows: [][]string{head}}
}

// Add adds a row; an empty cell is shown as -.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
		if row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Write writes the table.
func (t *Table) Write(w io.Writer) error {
	if len(t.rows) == 1 {
		_, err := fmt.Fprintln(w, t.indent+t.empty)
		return err
	}
	var aligned bytes.Buffer
	columns := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(columns, t.indent+strings.Join(row, "\t"))
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	_, paints := w.(output.Painter)
	var widths []int
	if paints {
		widths = t.widths()
	}
	row := 0
	for line := range strings.Lines(aligned.String()) {
		line = strings.TrimRight(line, " \n")
		if paints {
			line = t.painted(line, row, widths)
		}
		row++
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
