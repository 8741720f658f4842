package table

import (
	"strings"
	"unicode/utf8"

	"github.com/weirlb/weir/internal/ctl/output"
)

// stateColumns are those whose cells are states: they alone are coloured.
var stateColumns = map[string]func(string) output.Shade{
	"STATE": shadeOfState, "LEVEL": shadeOfState, "HEALTH": shadeOfState,
	"BGP": shadeOfShare(output.Bad), "BFD": shadeOfShare(output.Bad), "MUXES": shadeOfShare(output.Doubtful),
}

func shadeOfState(text string) output.Shade {
	word, _, more := strings.Cut(text, ",")
	word, _, _ = strings.Cut(word, ":") // what follows is the reason
	switch word {
	case "connected":
		if more {
			return output.Doubtful
		}
		return output.Good
	case "ok", "healthy", "up", "established":
		return output.Good
	case "warn", "unknown", "draining", "pending":
		return output.Doubtful
	case "fail", "disconnected", "unhealthy", "down":
		return output.Bad
	}
	return output.Plain
}

// shadeOfShare judges "1/2": all, or lack if some are missing.
func shadeOfShare(lack output.Shade) func(string) output.Shade {
	return func(text string) output.Shade {
		part, all, ok := strings.Cut(text, "/")
		switch {
		case text == "unknown":
			return output.Doubtful
		case !ok || all == "0":
			return output.Plain
		case part == all:
			return output.Good
		}
		return lack
	}
}

// widths are those of the columns: of their widest cell each.
func (t *Table) widths() []int {
	var all []int
	for _, row := range t.rows {
		for column, cell := range row {
			if column == len(all) {
				all = append(all, 0)
			}
			all[column] = max(all[column], utf8.RuneCountInString(cell))
		}
	}
	return all
}

// painted colours the states of an aligned line. Its cells begin at the same places as those of all rows.
func (t *Table) painted(line string, row int, widths []int) string {
	if row == 0 || row >= len(t.rows) {
		return line
	}
	var out strings.Builder
	at := utf8.RuneCountInString(t.indent)
	runes := []rune(line)
	out.WriteString(string(runes[:min(at, len(runes))]))
	for column, cell := range t.rows[row] {
		length := utf8.RuneCountInString(cell)
		next := min(at+widths[column]+2, len(runes))
		if at >= len(runes) {
			break
		}
		end := min(at+length, len(runes))
		text := string(runes[at:end])
		if judge := stateColumns[t.rows[0][column]]; judge != nil {
			text = judge(cell).Paint(text)
		}
		out.WriteString(text + string(runes[end:next]))
		at = next
	}
	return out.String()
}
