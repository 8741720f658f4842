package forwarding

import (
	"log/slog"

	"github.com/weirlb/weir/internal/model"
)

// Rejection is a generation that was refused, and why.
type Rejection struct {
	Generation model.Generation
	Reason     string
}

// generations are how far the data plane is.
type generations struct {
	runs     model.Generation
	ahead    model.Generation // that runs except for pending prefix lists, or runs
	rejected *Rejection       // the last, unless something was applied since
}

// reject records a refused generation, and logs it once.
func (g *generations) reject(generation model.Generation, err error, log *slog.Logger) {
	if g.rejected == nil || g.rejected.Generation != generation {
		log.Error("refused tables, going on with those that run", "refused", generation, "generation", g.runs, "err", err)
	}
	g.rejected = &Rejection{Generation: generation, Reason: err.Error()}
}
