package fabric

// maxExceptions bounds how many cells of a set may differ from another's whose profile it shares: two containers of
// each.
const maxExceptions = 4

// findProfiles finds outlines with nearly the same cells.
func (d *drafter) findProfiles() {
	near := min(maxExceptions, len(d.e.f.classes)/4)
	var shared [][]int // rows of each profile
	for i, row := range d.rows {
		p := 0
		for p < len(shared) && !isNear(row, d.rows[shared[p][0]], near) {
			p++
		}
		if p == len(shared) {
			shared = append(shared, nil)
		}
		shared[p] = append(shared[p], i)
	}
	outlines := make([]*outline, 0, len(d.rows))
	for i := range d.e.sets {
		outlines = append(outlines, &d.e.sets[i])
	}
	for i := range d.e.leaves {
		if o := &d.e.leaves[i]; len(o.members) > 0 {
			outlines = append(outlines, &o.outline)
		}
	}
	for p, rows := range shared {
		cells := d.usual(rows)
		d.e.profiles = append(d.e.profiles, profile{cells: cells})
		for _, i := range rows {
			o := outlines[i]
			o.profile = int32(p)
			for c, x := range d.rows[i] {
				if x != cells[c] {
					o.exceptions = append(o.exceptions, exception{int32(c), x})
				}
			}
		}
	}
}

func isNear(a, b []int32, near int) bool {
	differ := 0
	for c := range a {
		if a[c] != b[c] {
			if differ++; differ > near {
				return false
			}
		}
	}
	return true
}

// usual is the cell of each class that most rows have.
func (d *drafter) usual(rows []int) []int32 {
	cells := make([]int32, len(d.e.f.classes))
	for c := range cells {
		count, best := map[int32]int{}, 0
		for _, i := range rows {
			x := d.rows[i][c]
			if count[x]++; count[x] > best {
				best, cells[c] = count[x], x
			}
		}
	}
	return cells
}
