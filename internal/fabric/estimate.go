package fabric

import "context"

// Estimator finds, for many sets of switches at once, a utilisation that the most used link touched by a flow has at
// least. It adds up what one link carries of several classes only near the set; elsewhere it takes each class alone.
// In a regular Clos little else is possible, and most estimates are exact. Members that receive unevenly are taken as
// if they did not: there alone an estimate can be too high.
//
// What sets have in common is computed once: links that carry the same amount are one group, links that carry traffic
// of one class alone are a cell, and sets whose cells differ for few classes share a profile.
type Estimator struct {
	f        *Fabric
	u        *Usage
	edges    [][]edges // by class
	cells    []cell
	profiles []profile
	sets     []outline
	leaves   []leafOutline // by class

	leafIn, leafOut   []float64 // of the flow in hand
	classIn, classOut []float64
	round             int
	lowest            []float64 // bounds
}

// valueOf is a number of a class.
type valueOf struct {
	class int32
	value float64
}

// share is the part of a flow that a link carries: the same of most classes.
type share struct {
	common, outside float64
	others          []valueOf // what a class has more than common
}

// end is a group of links that carry a part of what a class sends or receives.
type end struct {
	group int32
	part  float64
}

// joint is a group of links near a set that carry traffic of many classes.
type joint struct {
	group int32
	share share
}

// edges is one way in which leaves of a class split over their links.
type edges struct {
	parts       []float64
	in, out     float64 // worst of the flow in hand
	inAt, outAt int32   // leaves where that is
}

// cell is the links that carry traffic of one class alone on its way to a set and back.
type cell struct {
	inEdges, outEdges int32 // index of edges of the class, -1 for none
	in, out           []end
}

// profile is the cells of sets by class, but for a few that each set has of its own.
type profile struct {
	cells []int32
	top   [3]valueOf // the most used cells of the flow in hand
	round int        // of that flow
}

// outline is what is estimated of a set's routes.
type outline struct {
	profile             int32
	exceptions          []exception
	inJoints, outJoints []joint
}

// exception is a cell of a set that differs from its profile's.
type exception struct{ class, cell int32 }

// leafOutline is what the leaves of a class have in common when one of them announces a VIP.
type leafOutline struct {
	outline
	inEdges, outEdges int32      // of other leaves of the class
	shares            []ownShare // of the links of the leaf itself
	members           []ownLinks
}

// ownShare is the share of a flow that links of a leaf carry. The leaf's own racks are in it, and stay below the leaf.
type ownShare struct {
	share
	own    float64 // of the leaf's class
	out    bool    // it departs
	amount float64 // of the flow in hand
}

// ownLinks is groups of links of a leaf.
type ownLinks struct {
	leaf int32
	ends []ownEnd
}

// ownEnd is a group of links with the same share.
type ownEnd struct{ group, share int32 }

// NewEstimator prepares estimates for sets, which hold no leaf, and for each leaf. It adds groups to u, from which it
// reads loads.
func NewEstimator(ctx context.Context, f *Fabric, router *Router, u *Usage, sets []*Routes) (*Estimator, error) {
	e := &Estimator{
		f: f, u: u, edges: make([][]edges, len(f.classes)), leaves: make([]leafOutline, len(f.classes)),
		leafIn: make([]float64, len(f.leaves)), leafOut: make([]float64, len(f.leaves)),
		classIn: make([]float64, len(f.classes)), classOut: make([]float64, len(f.classes)),
	}
	for i, l := range f.leaves {
		if l.ways != nil {
			o := &e.leaves[l.class]
			o.members = append(o.members, ownLinks{leaf: int32(i)})
		}
	}
	d := newDrafter(e)
	for _, r := range sets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e.sets = append(e.sets, d.outline(r, -1))
	}
	for c := range e.leaves {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o := &e.leaves[c]; len(o.members) > 0 {
			r := router.Routes([]int32{f.leaves[o.members[0].leaf].sw})
			o.outline = d.outline(r, int32(c))
			d.addOwn(o, r, int32(c))
		}
	}
	d.findProfiles()
	return e, nil
}
